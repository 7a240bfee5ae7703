"""A small matrix and the motions of many paths: products, and their inverse.

A library takes longer to be called, on threads of its own, than a few motions take.
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
