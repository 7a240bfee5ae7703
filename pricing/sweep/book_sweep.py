"""A sweep over a book: every tile's figures and gradient, put together in the order of the groups."""

import functools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..progress import Progress
from .fitted_models import FittedModels, Models
from .groups import Group, Tile
from .memory import Memory
from .trade_risk import GroupRisk
from .workers import run_tiles


def sweep_book(
    groups: Sequence[Group],
    fitted: FittedModels,
    *,
    key: PRNGKeyArray,
    budget: int,
    memory: Memory,
    progress: Progress | None,
) -> tuple[list[GroupRisk], Models]:
    """Return what is found of each group, and the gradient of the book's value in its models.

    A tile of which the memory knows all is not computed again.
    """
    total, done, found = sum(len(group.trades) for group in groups), 0, []
    gradient = jax.tree.map(jnp.zeros_like, fitted.models)

    def sweep(group: Group, tile: Tile):
        seen = (tree and tree[group.underlyings] for tree in fitted[:3])
        computed = functools.partial(fitted.sweep, group, tile, key=key)
        return memory.recall(computed, (tile, group.method, *seen, key))

    for group, results in run_tiles(groups, sweep, budget):
        names, count, tiles = group.underlyings, len(group.trades), []
        for result in results:
            *of_trades, of_tile = result.result()
            chex.assert_trees_all_equal_shapes_and_dtypes(gradient[names], of_tile)
            gradient[names] = jax.tree.map(jnp.add, gradient[names], of_tile)
            tiles.append(of_trades)
            if progress is not None:
                in_group = min(len(tiles) * group.tile_size, count)
                progress(done + in_group, total, "")
        done += count
        columns = jax.tree.map(lambda *parts, n=count: np.concatenate(parts)[:n], *tiles)
        found.append(GroupRisk(group, *columns))
    return found, gradient
