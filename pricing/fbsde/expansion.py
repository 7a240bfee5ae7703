"""How a function of the state moves over a step, by the stochastic Taylor expansion."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .bases import Functions, States
from .problem import Problem, Real


def expanded(
    problem: Problem,
    function: Callable[[States], Functions],
    t: Real,
    x: States,
    dw: States,
    order: int = 2,
) -> tuple[Functions, Functions]:
    """f(x), and what f(X) - f(x) is over a step but for its drift: of mean zero, whatever f.

    D f, D the derivative along s dW; of order 2, + (D^2 f - dt sum_k D_k^2 f) / 2, D_k along the k-th column
    of s. Kloeden, Platen (1992), section 5.5.
    """

    def field(noise: States) -> Callable[[States], States]:
        return lambda x: jax.vmap(lambda x, w: problem.diffused(t, x, w), -1, -1)(x, noise)

    def once(direction, function) -> Callable[[States], Functions]:
        return lambda x: jax.jvp(function, (x,), (direction(x),))[1]

    def twice(noise: States) -> Functions:
        direction = field(noise)
        return once(direction, once(direction, function))(x)

    value, moves = jax.jvp(function, (x,), (field(dw)(x),))
    if order == 1:
        return value, moves

    def add(total, axis):
        unit = jnp.broadcast_to(axis[:, None], x.shape)
        return total + twice(unit), None

    spread, _ = jax.lax.scan(add, jnp.zeros_like(value), jnp.eye(problem.dim, dtype=x.dtype))
    return value, moves + 0.5 * (twice(dw) - problem.dt * spread)
