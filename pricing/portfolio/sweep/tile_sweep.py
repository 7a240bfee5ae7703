"""The derivatives of one tile of trades: the figures of each trade, and the tile's gradient to its model.

Under a deterministic method, one adjoint sweep per trade gives both (`adjoint_sweep`). Trades that share random
paths need one pass over their blocks (`block_sweep`).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from jaxtape import stored_jit

from ...methods import AbstractMethod
from ...models import AbstractModel
from ...results import RESULTS
from ...valuation import mean_and_error
from .adjoint_sweep import adjoint_sweep, are_finite, over_bunches
from .block_sweep import TileRows, block_sweep
from .groups import MeasureArrays, Tile


@stored_jit
def tile_sweep(
    tile: Tile,
    model: AbstractModel,
    method: AbstractMethod,
    vol: AbstractModel,
    rate: AbstractModel,
    *,
    key: PRNGKeyArray,
) -> tuple[MeasureArrays, MeasureArrays, RESULTS, AbstractModel]:
    """Return each measure of every trade's contract, its standard error, and d(value of the tile) / d(model).

    The third result says whether the method can value each contract; figures are NaN where it cannot.

    Vega and rho are the derivatives along the tangents `vol` and `rate` of the model. A measure that the method
    cannot give without bias is left out. A trade with a non-finite figure does not enter the gradient.
    """
    if method.is_random:
        figures, errors, bar = _by_blocks(tile, model, method, key, vol, rate)
    else:
        figures, bar = adjoint_sweep(tile, model, method, vol, rate)
        errors = jax.tree.map(jnp.zeros_like, figures)
    return figures, errors, _results(tile, model, method), bar


brief_tile_sweep = stored_jit(runs_briefly=True)(tile_sweep.__wrapped__)  # pyright: ignore[reportFunctionMemberAccess]
"""`tile_sweep` of a group that is brief."""


@stored_jit
def tile_values(
    tile: Tile, model: AbstractModel, method: AbstractMethod, *, key: PRNGKeyArray
) -> tuple[MeasureArrays, MeasureArrays, RESULTS, AbstractModel]:
    """Return the results of `tile_sweep` without derivatives: the derivative to the model is 0."""

    def of_bunch(products, weights):
        del weights
        alike = method.shared(products, model)

        def of_one(product):
            return mean_and_error(method.samples_given(product, model, alike, key=key), method)

        return jax.vmap(of_one)(products), None

    (values, errors), _ = over_bunches(of_bunch, tile, method)
    still = jax.tree.map(jnp.zeros_like, model)
    return {"value": values}, {"value": errors}, _results(tile, model, method), still


def _results(tile: Tile, model: AbstractModel, method: AbstractMethod) -> RESULTS:
    """Return the result code of the method for every contract."""
    of_each = jax.vmap(jax.vmap(lambda product: method.result(product, model)))
    return jax.tree.map(_in_line, of_each(tile.products))


def _in_line(x: Array) -> Array:
    """Return an array with the axes [rows, trades of a row] flattened to [trades]."""
    return x.reshape(-1, *x.shape[2:])


def _by_blocks(
    tile, model, method, key, vol, rate
) -> tuple[MeasureArrays, MeasureArrays, AbstractModel]:
    """Sweep the blocks of paths, and again without the trades that failed, if any; fits are kept fixed."""
    products, shape = jax.tree.map(_in_line, tile.products), tile.weights.shape
    first = jax.tree.map(lambda x: x[0], products)
    has_gamma = "gamma" in method.second_order(first, model)
    axis = 0 if method.is_fitted else None  # one method per trade, or one for all
    fit = lambda product: method.fitted(product, model, key=key)
    methods = jax.vmap(fit, out_axes=axis)(products)
    as_they_are = jnp.arange(tile.weights.size)

    @jax.jit
    def swept(stands_in, weights):
        rows = stands_in.reshape(shape)
        fine = lambda batch: jax.tree.map(lambda x: x[rows], batch)
        batch = TileRows(fine(products), methods if axis is None else fine(methods), axis, key)
        filled = (tile.count + shape[1] - 1) // shape[1]
        found = block_sweep(batch, weights.reshape(shape), filled, model, vol, rate, has_gamma)
        *figures, bar = found
        return jax.tree.map(_in_line, tuple(figures)), bar

    def sweep(state):
        tries, stands_in, weights, found, _ = state
        figures, bar = swept(stands_in, weights)
        found = jax.tree.map(lambda old, new: jnp.where(tries == 0, new, old), found, figures)
        finite = are_finite(found[0]) & are_finite(found[1])
        # a failed trade would put NaN into the sum: replace it by a good one with weight 0
        stands_in = jnp.where(finite, as_they_are, jnp.argmax(finite))
        bar = jax.tree.map(lambda x: jnp.where(jnp.any(finite), x, 0.0), bar)
        return tries + 1, stands_in, jnp.where(finite, weights, 0.0), found, bar

    def again(state):
        tries, stands_in, *_ = state
        return (tries == 0) | ((tries == 1) & jnp.any(stands_in != as_they_are))

    weights = tile.weights.ravel().astype(model.underlying.dtype)
    shapes = jax.eval_shape(swept, as_they_are, weights)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    *_, (figures, errors), bar = jax.lax.while_loop(
        again, sweep, (0, as_they_are, weights, *nothing)
    )
    return figures, errors, bar
