"""Cholesky factors of covariances that may be singular."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .safe_math import divisor, safe_sqrt


def semidefinite_cholesky(covariance: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Return the lower triangular L with L L' = C; a column is zero if its residual variance is 0.

    For few coordinates: the loop is unrolled. Derivatives are zero instead of infinite where a pivot vanishes.
    """
    n = covariance.shape[-1]
    zero = jnp.zeros_like(covariance[..., 0, 0])
    rows: list[list[Array]] = [[zero] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            known = [rows[i][k] * rows[j][k] for k in range(j)]
            left = covariance[..., i, j] - sum(known, start=zero)
            pivot = rows[j][j]
            rows[i][j] = (
                safe_sqrt(left) if i == j else jnp.where(pivot > 0.0, left / divisor(pivot), 0.0)
            )
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
