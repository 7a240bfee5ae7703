"""The derivatives of one tile of trades: the figures of each trade, and the tile's gradient to its model.

A deterministic method takes one reverse sweep a trade, which gives both. Trades that share a set of paths take
one forward pass in a few directions, and one reverse sweep of the tile's total, so that what they share is
differentiated once.
"""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from jaxtape import stored_jit

from ..methods import AbstractMethod, Fitted
from ..methods.method import held
from ..models import AbstractModel
from ..results import RESULTS
from ..sensitivities import means_and_errors, sensitivities, underlying_directions, with_gamma
from ..valuation import mean_and_error
from .groups import Tile

Figures = dict[str, Array]
MEASURES = ("value", "delta", "gamma", "vega", "theta", "rho")


@stored_jit
def tile_sweep(
    tile: Tile,
    model: AbstractModel,
    method: AbstractMethod,
    vol: AbstractModel,
    rate: AbstractModel,
    *,
    key: PRNGKeyArray,
) -> tuple[Figures, Figures, RESULTS, AbstractModel]:
    """Return each measure of every trade's contract, its standard error, and d(value of the tile) / d(model).

    Before the last is whether the method reaches each contract: one that it does not has figures that are NaN.

    Vega and rho are the derivatives along the tangents `vol` and `rate` of the model. A measure that the method
    cannot give without bias is left out. A trade with a figure that is not finite does not enter the gradient.
    """
    sweep = _forward_then_reverse if method.is_random else _reverse
    figures, errors, bar = sweep(tile, model, method, key, vol, rate)
    return figures, errors, _results(tile, model, method), bar


@stored_jit
def tile_values(
    tile: Tile, model: AbstractModel, method: AbstractMethod, *, key: PRNGKeyArray
) -> tuple[Figures, Figures, RESULTS, AbstractModel]:
    """Return what `tile_sweep` does, of values alone, with 0 for the derivative to the model."""

    def of_one(product):
        return mean_and_error(method.samples(product, model, key=key), method)

    values, errors = jax.vmap(of_one)(tile.products)
    still = jax.tree.map(jnp.zeros_like, model)
    return {"value": values}, {"value": errors}, _results(tile, model, method), still


def _results(tile: Tile, model: AbstractModel, method: AbstractMethod) -> RESULTS:
    """Return, of every trade, whether the method reaches its contract."""
    return jax.vmap(lambda product: method.result(product, model))(tile.products)


def _reverse(tile, model, method, key, vol, rate) -> tuple[Figures, Figures, AbstractModel]:
    """Take one adjoint sweep a trade; its contractions with directions are Greeks."""
    spots = underlying_directions(model)

    def of_one(product):
        def value(model, age):
            mean, gamma = with_gamma(product.rolled(age), model, method, key)
            return mean, gamma

        zero = jnp.zeros((), model.underlying.dtype)
        sweep = jax.value_and_grad(value, argnums=(0, 1), has_aux=True)
        (value, gamma), (bar, theta) = sweep(model, zero)
        delta = jnp.stack([_contracted(bar, spot) for spot in spots])
        figures = {
            "value": value,
            "delta": delta.reshape(model.underlying.shape),
            "gamma": gamma,
            "vega": _contracted(bar, vol),
            "theta": theta,
            "rho": _contracted(bar, rate),
        }
        return {name: figure for name, figure in figures.items() if figure is not None}, bar

    figures, bars = jax.vmap(of_one)(tile.products)
    finite = _finite(figures)

    def weighted_sum(bar):
        kept = jnp.where(finite.reshape(-1, *(1,) * (bar.ndim - 1)), bar, 0.0)
        return jnp.tensordot(tile.weights.astype(bar.dtype), kept, 1)

    errors = jax.tree.map(jnp.zeros_like, figures)
    return figures, errors, jax.tree.map(weighted_sum, bars)


def _forward_then_reverse(tile, model, method, key, vol, rate):
    """Take every trade's Greeks forward, then one adjoint sweep of their sum; what is fitted is held."""
    axis = 0 if isinstance(method, Fitted) else None  # a method for each trade, or one for all
    fit = lambda product: held(method, product, model, key=key)  # noqa: E731
    methods = jax.vmap(fit, out_axes=axis)(tile.products)

    @functools.partial(jax.vmap, in_axes=(0, axis))
    def of_each(product, method):
        samples = sensitivities(product, model, method, key, vol, rate)
        return means_and_errors(samples, method)

    means, errors = (
        {name: getattr(found, name) for name in MEASURES if getattr(found, name) is not None}
        for found in of_each(tile.products, methods)
    )
    finite = _finite(means) & _finite(errors)
    # in place of a trade that failed the first that did not, with no weight: its NaN would reach the sum
    stands_in = jnp.where(finite, jnp.arange(finite.size), jnp.argmax(finite))
    fine = lambda batch: jax.tree.map(lambda x: x[stands_in], batch)  # noqa: E731
    products, methods = fine(tile.products), methods if axis is None else fine(methods)
    weights = jnp.where(finite, tile.weights, 0.0)

    def total(model):
        def value(product, method):
            return mean_and_error(method.samples(product, model, key=key), method)[0]

        values = jax.vmap(value, in_axes=(0, axis))(products, methods)
        return weights.astype(values.dtype) @ values

    bar = jax.grad(total)(model)
    return means, errors, jax.tree.map(lambda x: jnp.where(jnp.any(finite), x, 0.0), bar)


def _finite(figures: Figures) -> Bool[Array, " trades"]:
    """Return the trades all of whose figures are finite."""
    rows = [jnp.isfinite(figure).reshape(figure.shape[0], -1) for figure in figures.values()]
    return jnp.all(jnp.concatenate(rows, axis=1), axis=1)


def _contracted(bar: AbstractModel, tangent: AbstractModel) -> Array:
    """Return <bar, tangent>, the derivative along the tangent."""
    chex.assert_trees_all_equal_shapes(bar, tangent)
    add: Callable = jnp.add
    return functools.reduce(add, map(jnp.vdot, jax.tree.leaves(bar), jax.tree.leaves(tangent)))
