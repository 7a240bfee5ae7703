"""Chebyshev interpolation as a matrix product, smooth everywhere."""

import functools
import math

import chex
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


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


def interpolate(
    values: Float[Array, " values"], x: Float[Array, " points"]
) -> Float[Array, " points"]:
    """Return the polynomial through `values` on `chebyshev_points`, at x in [-1, 1].

    With j = i b + r, 0 <= r < b: T_j = T_ib T_r - (1 - x^2) U_{ib-1} U_{r-1}, so b + count / b polynomials
    suffice.
    """
    chex.assert_rank([values, x], 1)
    count, block = values.size, math.isqrt(values.size)
    blocks = -(-count // block)
    matrix = jnp.asarray(_to_coefficients(count), values.dtype)
    coefficients = jnp.pad(matrix @ values, (0, blocks * block - count)).reshape(blocks, block)
    first, second = _both_kinds(x, block)
    coarse_first, coarse_second = _both_kinds(first[-1], blocks)  # T_ib = T_i(T_b)
    even = coarse_first[:-1] * (coefficients @ first[:-1])
    odd = coarse_second[:-1] * (coefficients @ second[:-1])
    return jnp.sum(even, axis=0) - (1.0 - x * x) * second[-1] * jnp.sum(odd, axis=0)


def _both_kinds(
    x: Float[Array, " points"], count: int
) -> tuple[Float[Array, "orders points"], Float[Array, "orders points"]]:
    """Return T_0 ... T_count and U_{-1} ... U_{count-1}, the polynomials of the first and the second kind."""
    one, none = jnp.ones_like(x), jnp.zeros_like(x)
    orders, twice = [jnp.stack([one, none]), jnp.stack([x, one])], jnp.stack([2.0 * x, 2.0 * x])
    while len(orders) <= count:
        orders.append(twice * orders[-1] - orders[-2])
    first, second = jnp.stack(orders[: count + 1], axis=1)
    return first, second


def coefficients(
    values: Float[Array, "*dates values columns"],
) -> Float[Array, "*dates values columns"]:
    """Return the coefficients c of sum_j c_j T_j through columns of values on `chebyshev_points`."""
    return jnp.asarray(_to_coefficients(values.shape[-2]), values.dtype) @ values


def polynomials(x: Float[Array, " points"], count: int) -> Float[Array, "count points"]:
    """Return T_0 ... T_{count-1} at x in [-1, 1], doubling by T_{m+j} = 2 T_m T_j - T_{m-j}."""
    orders = jnp.stack([jnp.ones_like(x), x])
    while len(orders) < count:
        later = 2.0 * orders[-1:] * orders[1:] - orders[-2::-1]
        orders = jnp.concatenate([orders, later])
    return orders[:count]
