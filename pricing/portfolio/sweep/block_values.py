"""Values of trades that share random paths, at several spot levels, in one pass over the blocks.

The shared paths, relative to the forward, do not depend on spots. A block's noise is drawn and its paths are
simulated once for all trades of a tile and all spot levels.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from jaxtape import stored_jit

from ...methods import AbstractMethod
from ...models import AbstractModel
from .block_sweep import TileRows
from .groups import Tile

MAX_LEVELS = 8
"""The largest number of spot levels in one pass: programs are compiled for this number."""

Samples = Float[Array, "blocks rows trades samples"]


@stored_jit
def block_values(
    tile: Tile,
    model: AbstractModel,
    method: AbstractMethod,
    levels: Float[Array, "levels ..."],
    count: Integer[Array, ""],
    base: Samples,
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "levels places"], Float[Array, "levels places"], Samples]:
    """Return the mean over paths of each trade's samples less `base`, and its standard error.

    Args:
        tile: The trades.
        model: The model; the levels replace its underlying.
        method: A random method.
        levels: `MAX_LEVELS` levels of the underlying; those beyond `count` are ignored.
        count: The number of levels to compute; results at the others are 0.
        base: Samples to subtract, path by path: 0, or samples that an earlier call returned.
        key: The seed.

    Returns:
        Means and standard errors at each level for every place of the tile, and the samples at the first level.
    """
    rows, trades = tile.weights.shape
    filled = (tile.count + trades - 1) // trades
    zero = jnp.zeros((), model.underlying.dtype)
    at_level = lambda place: model.shifted(underlying=levels[place] - model.underlying)

    def batch_of(methods: PyTree) -> TileRows:
        """Return the trades with their methods: one for each trade if it is fitted, else one for all."""
        if methods is None:
            return TileRows(tile.products, method, None, key)
        return TileRows(tile.products, methods, 0, key)

    def before(place: Array) -> tuple[PyTree, PyTree]:
        """Return the shared values of all blocks at a level: fitted methods, and setups [rows, trades]."""
        at, methods = at_level(place), None
        if method.is_fitted:
            fit = lambda product: method.fitted(product, at, key=key)
            methods = jax.vmap(jax.vmap(fit))(tile.products)
        batch = batch_of(methods)
        return methods, _mapped(lambda row: batch.row(row).setup(at, zero), filled, rows)

    alike = _mapped(before, count, MAX_LEVELS)
    at_place = lambda place: jax.tree.map(lambda x: x[place], alike)
    methods, setup = at_place(0)
    first = batch_of(methods)

    def of_block(index: Array) -> tuple[Array, Array, Array]:
        paths = first.paths(setup, model, zero, index)

        def of_level(place: Array) -> Array:
            methods, shared = at_place(place)
            batch = batch_of(methods)

            def of_row(row: Array) -> Array:
                own = jax.tree.map(lambda x: x[row], shared)
                return batch.row(row).samples(own, paths, at_level(place), zero)

            return _mapped(of_row, filled, rows)

        found = _mapped(of_level, count, MAX_LEVELS)
        differences = found - base[index][None]
        mean = jnp.mean(differences, axis=-1)
        return mean, jnp.sum((differences - mean[..., None]) ** 2, axis=-1), found[0]

    means, squares, samples = first.methods.over_blocks(of_block)
    mean, size = jnp.mean(means, axis=0), samples.shape[-1]
    number = size * means.shape[0]
    total = jnp.sum(squares + size * (means - mean[None]) ** 2, axis=0)
    error = jnp.sqrt(total / (number - 1) / number)
    return mean.reshape(MAX_LEVELS, -1), error.reshape(MAX_LEVELS, -1), samples


def no_samples(
    tile: Tile, model: AbstractModel, method: AbstractMethod, key: PRNGKeyArray
) -> Samples:
    """Return zero samples, for the first call of `block_values`."""
    shapes = jax.eval_shape(lambda: _one_block(tile, model, method, key))
    blocks = shapes.shape[0]
    return jnp.zeros((blocks, *tile.weights.shape, shapes.shape[-1]), shapes.dtype)


def _one_block(tile, model, method, key) -> Array:
    """Return the samples of the first trade, [blocks, samples]."""
    product = jax.tree.map(lambda x: jnp.asarray(x)[0, 0], tile.products)
    own = method.fitted(product, model, key=key)
    setup = own.setup(product, model, key=key)

    def of_block(index: Array) -> Array:
        paths = own.paths(product, model, setup, index, key=key)
        return own.block_samples(product, model, setup, paths, key=key)

    return own.over_blocks(of_block)


def _mapped(function: Callable[[Array], PyTree], count: Array, size: int) -> PyTree:
    """Return `function` of 0, 1, ..., `count` - 1, stacked and padded with 0 to `size`."""
    shapes = jax.eval_shape(function, jnp.zeros((), jnp.int32))
    room = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), shapes)

    def step(place: Array, found: PyTree) -> PyTree:
        return jax.tree.map(lambda rows, x: rows.at[place].set(x), found, function(place))

    return jax.lax.fori_loop(0, count, step, room)
