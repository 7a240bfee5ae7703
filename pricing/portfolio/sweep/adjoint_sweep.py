"""The derivatives of trades under a deterministic method: one adjoint sweep for each trade gives all of them.

Values that similar trades share, such as the characteristic function at an expiry, are computed once per bunch
of trades. They are linearized forward along the directions of the Greeks, and in reverse for the sum of the
trades.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ...fields import rolled
from ...methods import AbstractMethod
from ...models import AbstractModel
from ...products import AbstractProduct
from ...sensitivities import directions, with_gamma
from .groups import MeasureArrays, Tile, group_size


def adjoint_sweep(
    tile: Tile,
    model: AbstractModel,
    method: AbstractMethod,
    vol: AbstractModel,
    rate: AbstractModel,
) -> tuple[MeasureArrays, AbstractModel]:
    """Return the measures of every trade, [trades], and d(weights . values) / d(model).

    A trade with a non-finite figure does not enter the gradient.
    """
    zero, along = jnp.zeros((), model.underlying.dtype), directions(model, vol, rate)

    def of_bunch(products: AbstractProduct, weights: Array) -> tuple[MeasureArrays, AbstractModel]:
        def before(model, age):
            return rolled(method, age).shared(products.rolled(age), model)

        alike, moves, still = jax.linearize(before, model, zero, has_aux=True)
        tangents = jax.vmap(moves)(*along), *along

        def of_one(product: AbstractProduct):
            def value(alike, model, age):
                aged, later = product.rolled(age), rolled(method, age)
                of_model = lambda at: later.samples_given(aged, at, (alike, still))
                return with_gamma(of_model, product, model, method)

            found, pullback, gamma = jax.vjp(value, alike, model, zero, has_aux=True)
            bars = pullback(jnp.ones_like(found))
            slopes = jax.vmap(lambda *dots: _contracted(bars, dots))(*tangents)
            return _named(found, slopes, gamma, model), bars[:2]

        figures, bars = jax.vmap(of_one)(products)
        finite = are_finite(figures)

        def weighted_sum(bar):
            kept = jnp.where(finite.reshape(-1, *(1,) * (bar.ndim - 1)), bar, 0.0)
            return jnp.tensordot(weights.astype(bar.dtype), kept, 1)

        alike_bar, bar = jax.tree.map(weighted_sum, bars)
        through, _ = jax.linear_transpose(moves, model, zero)(alike_bar)
        through = jax.tree.map(lambda x: jnp.where(jnp.any(finite), x, 0.0), through)
        return figures, jax.tree.map(jnp.add, bar, through)

    return over_bunches(of_bunch, tile, method)


def over_bunches(
    function: Callable[[AbstractProduct, Array], tuple[PyTree, PyTree]],
    tile: Tile,
    method: AbstractMethod,
) -> tuple[Any, Any]:
    """Return the results of a function of bunches of trades and their weights: by trade, [trades], and summed.

    `function` returns a pair: results for each trade, and results to sum. The rows of the tile run one after
    another, the bunches of a row in parallel.
    """
    rows, trades = tile.weights.shape
    size = group_size(method, trades)
    split = lambda x: x.reshape(rows, -1, size, *x.shape[2:])
    bunches = jax.tree.map(split, (tile.products, tile.weights))
    of_each, of_all = jax.lax.map(lambda row: jax.vmap(function)(*row), bunches)
    of_each = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), of_each)
    return of_each, jax.tree.map(lambda x: jnp.sum(x, axis=(0, 1)), of_all)


def are_finite(figures: MeasureArrays) -> Bool[Array, " trades"]:
    """Return the mask of trades whose figures are all finite."""
    rows = [jnp.isfinite(figure).reshape(figure.shape[0], -1) for figure in figures.values()]
    return jnp.all(jnp.concatenate(rows, axis=1), axis=1)


def _named(value: Array, slopes: Array, gamma: Array | None, model: AbstractModel) -> MeasureArrays:
    """Return the named figures of a trade from slopes in the order of `directions`."""
    *spots, vega, rho, theta = slopes
    figures = {
        "value": value,
        "delta": jnp.stack(spots).reshape(model.underlying.shape),
        "gamma": gamma,
        "vega": vega,
        "theta": theta,
        "rho": rho,
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _contracted(bars: PyTree, dots: PyTree) -> Array:
    """Return <bars, dots>, the derivative along the tangents `dots`; leaves may be complex."""
    pairs = zip(jax.tree.leaves(bars), jax.tree.leaves(dots), strict=True)
    parts = [jnp.real(jnp.dot(bar.ravel(), dot.ravel())) for bar, dot in pairs]
    return functools.reduce(jnp.add, parts)
