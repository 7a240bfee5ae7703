"""Sums of positions in buckets of strike and expiry, and the book's vegas and rhos by pillar."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from .formats import day
from .panels import ticks
from .positions import Position
from .quotes import QuoteRisk

_BUCKETS = 24


@dataclass(frozen=True)
class Ladder:
    """A figure summed over buckets, given by `edges` or named by `labels`."""

    totals: np.ndarray
    edges: np.ndarray | None = None
    labels: tuple[str, ...] = ()


def by_strike(positions: Iterable[Position], figure: str) -> Ladder:
    """Return the sums by strike (for a note: its call level), in buckets of a round width."""
    pairs = [(p.trade.level, p.figures.get(figure, 0.0)) for p in positions]
    strikes, figures = np.array(pairs).T
    low, high = strikes.min(), strikes.max()
    if high - low < 1e-6 * high:  # one strike: a bucket of a round width around it
        low, high = 0.9 * low, 1.1 * high
    edges = ticks(low, high, _BUCKETS)
    edges = np.append(edges, edges[-1] + edges[1] - edges[0])
    edges[0] = min(edges[0], strikes.min())  # a rounded edge may lie above the smallest strike
    index = np.searchsorted(edges, strikes, side="right") - 1  # [edge, next edge)
    totals = np.bincount(index, weights=figures, minlength=edges.size - 1)
    used = np.flatnonzero(np.bincount(index, minlength=totals.size))
    first, last = used[0], used[-1] + 1
    return Ladder(totals[first:last], edges[first : last + 1])


def by_expiry(positions: Iterable[Position], figure: str, pillars: Iterable[date]) -> Ladder:
    """Return the sums by expiry: a pillar's bucket reaches from the previous pillar (excluded) to itself."""
    pillars = list(pillars)
    pairs = [(p.trade.expiry, p.figures.get(figure, 0.0)) for p in positions]
    index = [sum(pillar < expiry for pillar in pillars) for expiry, _ in pairs]
    weights = [value for _, value in pairs]
    totals = np.bincount(index, weights=weights, minlength=len(pillars) + 1)
    labels = [f"to {day(pillar)}" for pillar in pillars] + ["later"]
    count = len(labels) if len(pillars) in index else len(pillars)
    return Ladder(totals[:count], labels=tuple(labels[:count]))


def by_pillar(risks: Mapping[str, QuoteRisk], ids: Any) -> np.ndarray:
    """Return the scaled sensitivities in the shape of an array of quote ids; 0 if missing."""
    scaled = [risks[quote].scaled if quote in risks else 0.0 for quote in ids.flat]
    return np.array(scaled).reshape(ids.shape)
