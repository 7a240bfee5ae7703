"""Models of equal shapes: equities whose curves and dividends differ in length share programs.

A program serves arrays of one shape, and compiling the programs takes most of the time of a book's first run.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ...market import Dividends, ZeroCurve

Tree = TypeVar("Tree")

_FEWEST_DIVIDENDS = 4


def of_equal_shapes(models: Tree) -> Tree:
    """Return a tree of models with the same values, whose shorter curves and dividends are lengthened.

    Curves get pillars on the line between their first two, up to the length of the longest; flat curves stay as
    they are. Dividends are preceded by paid ones of 0, up to a power of 2, so that programs serve until half of
    the dividends have been paid. Values are equal up to rounding. Values on grids that place steps by ex-dates
    change within the error of the grid.
    """
    leaves, structure = jax.tree.flatten(models, is_leaf=_is_leaf)
    curves = {n: x.times.size for n, x in enumerate(leaves) if _is_curve(x)}
    paid = {n: x.times.size for n, x in enumerate(leaves) if isinstance(x, Dividends)}
    wanted = dict.fromkeys(curves, max(curves.values(), default=0))
    wanted |= dict.fromkeys(paid, _power_of_2(max(paid.values(), default=0)))
    sizes = curves | paid
    counts = {n: count for n, count in wanted.items() if count != sizes[n]}
    if counts:
        longer = _lengthened([leaves[n] for n in counts], tuple(counts.values()))
        for n, leaf in zip(counts, longer, strict=True):
            leaves[n] = leaf
    return jax.tree.unflatten(structure, leaves)


def _is_leaf(node: Any) -> bool:
    return isinstance(node, (ZeroCurve, Dividends))


def _is_curve(leaf: Any) -> bool:
    return isinstance(leaf, ZeroCurve) and not leaf.is_flat


def _power_of_2(count: int) -> int:
    return max(_FEWEST_DIVIDENDS, 1 << (count - 1).bit_length())


@stored_jit(runs_briefly=True)
def _lengthened(short: Sequence[Any], counts: tuple[int, ...]) -> list[Any]:
    """Return curves and dividends of the given lengths."""
    makers = {ZeroCurve: _curve, Dividends: _dividends}
    return [makers[type(leaf)](leaf, count) for leaf, count in zip(short, counts, strict=True)]


def _curve(curve: ZeroCurve, count: int) -> ZeroCurve:
    numbers = curve.times, curve.zero_rates
    return eqx.tree_at(
        lambda c: (c.times, c.zero_rates), curve, tuple(_refined(x, count) for x in numbers)
    )


def _refined(x: Float[Array, " n"], count: int) -> Float[Array, " count"]:
    """Return `count` numbers: those between the first two are equally spaced."""
    added = count - x.size
    shares = jnp.arange(1, added + 1, dtype=x.dtype) / (added + 1)
    return jnp.concatenate([x[:1], x[0] + shares * (x[1] - x[0]), x[1:]])


def _dividends(dividends: Dividends, count: int) -> Dividends:
    num_paid = count - dividends.times.size
    first = jnp.minimum(dividends.times[:1], 0.0)
    times = jnp.concatenate([jnp.repeat(first, num_paid), dividends.times])
    longer = jax.tree.map(lambda x: jnp.pad(x, (num_paid, 0)), dividends)
    return eqx.tree_at(lambda d: d.times, longer, times)
