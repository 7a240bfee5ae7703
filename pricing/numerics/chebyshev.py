"""Chebyshev interpolation as a matrix product, smooth everywhere."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxtape


@functools.cache
def chebyshev_points(count: int) -> np.ndarray:
    """Return the zeros of T_count, in (-1, 1), ascending."""
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


@functools.cache
def _to_coefficients(count: int) -> np.ndarray:
    """Return the matrix [coefficients, values] of c_j = (2 - [j = 0]) / count * sum_k T_j(x_k) f(x_k)."""
    angles = np.arccos(chebyshev_points(count))
    matrix = 2.0 / count * np.cos(np.arange(count)[:, None] * angles[None, :])
    matrix[0] *= 0.5
    return matrix


@functools.cache
def _to_derivative(count: int) -> np.ndarray:
    """Return the matrix from the coefficients of a series to those of its derivative."""
    row, column = np.arange(count)[:, None], np.arange(count)[None, :]
    matrix = np.where((column > row) & ((column - row) % 2 == 1), 2.0 * column, 0.0)
    matrix[0] *= 0.5
    return matrix


def interpolate(
    values: Float[Array, " values"], x: Float[Array, " points"]
) -> Float[Array, " points"]:
    """Return the polynomial through `values` on `chebyshev_points`, at x in [-1, 1]."""
    chex.assert_rank([values, x], 1)
    basis = polynomials(jax.lax.stop_gradient(x), values.size)
    return _series(coefficients(values[:, None]), x, basis)[:, 0]


@jax.custom_jvp
def _series(
    series: Float[Array, "orders columns"],
    x: Float[Array, " points"],
    basis: Float[Array, "orders points"],
) -> Float[Array, "points columns"]:
    """Return sum_j c_j T_j(x) for columns c, given `basis`, T_j(x), which all derivatives share."""
    del x
    return basis.T @ series


@_series.defjvp
def _series_jvp(primals, tangents):
    (series, x, basis), (moved, dx, _) = primals, tangents
    slopes = jnp.asarray(_to_derivative(len(series)), series.dtype) @ series
    both = jnp.concatenate([series, slopes], axis=1)
    out, slope = jnp.split(_series(both, x, basis), 2, axis=1)
    # apart from the sums above: linear in the tangents, hence transposable
    return out, _series(moved, x, basis) + slope * dx[:, None]


def coefficients(
    values: Float[Array, "*dates values columns"],
) -> Float[Array, "*dates values columns"]:
    """Return the coefficients c of sum_j c_j T_j through columns of values on `chebyshev_points`."""
    return jnp.asarray(_to_coefficients(values.shape[-2]), values.dtype) @ values


@jaxtape.no_inline(static_argnames="count")
def polynomials(x: Float[Array, " points"], count: int) -> Float[Array, "count points"]:
    """Return T_0 ... T_{count-1} at x in [-1, 1], doubling by T_{m+j} = 2 T_m T_j - T_{m-j}."""
    orders = jnp.stack([jnp.ones_like(x), x])
    while len(orders) < count:
        later = 2.0 * orders[-1:] * orders[1:] - orders[-2::-1]
        orders = jnp.concatenate([orders, later])
    return orders[:count]
