"""Gaussian elimination without pivoting and without LAPACK, for batches of small matrices."""

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LEAF = 8  # size below which rows are eliminated one by one


def eliminate(matrix: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Return matrix^-1 right by recursive halving, for a matrix that needs no pivoting.

    Diagonally dominant matrices, for example, need none. For a batch most of the work is in matrix products.
    LAPACK routines, as jaxlib 0.10 calls them for a batch, wait for threads of the pool that they run on: two
    at once can deadlock on two cores.
    """
    n = matrix.shape[0]
    chex.assert_shape([matrix, right], [(n, n), (n, None)])
    if n <= LEAF:
        return _one_by_one(matrix, right)
    h = n // 2
    top, low = jnp.split(jnp.concatenate([matrix, right], axis=1), [h])
    found = eliminate(top[:, :h], top[:, h:])
    rest = low[:, h:] - low[:, :h] @ found
    y = eliminate(rest[:, : n - h], rest[:, n - h :])
    return jnp.concatenate([found[:, n - h :] - found[:, : n - h] @ y, y])


def _one_by_one(matrix: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n m"]:
    def without(k, both):
        row = both[k] / both[k, k]
        return (both - both[:, k, None] * row[None, :]).at[k].set(row)

    n = matrix.shape[0]
    return jax.lax.fori_loop(0, n, without, jnp.concatenate([matrix, right], axis=1))[:, n:]
