"""Functions by their values on Chebyshev points: interpolation as a matrix product, smooth everywhere."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@functools.cache
def chebyshev_points(count: int) -> np.ndarray:
    """The zeros of T_count, in (-1, 1), ascending."""
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


@functools.cache
def _to_coefficients(count: int) -> np.ndarray:
    """[coefficients, values]: c_j = (2 - [j = 0]) / count * sum_k T_j(x_k) f(x_k)."""
    angles = np.arccos(chebyshev_points(count))
    matrix = 2.0 / count * np.cos(np.arange(count)[:, None] * angles[None, :])
    matrix[0] *= 0.5
    return matrix


def interpolate(values: Float[Array, " values"], x: Float[Array, " points"]) -> Float[Array, " points"]:
    """The polynomial through `values` on `chebyshev_points`, at x in [-1, 1]."""
    matrix = jnp.asarray(_to_coefficients(values.size), values.dtype)
    return (matrix @ values) @ _basis(x, values.size)


def _basis(x: Float[Array, " points"], count: int) -> Float[Array, "count points"]:
    """T_0 ... T_{count - 1}, doubling what is there by T_{m+j} = 2 T_m T_j - T_{m-j}."""
    rows = jnp.stack([jnp.ones_like(x), x, 2.0 * x * x - 1.0])
    while rows.shape[0] < count:
        m = rows.shape[0] - 1
        rows = jnp.concatenate([rows, 2.0 * rows[m][None] * rows[1:] - rows[:m][::-1]])
    return rows[:count]
