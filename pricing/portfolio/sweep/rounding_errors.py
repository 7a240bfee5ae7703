"""The rounding errors of values in single precision: the differences to double precision, on the host."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxtape.jax_settings.single_on_devices import devices_are_single

from .fitted_models import Models
from .groups import Tile, TradeGroup
from .memory import Memory
from .memory_gate import MemoryGate
from .tile_sweep import tile_values
from .tile_workers import run_tiles
from .trade_risk import GroupRisk

_MOST_TILES = 4  # of a group, on the host
_MARGIN = 2.0  # for trades beside those that are valued twice


def with_rounding_errors(
    found: Sequence[GroupRisk],
    models: Models,
    *,
    key: PRNGKeyArray,
    budget: int,
    gate: MemoryGate,
    memory: Memory,
) -> list[GroupRisk]:
    """Return the results with the rounding error of each value.

    Trades of at most four tiles of a group, evenly spread, are valued in double precision, too: their errors
    are the differences. The others get twice the largest of them.
    """

    def value(group: TradeGroup, tile: Tile) -> Array:
        of_tile = tile, models[group.underlyings], group.method
        computed = lambda: tile_values(*of_tile, key=key)[0]["value"]
        return memory.recall(computed, ("in double precision", of_tile, key))

    twice = [_on_host(risk.group) for risk in found]
    results = run_tiles(twice, value, budget, gate)
    return [
        replace(risk, roundings=_differences(risk, group, [tile.result() for tile in tiles]))
        for risk, (group, tiles) in zip(found, results, strict=True)
    ]


def _on_host(group: TradeGroup) -> TradeGroup:
    """Return some tiles of a group, evenly spread, for one device."""
    count = min(len(group.places), _MOST_TILES)
    tiles = np.linspace(0, len(group.places) - 1, count).round().astype(int)
    method: Any = group.method
    method = replace(method, mesh=None) if hasattr(method, "mesh") else method
    return replace(group, mesh=None, places=group.places[tiles], method=method)


def _differences(risk: GroupRisk, group: TradeGroup, values: Sequence[Array]) -> np.ndarray:
    """Return the rounding error of each trade of a group, from the values of some tiles in double precision."""
    places, single = group.places.ravel(), risk.figures["value"].astype(float)
    is_trade = places >= 0
    known = places[is_trade]
    differences = np.abs(single[known] - np.concatenate(list(map(np.asarray, values)))[is_trade])
    found = np.full(
        len(single), _MARGIN * np.max(differences[np.isfinite(differences)], initial=0.0)
    )
    found[known] = differences
    return found


def note_on_precision(found: Sequence[GroupRisk]) -> tuple[str, ...]:
    """Return a sentence on single precision, with the largest rounding error of a position, if it is in use."""
    if not devices_are_single():
        return ()
    errors = {
        trade.id: abs(trade.quantity) * error
        for risk in found
        if risk.roundings is not None
        for trade, error in zip(risk.group.trades, risk.roundings, strict=True)
        if np.isfinite(error)
    }
    text = "values and Greeks were computed in single precision, and the models in double"
    if errors:
        worst = max(errors, key=lambda name: errors[name])
        text += f"; the largest rounding error of a value is {errors[worst]:.2g}, of trade {worst}"
    return (text,)
