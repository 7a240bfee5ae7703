"""How functions of the state move over a step, by the stochastic Taylor expansion."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import Problem, Real

States = Float[Array, "dim paths"]
Functions = Float[Array, "functions paths"]
Features = Float[Array, "features paths"]


class Composed(NamedTuple):
    """f = outer(features), outer smooth; is_linear: outer'' = 0."""

    features: Callable[[States], Features]
    outer: Callable[[Features], Functions] = lambda features: features
    is_linear: bool = True


def expanded(
    problem: Problem, composed: Sequence[Composed], t: Real, x: States, dw: States, order: int = 2
) -> tuple[Functions, Functions]:
    """All f(x), and what f(X) - f(x) is over a step but for its drift: of mean zero, whatever f.

    D f, D the derivative along s dW; of order 2, + (D^2 f - dt sum_k D_k^2 f) / 2, D_k along the k-th column
    of s. Kloeden, Platen (1992), section 5.5. With F the features,

        D^2 f = outer' D^2 F + outer''(D F, D F)

    where outer'' sees each column of s, or, if there are fewer features than columns, the features'
    covariance.
    """

    def all_features(x: States) -> list[Array]:
        return [f.features(x) for f in composed]

    def along(field: Callable[[States], States]) -> tuple[list[Array], list[Array]]:
        """D F and D^2 F."""
        once = lambda x: jax.jvp(all_features, (x,), (field(x),))[1]  # noqa: E731
        return jax.jvp(once, (x,), (field(x),))

    each = partial(zip, composed, strict=True)
    noise = jax.vmap(lambda x, dw: problem.diffused(t, x, dw), -1, -1)
    now, (first, second) = all_features(x), along(lambda x: noise(x, dw))
    if order == 1:
        return _joined([jax.jvp(f.outer, (a,), (b,)) for f, a, b in each(now, first)])

    def bent(v: list[Array]) -> list[Array]:
        """What is to be summed over columns for each outer''."""
        return [_bent(*parts, problem.dim) for parts in each(now, v)]

    def add(total, axis):
        column = jax.vmap(lambda x: problem.column(t, x, axis), -1, -1)
        of_column, its_second = along(column)
        return jax.tree.map(jnp.add, total, (its_second, bent(of_column))), None

    both = second, bent(first)
    spread, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, both), jnp.arange(problem.dim))
    apart, bends = jax.tree.map(lambda a, b: 0.5 * (a - problem.dt * b), both, spread)
    slopes = jax.tree.map(jnp.add, first, apart)
    return _joined([_moved(*parts) for parts in each(now, slopes, bends)])


def _moved(
    f: Composed, now: Features, slope: Features, bends: Array
) -> tuple[Functions, Functions]:
    value, moves = jax.jvp(f.outer, (now,), (slope,))
    if f.is_linear:
        return value, moves
    return value, moves + (_contracted(f.outer, now, bends) if bends.ndim == 3 else bends)


def _bent(f: Composed, now: Features, v: Features, columns: int) -> Array:
    """Covariances of the features, where that is less than outer''(v, v)."""
    if f.is_linear:
        return jnp.zeros((0, 0), v.dtype)
    by_covariance = len(now) < columns
    return v[:, None] * v[None] if by_covariance else _along_twice(f.outer, now, v, v)


def _along_twice(outer: Callable, now: Features, v: Features, w: Features) -> Functions:
    """outer''(v, w)."""
    return jax.jvp(lambda f: jax.jvp(outer, (f,), (v,))[1], (now,), (w,))[1]


def _contracted(outer: Callable, now: Features, matrix: Array) -> Functions:
    """The sum of outer''_ij matrix_ij: [features, features, paths]."""
    axes = jnp.broadcast_to(jnp.eye(len(now), dtype=now.dtype)[..., None], matrix.shape)
    parts = (_along_twice(outer, now, axis, row) for axis, row in zip(axes, matrix, strict=True))
    return jnp.asarray(sum(parts))


def _joined(pairs: list[tuple[Array, Array]]) -> tuple[Functions, Functions]:
    values, moves = zip(*pairs, strict=True)
    return jnp.concatenate(values), jnp.concatenate(moves)
