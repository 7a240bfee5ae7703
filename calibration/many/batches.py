"""Jobs brought to a few shapes, so that few programs serve all.

Quotes of equities are padded with missing quotes to powers of two of expiries and strikes.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, Quotes

from ..prior import Prior
from .job import Job


def batches(
    jobs: Sequence[Job], refused: Mapping[int, str]
) -> Iterator[tuple[np.ndarray, tuple[Quotes, AbstractModel, Prior | None]]]:
    """Yield the jobs of one shape: their places, and their quotes, models and priors, [jobs, ...]."""
    raw: dict[Hashable, list[int]] = {}
    for place, job in enumerate(jobs):
        if place not in refused:
            raw.setdefault(_shape_of(job[1:]), []).append(place)
    padded: dict[Hashable, list[tuple[np.ndarray, Any]]] = {}
    for places in raw.values():
        quotes, *others = _stacked([jobs[place][1:] for place in places])
        part = _padded(quotes), *others
        padded.setdefault(_shape_of(part, 1), []).append((np.asarray(places), part))
    for parts in padded.values():
        places, inputs = zip(*parts, strict=True)
        yield np.concatenate(places), jax.tree.map(lambda *x: np.concatenate(x), *inputs)


def power_of_two(count: int) -> int:
    """Return the least power of two that is not below."""
    return 2 ** (count - 1).bit_length()


def _shape_of(tree: PyTree, batch_axes: int = 0) -> Hashable:
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
