"""Jobs in blocks of a few shapes, so that few programs serve all.

Quotes of equities are padded with missing quotes to powers of two of expiries and strikes.
"""

import operator
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, Quotes

from ..prior import Prior
from .job import Job
from .searches import FEWEST_SLOTS


class Block(NamedTuple):
    """Jobs of one shape that one call of a program fits.

    Attributes:
        places: Of the jobs, [jobs].
        inputs: Quotes, models and priors, [rows, ...]: those of the jobs, and copies of the last one.
    """

    places: np.ndarray
    inputs: tuple[Quotes, AbstractModel, Prior | None]


def blocks_of(jobs: Sequence[Job], places: Iterable[int], block_size: int) -> Iterator[Block]:
    """Yield the jobs at these places in blocks of one shape, of a power of two of rows where they are fewer."""
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
        rows = min(block_size, max(power_of_two(where.size), FEWEST_SLOTS))
        for start in range(0, where.size, rows):
            taken = np.minimum(np.arange(start, start + rows), where.size - 1)
            yield Block(
                where[start : start + rows], jax.tree.map(operator.itemgetter(taken), batch)
            )


def power_of_two(count: int) -> int:
    """Return the least power of two that is not below."""
    return 2 ** (count - 1).bit_length()


def shape_of(tree: PyTree, batch_axes: int = 0) -> Hashable:
    """Return what trees of one program have in common, past these axes."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape[batch_axes:], leaf.dtype) for leaf in leaves)


def _stacked(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _padded(quotes: Quotes) -> Quotes:
    """Return quotes [jobs, expiries, strikes] of equities, filled up with missing ones to powers of two."""
    if not isinstance(quotes, VolSurface | SmileQuotes):
        return quotes
    _, *shape = quotes.vols.shape
    expiries, strikes = ((0, power_of_two(count) - count) for count in shape)
    axes = {"expiries": (expiries,), "strikes": (strikes,)}
    names = [field.name for field in fields(quotes)]
    wider = [
        np.pad(getattr(quotes, name), ((0, 0), *axes.get(name, (expiries, strikes))), mode="edge")
        for name in names
    ]
    filled = eqx.tree_at(lambda q: [getattr(q, name) for name in names], quotes, wider)
    missing = ((0, 0), expiries, strikes)
    return eqx.tree_at(
        lambda q: q.vols, filled, np.pad(quotes.vols, missing, constant_values=np.nan)
    )
