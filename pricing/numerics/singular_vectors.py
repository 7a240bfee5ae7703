"""Singular values of batches of matrices with few columns, without LAPACK (see `elimination.eliminate`)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Square = Float[Array, "n n"]

_MOST_SWEEPS = 30  # a dozen is typical


class SingularVectors(NamedTuple):
    """The right singular vectors of J, [rows, n]: J'J = vectors diag(values^2) vectors', values descending."""

    values: Float[Array, " n"]
    vectors: Square


def singular_vectors(matrix: Float[Array, "rows n"]) -> SingularVectors:
    """Rotate pairs of columns until all are orthogonal: one-sided Jacobi (Hestenes 1958) on R of J = Q R.

    Pairs are scheduled as in a round-robin tournament: in n - 1 rounds of n / 2 pairs, all columns meet once
    and return to their places. An odd n gets a column of zeros.
    """
    n = matrix.shape[1]
    columns = _triangular(matrix)
    whole = jnp.concatenate([columns, jnp.eye(n, dtype=matrix.dtype)])
    whole = jnp.pad(whole, ((0, 0), (0, n % 2)))
    half = whole.shape[1] // 2
    eps, tiny = jnp.finfo(matrix.dtype).eps, jnp.finfo(matrix.dtype).tiny
    nothing = (eps * jnp.max(jnp.abs(columns))) ** 2

    def round_of(_, state):
        whole, most = state
        p, q = whole[:, :half], whole[:, half:]
        alpha, beta, gamma = (jnp.sum(x[:n] * y[:n], axis=0) for x, y in ((p, p), (q, q), (p, q)))
        overlap = jnp.abs(gamma) / jnp.sqrt(jnp.maximum(alpha * beta, tiny))
        turns = jnp.abs(gamma) > nothing
        zeta = (beta - alpha) / jnp.where(turns, 2.0 * gamma, 1.0)
        sign = jnp.where(zeta < 0.0, -1.0, 1.0)
        tangent = jnp.where(turns, sign / (jnp.abs(zeta) + jnp.sqrt(1.0 + zeta**2)), 0.0)
        cosine = 1.0 / jnp.sqrt(1.0 + tangent**2)
        cosine, tangent = cosine[None], tangent[None]
        p, q = cosine * (p - tangent * q), cosine * (q + tangent * p)
        order = [p[:, :1], q[:, :1], p[:, 1:-1], q[:, 1:], p[:, -1:]] if half > 1 else [p, q]
        whole = jnp.concatenate(order, axis=1)
        return whole, jnp.maximum(most, jnp.max(jnp.where(turns, overlap, 0.0)))

    def sweep(state):
        count, whole, _ = state
        none = jnp.zeros((), matrix.dtype)
        return count + 1, *jax.lax.fori_loop(0, 2 * half - 1, round_of, (whole, none))

    def goes_on(state):
        count, _, most = state
        return (count < _MOST_SWEEPS) & (most > n * eps)

    start = jnp.zeros((), int), whole, jnp.full((), jnp.inf, matrix.dtype)
    _, whole, _ = jax.lax.while_loop(goes_on, sweep, start)
    values = jnp.sqrt(jnp.sum(whole[:n, :n] ** 2, axis=0))
    order = jnp.argsort(-values)
    return SingularVectors(values[order], whole[n:, :n][:, order])


def _triangular(matrix: Float[Array, "rows n"]) -> Square:
    """Return R of J = Q R, by Gram-Schmidt with reorthogonalization."""
    n = matrix.shape[1]

    def step(k, state):
        q, r = state
        column = matrix[:, k]
        length = jnp.linalg.norm(column)
        first = jnp.sum(q * column[:, None], axis=0)
        column = column - jnp.sum(q * first[None], axis=1)
        second = jnp.sum(q * column[:, None], axis=0)
        column = column - jnp.sum(q * second[None], axis=1)
        left = jnp.linalg.norm(column)
        is_new = left > jnp.finfo(length.dtype).eps * length
        unit = jnp.where(is_new, column / jnp.where(is_new, left, 1.0), 0.0)
        return q.at[:, k].set(unit), r.at[:, k].set((first + second).at[k].set(left))

    zeros = jnp.zeros((n, n), matrix.dtype)
    return jax.lax.fori_loop(0, n, step, (jnp.zeros_like(matrix), zeros))[1]
