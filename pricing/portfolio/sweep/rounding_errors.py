"""Rounding errors of single-precision figures: the differences to double precision, computed on the host."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Integer, PRNGKeyArray

from jaxtape.jax_settings.single_on_devices import devices_are_single

from .fitted_models import FittedModels
from .groups import MeasureArrays, Tile, TradeGroup
from .memory import Memory
from .memory_gate import MemoryGate
from .tile_workers import run_tiles
from .trade_risk import GroupRisk

_MOST_TILES = 4  # largest number of tiles of a group on the host, if they hold enough trades
_ENOUGH_TRADES = 32  # the largest of fewer rounding errors says little of others
_MARGIN = 4.0  # factor for trades that are valued in single precision only


def with_rounding_errors(
    found: Sequence[GroupRisk],
    fitted: FittedModels,
    *,
    key: PRNGKeyArray,
    budget: int,
    gate: MemoryGate,
    memory: Memory,
) -> list[GroupRisk]:
    """Return the results with the rounding error of each figure.

    Four tiles of a group, evenly spread, are also computed in double precision; more if they hold fewer than 32
    trades. The errors of their trades are the differences; the others get four times the largest of these. That
    covers every value and Delta of the sample book (`python -m benchmarks.single_precision`).
    """

    def sweep(group: TradeGroup, tile: Tile) -> MeasureArrays:
        computed = lambda: fitted.sweep(group, tile, key=key, on_host=True)[0]
        seen = fitted.models_of(group)
        return memory.recall(computed, ("in double precision", tile, group.method, *seen, key))

    twice = [_on_host(risk.group) for risk in found]
    results = run_tiles(twice, sweep, budget, gate)
    return [
        replace(risk, roundings=_differences(risk, group, [tile.result() for tile in tiles]))
        for risk, (group, tiles) in zip(found, results, strict=True)
    ]


def _on_host(group: TradeGroup) -> TradeGroup:
    """Return a few tiles of a group, evenly spread, for one device."""
    tiles = _sampled(group.places)
    method: Any = group.method
    method = replace(method, mesh=None) if hasattr(method, "mesh") else method
    return replace(group, mesh=None, places=group.places[tiles], method=method)


def _sampled(places: Integer[np.ndarray, "tiles rows trades"]) -> Integer[np.ndarray, " sampled"]:
    """Return the indices of some tiles, evenly spread."""
    enough = -(-_ENOUGH_TRADES // places[0].size)
    count = min(len(places), max(_MOST_TILES, enough))
    return np.linspace(0, len(places) - 1, count).round().astype(int)


def _differences(
    risk: GroupRisk, group: TradeGroup, tiles: Sequence[MeasureArrays]
) -> dict[str, np.ndarray]:
    """Return the rounding error of each figure of a group, from some of its tiles in double precision."""
    places = group.places.ravel()
    is_trade = places >= 0
    known = places[is_trade]

    def of_measure(single: np.ndarray, *parts: ArrayLike) -> np.ndarray:
        double = np.concatenate(list(map(np.asarray, parts)))[is_trade]
        differences = np.abs(single[known].astype(float) - double)
        largest = np.max(differences, axis=0, initial=0.0, where=np.isfinite(differences))
        found = np.broadcast_to(_MARGIN * largest, single.shape).copy()
        found[known] = differences
        return found

    return jax.tree.map(of_measure, risk.figures, *tiles)


def note_on_precision(found: Sequence[GroupRisk]) -> tuple[str, ...]:
    """Return a note with the largest rounding error of a position if single precision is in use."""
    if not devices_are_single():
        return ()
    errors = {
        trade.id: abs(trade.quantity) * error
        for risk in found
        if risk.roundings is not None
        for trade, error in zip(risk.group.trades, risk.roundings["value"], strict=True)
        if np.isfinite(error)
    }
    text = "values and Greeks were computed in single precision, and the models in double"
    if errors:
        worst = max(errors, key=lambda name: errors[name])
        text += f"; the largest rounding error of a value is {errors[worst]:.2g}, of trade {worst}"
    return (text,)
