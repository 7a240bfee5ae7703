"""What a solution misses on fresh paths: the defect of its equation, step by step, in money of the first date.

With u the true and v the solution's value, e = u - v satisfies, but for its square,

    -de = (f_y e + f_z . zeta + defect) dt - zeta dW,

so that e is the mean of the sum of defects, each discounted along the path by what f_y and f_z say. Where f is
linear in y and z nothing is left out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..sampling import normals
from .ito_taylor import Composition, States, martingale_increments
from .problem import Problem
from .solution import Solution

Values = Float[Array, "contracts paths"]


class Held(NamedTuple):
    """What is held on each path at a date, by the solution.

    worth: u, or what an exercise or a stop pays; driver, slope: f there, and its derivative in y.
    """

    worth: Values
    z: Float[Array, "contracts paths dim"]
    driver: Values
    slope: Values
    ends: Bool[Array, "contracts paths"]


class Ahead(NamedTuple):
    """What is held at the first date, and the mean of which is missing there."""

    first: Held
    missing: Values


class _Sum(NamedTuple):
    """The defects so far, the discount from the first date, and on which paths the contract is held."""

    missing: Values
    discount: Values
    is_held: Bool[Array, "contracts paths"]


def ahead(
    solution: Solution,
    x: States,
    y: Values | None = None,
    *,
    key: PRNGKeyArray,
    order: int = 2,
    copies: int = 1,
) -> Ahead:
    """Follow fresh paths from states at date 1 to the end.

    Args:
        solution: The solution whose defects are summed.
        x: The states at date 1, of shape [dim, paths].
        y: The values there, where the solution knows Z alone: then Y follows from them along each path, and is
            wrong at the end by what is missing. None: the solution's own.
        key: Of the increments after date 1.
        order: Of the martingale increments that are taken off: 1, Z dW, or 2, Gamma's too.
        copies: How many sets of paths, one beside the other, have the same increments.
    """
    problem = solution.problem
    shape = problem.num_steps - 1, problem.dim, x.shape[1] // copies
    increments = jnp.sqrt(problem.dt) * jnp.tile(normals(key, shape, x.dtype), copies)
    first = _held(solution, jnp.asarray(1), x, y)

    def advance(state, of_step):
        date, dw = of_step
        x, here, total = state
        t, dt = problem.times[date], problem.dt
        after = jax.vmap(lambda x, dw: problem.advance(t, x, dw), -1, -1)(x, dw)
        if order == 1:
            moved = jnp.sum(here.z * dw.T[None], axis=-1)
        else:
            moved = martingale_increment(solution, date, x, dw)
        carried = None if y is None else here.worth + moved - dt * here.driver
        later = _held(solution, date + 1, after, carried)
        scale = total.discount / (1.0 - 0.5 * dt * here.slope)
        at_end = here.worth + moved - 0.5 * dt * (here.driver + later.driver)
        if y is not None:
            worth = jnp.where(date + 1 == problem.num_steps, later.worth, at_end)
            later = later._replace(worth=worth)
        defect = later.worth - at_end
        missing = total.missing + jnp.where(total.is_held, scale * defect, 0.0)
        tilt = _driver_along(problem, t, x, here, dw)
        discount = scale * (1.0 + 0.5 * dt * later.slope + tilt)
        total = _Sum(missing, discount, total.is_held & ~later.ends)
        return (after, later, total), None

    zero = jnp.zeros_like(first.worth)
    start = x, first, _Sum(zero, zero + 1.0, ~first.ends)
    (_, _, total), _ = jax.lax.scan(advance, start, (jnp.arange(1, problem.num_steps), increments))
    return Ahead(first, total.missing)


def _held(solution: Solution, date: Array, x: States, carried: Values | None) -> Held:
    """Return what the solution holds at a date, given Y if it does not know it."""
    problem = solution.problem
    t = problem.times[date]
    y, z = _known(solution, date, x)
    if carried is not None:
        y = jnp.where(date == problem.num_steps, y, carried)
    worth, ends = y, jnp.zeros(y.shape, bool)
    if problem.exercise_value is not None:
        paid = _flat(jax.vmap(problem.exercise_value, (None, -1), -1)(t, x))
        ends = jnp.asarray(problem.is_exercise_date)[date] & (paid > y) & (paid > 0.0)
        worth = jnp.where(ends, paid, worth)
    if problem.is_alive is not None:
        is_dead = ~jax.vmap(problem.is_alive, (None, -1))(t, x)
        is_dead = is_dead & jnp.asarray(problem.is_stopping_date)[date]
        paid = _flat(jax.vmap(problem.paid_at_stop, (None, -1), -1)(t, x))
        worth, ends = jnp.where(is_dead[None], paid, worth), ends | is_dead[None]
    along = lambda x, y, z: jax.jvp(  # noqa: E731
        lambda y: problem.flat_driver(t, x, y, z), (y,), (jnp.ones_like(y),)
    )
    driver, slope = jax.vmap(along, (-1, -1, 1), -1)(x, worth, z)
    return Held(worth, z, driver, slope, ends)


def _known(solution: Solution, date: Array, x: States) -> tuple[Array, Array]:
    """Return u and Z of every contract, [contracts, paths] and [contracts, paths, dim]."""
    problem, found = solution.problem, solution.approximation
    last, t = problem.num_steps, problem.times[date]

    def at(value, gradient):
        y = jax.vmap(value, -1, -1)(x)
        z = jax.vmap(lambda x: problem.z_of(t, x, gradient(x)), -1, -2)(x)
        return _flat(y), z.reshape(-1, *z.shape[-2:])

    before = jnp.minimum(date, last - 1)
    return jax.lax.cond(
        date == last,
        lambda: at(problem.terminal, problem.terminal_gradient),
        lambda: at(lambda x: found.value(before, x), lambda x: found.gradient(before, x)),
    )


def _driver_along(problem: Problem, t, x: States, here: Held, dw: States) -> Values:
    """Return f_z . dW of every contract."""

    def of_path(x, y, z, dw):
        tangent = jnp.broadcast_to(dw, z.shape)
        return jax.jvp(lambda z: problem.flat_driver(t, x, y, z), (z,), (tangent,))[1]

    return jax.vmap(of_path, (-1, -1, 1, -1), -1)(x, here.worth, here.z, dw)


def martingale_increment(solution: Solution, date: Array, x: States, dw: States) -> Values:
    """Return how u moves over a step from a date but for its drift, Gamma's part included."""
    problem, found = solution.problem, solution.approximation
    value = lambda x: _flat(jax.vmap(lambda x: found.value(date, x), -1, -1)(x))  # noqa: E731
    return martingale_increments(problem, [Composition(value)], problem.times[date], x, dw)[1]


def _flat(values: Float[Array, "*contracts paths"]) -> Values:
    return values.reshape(-1, values.shape[-1])
