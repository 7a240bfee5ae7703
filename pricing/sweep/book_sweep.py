"""A sweep over a book: every tile's figures and gradient, put together in the order of the groups."""

import functools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..progress import Progress
from .fitted_models import FittedModels, Models
from .groups import Group, Tile
from .memory import Memory
from .trade_risk import Found, figures_of, reasons_of
from .workers import run_tiles


def sweep_book(
    groups: Sequence[Group],
    fitted: FittedModels,
    *,
    key: PRNGKeyArray,
    budget: int,
    memory: Memory,
    progress: Progress | None,
) -> tuple[Found, Models]:
    """Return what is found of each trade, by id, and the gradient of the book's value in its models.

    A tile of which the memory knows all is not computed again.
    """
    total, found = sum(len(group.trades) for group in groups), {}
    gradient = jax.tree.map(jnp.zeros_like, fitted.models)

    def sweep(group: Group, tile: Tile):
        seen = (tree and tree[group.underlyings] for tree in fitted[:3])
        computed = functools.partial(fitted.sweep, group, tile, key=key)
        return memory.recall(computed, (tile, group.method, *seen, key))

    run = run_tiles(groups, sweep, budget)
    for group, results in run:
        names, rest = group.underlyings, group.trades
        for result in results:
            figures, errors, refusals, of_tile = result.result()
            chex.assert_trees_all_equal_shapes_and_dtypes(gradient[names], of_tile)
            gradient[names] = jax.tree.map(jnp.add, gradient[names], of_tile)
            trades, rest = rest[: group.tile_size], rest[group.tile_size :]
            columns = (figures_of(each, names, len(trades)) for each in (figures, errors))
            reasons = reasons_of(refusals, len(trades))
            for trade, *row in zip(trades, *columns, reasons, strict=True):
                found[trade.id] = (group, *row)
            if progress is not None:
                progress(len(found), total, "")
    return found, gradient
