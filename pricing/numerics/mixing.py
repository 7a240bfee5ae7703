"""Products of a small matrix with the noise of many paths, and their inverses.

For a few motions, calling a threaded library would take longer than the product.
"""

import functools
import operator

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

Matrix = Float[Array, "motions motions"]

_FEW = 8


def mixed(
    matrix: Matrix, motions: Float[Array, "*batch motions paths"]
) -> Float[Array, "*batch motions paths"]:
    """Return matrix @ motions, for every path."""
    if len(matrix) > _FEW:
        return jnp.matmul(matrix, motions)
    columns = jnp.expand_dims(matrix.T[..., None], tuple(range(1, motions.ndim - 1)))
    parts = (column * motions[..., i, None, :] for i, column in enumerate(columns))
    return functools.reduce(operator.add, parts)


def unmixed(
    factor: Matrix, motions: Float[Array, "motions paths"]
) -> Float[Array, "motions paths"]:
    """Return x with factor @ x = motions, for a lower triangular factor."""
    if len(factor) > _FEW:
        return solve_triangular(factor, motions, lower=True)
    rows: list[Array] = []
    for i, motion in enumerate(motions):
        known = (factor[i, j] * row for j, row in enumerate(rows))
        rows.append(functools.reduce(operator.sub, known, motion) / factor[i, i])
    return jnp.stack(rows)
