"""Group jobs in blocks of a few shapes, so that few programs serve all.

Quotes of equities are padded with missing quotes to powers of two of expiries and strikes.
"""

import operator
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, Quotes

from ..objectives import AbstractObjective
from ..prior import Prior
from .job import Job

FEWEST_ROWS = 8  # with fewer, XLA orders sums differently, which changes the last bits of a fit


class Block(NamedTuple):
    """Jobs of the same shape, fitted by one call of a program.

    Attributes:
        places: The indices of the jobs in their sequence, [jobs].
        inputs: The quotes, models and priors of the jobs, [rows, ...], padded with copies of the last one.
    """

    places: np.ndarray
    inputs: tuple[Quotes, AbstractModel | None, Prior | None]

    @property
    def size(self) -> int:
        """The number of rows, padding included."""
        return len(jax.tree.leaves(self.inputs)[0])

    def halves(self) -> Iterator["Block"]:
        """Yield its jobs in blocks of half the rows, but at least `FEWEST_ROWS`."""
        yield from _cut(self.places, self.inputs, max(self.size // 2, FEWEST_ROWS))


def blocks_of(jobs: Sequence[Job], places: Iterable[int], block_size: int) -> Iterator[Block]:
    """Yield the jobs at these places in blocks by shape, each of `block_size` rows or of `FEWEST_ROWS`."""
    raw: dict[Hashable, list[int]] = {}
    for place in places:
        raw.setdefault(shape_of(jobs[place].inputs), []).append(place)
    padded: dict[Hashable, list[tuple[np.ndarray, Any]]] = {}
    for alike in raw.values():
        quotes, *others = _stacked([jobs[place].inputs for place in alike])
        part = _padded(quotes), *others
        padded.setdefault(shape_of(part, 1), []).append((np.asarray(alike), part))
    for parts in padded.values():
        alike, inputs = zip(*parts, strict=True)
        where, batch = np.concatenate(alike), jax.tree.map(lambda *x: np.concatenate(x), *inputs)
        rows = FEWEST_ROWS if where.size <= FEWEST_ROWS else max(block_size, FEWEST_ROWS)
        yield from _cut(where, batch, rows)


def _cut(places: np.ndarray, batch: PyTree, rows: int) -> Iterator[Block]:
    """Yield the jobs at these places, which are the first rows of a batch, in blocks of `rows` rows."""
    for start in range(0, places.size, rows):
        taken = np.minimum(np.arange(start, start + rows), places.size - 1)
        inputs = jax.tree.map(operator.itemgetter(taken), batch)
        yield Block(places[start : start + rows], inputs)


def _power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 2 ** (count - 1).bit_length()


def shape_of(tree: PyTree, batch_axes: int = 0) -> Hashable:
    """Return a key that is equal for trees that one program serves, whatever the sizes of their batch axes."""
    leaves, structure = jax.tree.flatten(tree)
    of_arrays = lambda x: (x.shape[batch_axes:], x.dtype) if hasattr(x, "shape") else x
    return structure, tuple(map(of_arrays, leaves))


def _stacked(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _padded(quotes: Quotes) -> Quotes:
    """Return quotes [jobs, expiries, strikes] of equities, padded with missing ones to powers of two."""
    if not isinstance(quotes, VolSurface | SmileQuotes):
        return quotes
    _, *shape = quotes.vols.shape
    expiries, strikes = ((0, _power_of_two(count) - count) for count in shape)
    axes = {(2, "expiries"): (expiries,), (2, "strikes"): (strikes,)}
    names = [field.name for field in fields(quotes) if getattr(quotes, field.name) is not None]

    def wider(name: str) -> np.ndarray:
        numbers = getattr(quotes, name)
        more = (0, 0), *axes.get((numbers.ndim, name), (expiries, strikes))
        if name == "vols":
            return np.pad(numbers, more, constant_values=np.nan)
        return np.pad(numbers, more, mode="edge")

    return eqx.tree_at(lambda q: [getattr(q, n) for n in names], quotes, list(map(wider, names)))


def padded_objective(objective: AbstractObjective, shape: tuple[int, ...]) -> AbstractObjective:
    """Return the objective for quotes padded to a shape: pad its per-quote arrays with their edge values."""

    def wider(numbers: Any) -> Any:
        if not _is_per_quote(numbers):
            return numbers
        more = [(0, most - count) for most, count in zip(shape, numbers.shape, strict=True)]
        return jnp.pad(numbers, more, mode="edge")

    return jax.tree.map(wider, objective)


def misfit_of(objective: AbstractObjective, quotes: Quotes) -> str | None:
    """Return the reason why an objective's per-quote arrays do not match these quotes, or None."""
    shapes = {x.shape for x in jax.tree.leaves(objective) if _is_per_quote(x)}
    if not shapes or shapes == {quotes.vols.shape}:
        return None
    other = next(shape for shape in shapes if shape != quotes.vols.shape)
    return (
        f"its vols have shape {quotes.vols.shape} and the objective has numbers for {other}: give jobs of that "
        "shape only, with NaN where a quote is missing"
    )


def _is_per_quote(numbers: Any) -> bool:
    return eqx.is_inexact_array(numbers) and numbers.ndim == 2
