"""What a solution misses on fresh paths: the defect of its equation, step by step, in money of the first date.

With u the true and v the solution's value, e = u - v satisfies, but for its square,

    -de = (f_y e + f_z . zeta + defect) dt - zeta dW,

so that e is the mean of the sum of defects, each discounted along the path by what f_y and f_z say. Where f is
linear in y and z nothing is left out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..sampling import normals
from ..sampling.low_discrepancy import sobol_words
from ..sampling.threefry import random_bits
from ..sampling.transforms import inverse_normal
from .held import Held, Values, flat, held, still_held
from .ito_taylor import Composition, States, martingale_increments
from .problem import Problem
from .solution import Solution


class Ahead(NamedTuple):
    """What is held at the first date, and the mean of which is missing there."""

    first: Held
    missing: Values


class _Sum(NamedTuple):
    """The defects so far, the discount from the first date, and on which paths the contract is held."""

    missing: Values
    discount: Values
    is_held: Values


def ahead(
    solution: Solution,
    x: States,
    y: Values | None = None,
    *,
    key: PRNGKeyArray,
    points: int,
    blur: Float[Array, " contracts"],
    copies: int = 1,
) -> Ahead:
    """Follow fresh paths from states at date 1 to the end.

    From each state on a path a fan of steps says what the mean of a step misses there; the path goes on along
    the first of them.

    Args:
        solution: The solution whose defects are summed.
        x: The states at date 1, of shape [dim, paths].
        y: The values there, where the solution knows Z alone: then Y follows from them along each path, and is
            wrong at the end by what is missing. None: the solution's own.
        key: Of the increments after date 1.
        points: The steps of a fan, a power of two from 2 on: pairs of opposite ones at Sobol' points that are
            shifted at random. With y it is one.
        blur: How near to its value, for each contract, exercise is to pay for a path's derivative to have the
            part of the rule (`held.still_held`).
        copies: How many sets of paths, one beside the other, have the same increments.
    """
    problem, found = solution.problem, solution.approximation
    shape, points = (problem.dim, x.shape[1] // copies), points if y is None else 1
    first = held(problem, found, jnp.asarray(1), x, y)

    def advance(state, date):
        x, here, total = state
        t, dt = problem.times[date], problem.dt
        fan = jnp.sqrt(dt) * _fan(jax.random.fold_in(key, date), points, shape, x.dtype)
        fan = jnp.tile(fan, (1, 1, copies))
        move = lambda x, dw: problem.advance(t, x, dw)  # noqa: E731
        after = jax.vmap(jax.vmap(move, (None, -1), -1), (-1, -1), -1)(x, fan)
        drifted = here.worth - dt * here.driver
        moved = 0.0 if y is None else jnp.einsum("cpd,dqp->cqp", here.z, fan)
        carried = None if y is None else (drifted[:, None] + moved).reshape(len(y), -1)
        fanned = held(problem, found, date + 1, after.reshape(problem.dim, -1), carried)
        fanned = jax.tree.map(lambda a: a.reshape(len(a), points, -1, *a.shape[2:]), fanned)
        scale = total.discount / (1.0 - 0.5 * dt * here.slope)
        at_end = here.worth[:, None] - 0.5 * dt * (here.driver[:, None] + fanned.driver) + moved
        if y is not None:  # what is missing shows at the end alone
            is_last = date + 1 == problem.num_steps
            fanned = fanned._replace(worth=jnp.where(is_last, fanned.worth, at_end))
        missing = total.missing + total.is_held * scale * jnp.mean(fanned.worth - at_end, axis=1)
        tilt = _driver_along(problem, t, x, here, fan[:, 0])
        x, later = after[:, 0], jax.tree.map(lambda a: a[:, 0], fanned)
        later = later.kept(problem, date + 1, x)
        discount = scale * (1.0 + 0.5 * dt * later.slope + tilt)
        is_held = total.is_held * still_held(problem, later, date + 1, x, blur)
        return (x, later, _Sum(missing, discount, is_held)), None

    zero = jnp.zeros_like(first.worth)
    kept = first.kept(problem, jnp.asarray(1), x)
    start = x, kept, _Sum(zero, zero + 1.0, still_held(problem, kept, jnp.asarray(1), x, blur))
    dates = jnp.arange(1, problem.num_steps)
    (_, _, total), _ = jax.lax.scan(jax.checkpoint(advance, prevent_cse=False), start, dates)
    return Ahead(first, total.missing)


def _fan(
    key: PRNGKeyArray, points: int, shape: tuple[int, int], dtype
) -> Float[Array, "dim points paths"]:
    """Return standard normals for each path of [dim, paths]."""
    if points == 1:
        return jnp.moveaxis(normals(key, (1, *shape), dtype), 0, 1)
    words = sobol_words(None, points // 2, shape[0]).reshape(shape[0], -1)
    shifted = words[:, :, None] ^ random_bits(key, shape)[:, None]
    half = inverse_normal(shifted, dtype)
    return jnp.concatenate([half, -half], axis=1)


def _driver_along(problem: Problem, t, x: States, here: Held, dw: States) -> Values:
    """Return f_z . dW of every contract."""

    def of_path(x, y, z, dw):
        tangent = jnp.broadcast_to(dw, z.shape)
        return jax.jvp(lambda z: problem.flat_driver(t, x, y, z), (z,), (tangent,))[1]

    return jax.vmap(of_path, (-1, -1, 1, -1), -1)(x, here.worth, here.z, dw)


def martingale_increment(solution: Solution, date: Array, x: States, dw: States) -> Values:
    """Return how u moves over a step from a date but for its drift, Gamma's part included."""
    problem, found = solution.problem, solution.approximation
    value = lambda x: flat(jax.vmap(lambda x: found.value(date, x), -1, -1)(x))  # noqa: E731
    return martingale_increments(problem, [Composition(value)], problem.times[date], x, dw)[1]
