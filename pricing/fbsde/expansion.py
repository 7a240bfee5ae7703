"""How functions of the state move over a step, by the stochastic Taylor expansion."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import Problem, Real

States = Float[Array, "dim paths"]
Functions = Float[Array, "functions paths"]
Features = Float[Array, "features paths"]


def expanded(
    problem: Problem,
    features: Callable[[States], Features],
    t: Real,
    x: States,
    dw: States,
    order: int = 2,
    outer: Callable[[Features], Functions] = lambda features: features,
    is_linear: bool = True,
) -> tuple[Functions, Functions]:
    """f(x), and what f(X) - f(x) is over a step but for its drift: of mean zero, whatever f.

    D f, D the derivative along s dW; of order 2, + (D^2 f - dt sum_k D_k^2 f) / 2, D_k along the k-th column
    of s. Kloeden, Platen (1992), section 5.5. f = outer(features); is_linear: outer'' = 0. Otherwise, with
    F the features,

        D^2 f = outer' D^2 F + outer''(D F, D F)

    where outer'' sees each column of s, or, if there are fewer features than columns, the features'
    covariance.
    """

    def along(v: States) -> tuple[Features, Features]:
        """D F and D^2 F, D along s v."""
        field = lambda x: jax.vmap(lambda x, v: problem.diffused(t, x, v), -1, -1)(x, v)  # noqa: E731
        once = lambda x: jax.jvp(features, (x,), (field(x),))[1]  # noqa: E731
        return jax.jvp(once, (x,), (field(x),))

    now = features(x)
    first, second = along(dw)
    if order == 1:
        return jax.jvp(outer, (now,), (first,))

    by_covariance = len(now) < problem.dim

    def bent(v: Features) -> Array:
        """What is to be summed over columns for outer''."""
        if is_linear:
            return jnp.zeros((0, 0), v.dtype)
        return v[:, None] * v[None] if by_covariance else _along_twice(outer, now, v, v)

    def add(total, axis):
        column, its_second = along(jnp.broadcast_to(axis[:, None], x.shape))
        return jax.tree.map(jnp.add, total, (its_second, bent(column))), None

    zero = jax.tree.map(jnp.zeros_like, (second, bent(first)))
    (spread, bends), _ = jax.lax.scan(add, zero, jnp.eye(problem.dim, dtype=x.dtype))
    apart = 0.5 * (second - problem.dt * spread)
    value, moves = jax.jvp(outer, (now,), (first + apart,))
    bends = 0.5 * (bent(first) - problem.dt * bends)
    if is_linear:
        return value, moves
    return value, moves + (_contracted(outer, now, bends) if by_covariance else bends)


def _along_twice(outer: Callable, now: Features, v: Features, w: Features) -> Functions:
    """outer''(v, w)."""
    return jax.jvp(lambda f: jax.jvp(outer, (f,), (v,))[1], (now,), (w,))[1]


def _contracted(outer: Callable, now: Features, matrix: Array) -> Functions:
    """The sum of outer''_ij matrix_ij: [features, features, paths]."""
    axes = jnp.broadcast_to(jnp.eye(len(now), dtype=now.dtype)[..., None], matrix.shape)
    parts = (_along_twice(outer, now, axis, row) for axis, row in zip(axes, matrix, strict=True))
    return jnp.asarray(sum(parts))
