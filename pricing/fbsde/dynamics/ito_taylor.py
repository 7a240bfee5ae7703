"""Changes of functions of the state over a step, by the stochastic Taylor expansion."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problem import Problem, Real, State
from .coordinates import Dependence, dependence

States = Float[Array, "dim paths"]
Functions = Float[Array, "functions paths"]
Features = Float[Array, "features paths"]
Moves = tuple[Functions, Functions]
"""Functions, and their increments over a step."""


class Composition(NamedTuple):
    """Functions f = outer(features) of the state, with smooth outer.

    is_linear: whether outer'' = 0; is_additive: whether each feature is a sum of functions of one coordinate.
    """

    features: Callable[[States], Features]
    outer: Callable[[Features], Functions] = lambda features: features
    is_linear: bool = True
    is_additive: bool = False

    def __call__(self, x: States) -> Functions:
        return self.outer(self.features(x))


def martingale_increments(
    problem: Problem,
    compositions: Sequence[Composition],
    t: Real,
    x: States,
    dw: States,
    order: int = 2,
) -> Moves:
    """Return all f(x), and f(X) - f(x) over a step without its drift, which has zero mean for any f.

    The increment is D f, where D is the derivative along s dW; with order 2 also

        (D^2 f - dt sum_k D_k^2 f) / 2,   D_k the derivative along the k-th column of s.

    Kloeden, Platen (1992), section 5.5. With F the features,

        D^2 f = outer' D^2 F + outer''(D F, D F),

    where outer'' is applied to each column of s or, if there are fewer features than columns, to the features'
    covariance, by their gradients. The Hessian of an additive feature is diagonal, so that

        sum_k D_k^2 F = sum_i (ss')_ii d^2 F / dx_i^2 + c . grad F,   c = sum_k D_k s_k,

    needs no derivative by column. If s is a vector whose entry i depends on x_i alone, neither does c.
    """

    def all_features(x: States) -> list[Array]:
        return [f.features(x) for f in compositions]

    def along(field: Callable[[States], States]) -> tuple[list[Array], list[Array]]:
        """Return D F and D^2 F."""
        first = lambda x: jax.jvp(all_features, (x,), (field(x),))[1]
        return jax.jvp(first, (x,), (field(x),))

    each = partial(zip, compositions, strict=True)
    noise = jax.vmap(lambda x, dw: problem.diffused(t, x, dw), -1, -1)
    values, (first, second) = all_features(x), along(lambda x: noise(x, dw))
    if order == 1:
        return _joined([jax.jvp(f.outer, (a,), (b,)) for f, a, b in each(values, first)])

    def curvatures(v: list[Array]) -> list[Array]:
        """Return the arguments of outer'' along the features' derivatives v."""
        return [_curvature(*parts, problem.dim) for parts in each(values, v)]

    needs_column = [not f.is_additive for f in compositions]
    bends_by_column = [not f.is_linear and len(v) >= problem.dim for f, v in each(values)]

    def add(total, axis):
        field = jax.vmap(lambda x: problem.column(t, x, axis), -1, -1)
        firsts, seconds = along(field)
        bends = compress(curvatures(firsts), bends_by_column)
        column, change = jax.jvp(field, (x,), (field(x),))
        moves = () if apart else (column**2, change)
        of_column = [*compress(seconds, needs_column)], [*bends], moves
        return jax.tree.map(jnp.add, total, of_column), None

    bends, apart = curvatures(first), _apart(problem, t, x)
    own = compress(second, needs_column), compress(bends, bends_by_column)
    total: Any = *map(list, own), () if apart else (x, x)
    if jax.tree.leaves(total):
        zeros = jax.tree.map(jnp.zeros_like, total)
        total, _ = jax.lax.scan(add, zeros, jnp.arange(problem.dim))
    variances, change = apart or total[2]
    of_columns, bends_of_columns = map(iter, total[:2])
    summed = [
        _of_additive(f.features, x, variances, change) if f.is_additive else next(of_columns)
        for f in compositions
    ]

    def summed_bend(f: Composition, values: Features, bend: Array, is_by_column: bool) -> Array:
        if is_by_column:
            return next(bends_of_columns)
        return bend if f.is_linear else _covariance(problem, f.features, t, x, len(values))

    summed_bends = [summed_bend(*parts) for parts in each(values, bends, bends_by_column)]
    halved = lambda a, b: 0.5 * (a - problem.dt * b)
    second, bends = jax.tree.map(halved, (second, bends), (summed, summed_bends))
    slopes = jax.tree.map(jnp.add, first, second)
    return _joined([_composed(*parts) for parts in each(values, slopes, bends)])


def _apart(problem: Problem, t: Real, x: States) -> tuple[States, States] | None:
    """Return the diagonal of ss' and sum_k D_k s_k if s is a vector with s_i of x_i alone; None otherwise."""

    def s(x: State) -> State:
        return jnp.broadcast_to(jnp.asarray(problem.diffusion(t, x), x.dtype), x.shape)

    one = x[:, 0]
    if jnp.ndim(jax.eval_shape(partial(problem.diffusion, t), one)) == 2:
        return None
    if dependence(s, one) not in (Dependence.NONE, Dependence.EACH):
        return None
    deviations = jax.vmap(s, -1, -1)
    return deviations(x) ** 2, jax.jvp(deviations, (x,), (deviations(x),))[1]


def _covariance(
    problem: Problem, features: Callable[[States], Features], t: Real, x: States, count: int
) -> Float[Array, "features features paths"]:
    """Return sum_k D_k F D_k F of a few features, from their gradients."""
    _, pull = jax.vjp(features, x)
    rows = jnp.broadcast_to(jnp.eye(count, dtype=x.dtype)[..., None], (count, count, x.shape[1]))
    gradients = jax.vmap(lambda row: pull(row)[0])(rows)
    z = jax.vmap(lambda x, gradient: problem.z_of(t, x, gradient), -1, -1)(x, gradients)
    # fused into one sum, z and its exponentials would be computed again for each pair of features
    add = lambda total, column: (total + column[:, None] * column[None], None)
    zeros = jnp.zeros((count, count, x.shape[1]), x.dtype)
    return jax.lax.scan(add, zeros, jnp.moveaxis(z, 1, 0))[0]


def _of_additive(
    features: Callable[[States], Features], x: States, variances: States, change: States
) -> Features:
    """Return sum_k D_k^2 F of additive features, from the diagonal of ss' and from sum_k D_k s_k."""
    deviations = jnp.sqrt(variances)
    first = lambda x: jax.jvp(features, (x,), (deviations,))[1]
    return jax.jvp(first, (x,), (deviations,))[1] + jax.jvp(features, (x,), (change,))[1]


def _composed(f: Composition, values: Features, slope: Features, bends: Array) -> Moves:
    """Return f and its increment, from the features, their increments, and the argument of outer''."""
    value, increment = jax.jvp(f.outer, (values,), (slope,))
    if f.is_linear:
        return value, increment
    return value, increment + (_contracted(f.outer, values, bends) if bends.ndim == 3 else bends)


def _curvature(f: Composition, values: Features, v: Features, columns: int) -> Array:
    """Return outer''(v, v), or the covariances of the features if these are fewer."""
    if f.is_linear:
        return jnp.zeros((0, 0), v.dtype)
    by_covariance = len(values) < columns
    return v[:, None] * v[None] if by_covariance else _second(f.outer, values, v, v)


def _second(outer: Callable, values: Features, v: Features, w: Features) -> Functions:
    return jax.jvp(lambda f: jax.jvp(outer, (f,), (v,))[1], (values,), (w,))[1]


def _contracted(outer: Callable, values: Features, matrix: Array) -> Functions:
    """Return the sum of outer''_ij matrix_ij, where matrix is [features, features, paths]."""
    axes = jnp.broadcast_to(jnp.eye(len(values), dtype=values.dtype)[..., None], matrix.shape)
    parts = (_second(outer, values, axis, row) for axis, row in zip(axes, matrix, strict=True))
    return jnp.asarray(sum(parts))


def _joined(pairs: list[tuple[Array, Array]]) -> Moves:
    values, increments = zip(*pairs, strict=True)
    return jnp.concatenate(values), jnp.concatenate(increments)
