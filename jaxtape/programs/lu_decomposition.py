"""LU decomposition in plain XLA operations: a TPU's compiler has none in double precision."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

Factors = tuple[
    Float[Array, "*batch rows columns"], Int32[Array, "*batch pivots"], Int32[Array, "*batch rows"]
]
"""L below its unit diagonal, and U; the row exchanged in each step; the permutation of the rows."""


def lu_decomposition(a: Float[Array, "*batch rows columns"]) -> Factors:
    """Return the factors of matrices with partial pivoting, as `jax.lax.linalg.lu` does.

    Gaussian elimination by outer products (Golub and Van Loan, *Matrix Computations*, algorithm 3.4.1).
    """
    batch = a.shape[:-2]
    found = jax.vmap(_of_one)(a.reshape(-1, *a.shape[-2:]))
    lu, pivots, order = (x.reshape(*batch, *x.shape[1:]) for x in found)
    return lu, pivots, order


def _of_one(a: Float[Array, "rows columns"]) -> Factors:
    rows, columns = a.shape
    row, column = lax.iota(jnp.int32, rows), lax.iota(jnp.int32, columns)

    def eliminate(k, state):
        a, pivots, order = state
        sizes = jnp.where(row >= k, jnp.abs(a[:, k]), -jnp.inf)
        largest = lax.argmax(sizes, 0, jnp.int32)
        exchanged = jnp.where(row == k, largest, jnp.where(row == largest, k, row))
        a, order = a[exchanged], order[exchanged]
        pivot = jnp.where(a[k, k] == 0.0, 1.0, a[k, k])  # if it is 0, all below are, too
        shares = jnp.where(row > k, a[:, k] / pivot, 0.0)
        a = a - shares[:, None] * jnp.where(column > k, a[k], 0.0)[None]
        a = a.at[:, k].set(jnp.where(row > k, shares, a[:, k]))
        return a, pivots.at[k].set(largest), order

    count = min(rows, columns)
    return lax.fori_loop(
        jnp.int32(0), jnp.int32(count), eliminate, (a, jnp.zeros(count, jnp.int32), row)
    )
