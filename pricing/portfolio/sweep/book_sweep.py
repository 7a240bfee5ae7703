"""A sweep over a book: the figures and gradients of all tiles, assembled in the order of the groups."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import chex
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ...progress import Progress
from .fitted_models import FittedModels, Models
from .groups import Tile, TradeGroup
from .memory import Memory
from .memory_gate import MemoryGate
from .tile_workers import run_tiles
from .trade_risk import GroupRisk


def sweep_book(
    groups: Sequence[TradeGroup],
    fitted: FittedModels,
    *,
    key: PRNGKeyArray,
    budget: int,
    gate: MemoryGate,
    memory: Memory,
    progress: Progress | None,
) -> tuple[list[GroupRisk], dict[str, Models]]:
    """Return the results of each group, and the gradient of each part of the book to its models.

    A tile whose results are cached in `memory` is not computed again.
    """
    total, done, found = sum(len(group.trades) for group in groups), 0, []
    zeros = jax.tree.map(np.zeros_like, fitted.models)
    gradients = {"": copy.copy(zeros)}

    def sweep(group: TradeGroup, tile: Tile):
        seen = fitted.models_of(group)
        computed = functools.partial(fitted.sweep, group, tile, key=key)
        return memory.recall(computed, (tile, group.method, group.is_brief, *seen, key))

    for group, results in run_tiles(groups, sweep, budget, gate):
        names, tiles = group.model_names, []
        for part, result in zip(group.tile_parts, results, strict=True):
            *of_trades, of_tile = result.result()
            gradient = gradients.setdefault(part, copy.copy(zeros))
            gradient[names] = jax.tree.map(np.add, gradient[names], of_tile)
            tiles.append(of_trades)
            chex.assert_trees_all_equal_shapes_and_dtypes(gradient[names], fitted.models[names])
            if progress is not None:
                progress(done + int(group.counts[: len(tiles)].sum()), total, "")
        done += len(group.trades)
        columns = jax.tree.map(lambda *parts, group=group: group.in_order(parts), *tiles)
        found.append(GroupRisk(group, *columns))
    return found, gradients


def with_grid_errors(
    found: Sequence[GroupRisk],
    sweep: Callable[[Sequence[TradeGroup]], tuple[list[GroupRisk], dict[str, Models]]],
) -> list[GroupRisk]:
    """Return the results with the grid errors: the differences to grids with half the nodes and steps."""
    methods = [risk.group.method.coarser() for risk in found]
    groups = [
        replace(risk.group, method=method)
        for risk, method in zip(found, methods, strict=True)
        if method is not None
    ]
    coarse = iter(sweep(groups)[0])

    def of_grid(risk: GroupRisk) -> GroupRisk:
        figures = next(coarse).figures
        errors = {name: np.abs(column - figures[name]) for name, column in risk.figures.items()}
        return replace(risk, errors=errors)

    pairs = zip(found, methods, strict=True)
    return [risk if method is None else of_grid(risk) for risk, method in pairs]
