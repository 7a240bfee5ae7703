"""Weighted linear least squares with many more paths than functions, without LAPACK."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_RIDGE = 1e-9


def least_squares(
    columns: Float[Array, "functions paths"],
    target: Float[Array, " paths"],
    weights: Float[Array, " paths"] | None = None,
) -> Float[Array, " functions"]:
    """Return c that minimizes mean(weights (target - c . columns)^2) + ridge |c|^2, refined once.

    The columns should be of order one: the ridge (1e-9, in float32 2e-6) then only matters in directions that
    the paths do not determine, and the refinement, a fit to the residual, removes its bias elsewhere.
    """
    chex.assert_shape(target, columns.shape[1:])
    weighted = columns if weights is None else columns * weights[None, :]
    count = target.size if weights is None else jnp.maximum(jnp.sum(weights), 1.0)
    ridge = max(_RIDGE, 16.0 * float(np.finfo(target.dtype).eps))
    gram = (weighted @ columns.T) / count
    inverse = _inverse(gram + ridge * jnp.eye(len(gram), dtype=gram.dtype))
    first = inverse @ (weighted @ target / count)
    rest = target - first @ columns
    return first + inverse @ (weighted @ rest / count)


def _inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return the inverse of a positive definite matrix, by elimination without pivoting.

    It is a loop of small steps, because LAPACK's batch routines, as jaxlib 0.10 calls them, wait for threads of
    the pool that they run on.
    """
    n = len(matrix)

    def without(k, both):
        row = both[k] / both[k, k]
        return both - both[:, k].at[k].add(-1.0)[:, None] * row[None, :]

    both = jnp.concatenate([matrix, jnp.eye(n, dtype=matrix.dtype)], axis=1)
    return jax.lax.fori_loop(0, n, without, both)[:, n:]
