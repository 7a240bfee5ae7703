"""Defects of a solution's equation on fresh paths, step by step, in money of the first date.

With u the true and v the solution's value, e = u - v satisfies, up to its square,

    -de = (f_y e + f_z . zeta + defect) dt - zeta dW,

so that e is the mean of the sum of defects, each discounted along the path by f_y, on paths whose noise is
shifted by f_z dt (Girsanov). Many contracts share their paths: these are not shifted, and each contract has a
weight. Where f is linear in y and z, only the error of the steps is left out.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...sampling import normals
from ...sampling.low_discrepancy import MAX_DIMENSION, sobol_words
from ...sampling.threefry import random_bits
from ...sampling.transforms import inverse_normal
from ..dynamics.gamma_drivers import Onward
from ..dynamics.ito_taylor import Composition, States, martingale_increments
from ..dynamics.node_values import (
    Held,
    Values,
    flat,
    held,
    still_held,
)
from ..dynamics.step_density import NoiseForm, StepDensity
from ..problem import Problem, State, ends_of_step
from ..solution import Solution


class Ahead(NamedTuple):
    """Values held at the first date, and the mean of what is missing there."""

    first: Held
    missing: Values


class LastStep(NamedTuple):
    """Settings to differentiate the mean of the last step by its density, where the payoff may jump.

    noise: the form of its noise; points: the steps of the fan, which cost only evaluations of the payoff.
    """

    noise: NoiseForm
    points: int


class _Sum(NamedTuple):
    """The defects so far, the discount from the first date, and the paths on which the contract is held."""

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
    reads_z: bool,
    floor: Float[Array, " contracts"],
    onward: Onward | None = None,
    last: LastStep | None = None,
    copies: int = 1,
) -> Ahead:
    """Follow fresh paths from states at date 1 to the end.

    From each state on a path a fan of steps estimates what the mean of a step misses there; the path continues
    along the first of them.

    Args:
        solution: The solution whose defects are summed.
        x: The states at date 1, of shape [dim, paths].
        y: The values there, where the solution knows Z alone: then Y follows from them along each path, and is
            wrong at the end by the missing part. None: the solution's own.
        key: Key of the increments after date 1.
        points: The steps of a fan, a power of two from 2 on: pairs of opposite ones at Sobol' points that are
            shifted at random. With y it is one.
        blur: Distance of the exercise value from the value, for each contract, within which a path's derivative
            has a part of the rule (`node_values.still_held`).
        reads_z: Whether the driver has a use for z.
        floor: Lower bound of the value of waiting, for each contract (`exercise_floor`).
        onward: Dynamics of the paths where the driver reads Gamma; None: the problem's.
        last: Settings to differentiate the mean of the last step by its density; None: along its paths.
        copies: The number of sets of paths, one beside the other, that have the same increments.
    """
    walk = _Walk(
        solution, key, points if y is None else 1, copies, y is None, reads_z, onward, blur, floor
    )
    problem, date = solution.problem, jnp.asarray(1)
    first = held(problem, solution.approximation, date, x, y, floor=floor)
    kept, zero = first.kept(problem, date, x), jnp.zeros_like(first.worth)
    start = x, kept, _Sum(zero, zero + 1.0, still_held(problem, kept, date, x, blur, floor))
    dates = jnp.arange(1, problem.num_steps - (last is not None))
    step = jax.checkpoint(walk.step, prevent_cse=False)
    (x, here, total), _ = jax.lax.scan(step, start, dates)
    missing = total.missing if last is None else walk.last_step(last, x, here, total)
    return Ahead(first, missing)


class _Walk(NamedTuple):
    """Step of the paths from a date to the next: see `ahead`."""

    solution: Solution
    key: PRNGKeyArray
    points: int
    copies: int
    knows_values: bool
    reads_z: bool
    onward: Onward | None
    blur: Float[Array, " contracts"]
    floor: Float[Array, " contracts"]

    def step(self, state: tuple[States, Held, _Sum], date: Array):
        """Return the states at the next date, the values held there, and the sums with the step's defect."""
        x, here, total = state
        problem = self.solution.problem
        t, dt = problem.times[date], problem.dt
        late, early = (share * dt for share in ends_of_step(problem, date))
        dw, jumps = self._noise(date, x.shape[1] // self.copies)
        along = None if self.onward is None else _Along(self.onward, t, x, here)
        ends, fanned = self._ends(date, x, here, dw, jumps, along)
        at_start, at_end = here.driver, fanned.driver
        if along is not None:
            at_start = at_start - along.taken(t, x[:, None], here.gamma[0])[:, 0]
            at_end = at_end - along.taken(problem.times[date + 1], ends, fanned.gamma[0][0])
        gap = fanned.worth - (here.worth - early * at_start)[:, None] + late * at_end
        if not self.knows_values:  # the defect shows at the end alone
            gap = jnp.where(date + 1 == problem.num_steps, gap - _moved(here, dw), 0.0)
        scale = total.discount / (1.0 - early * here.slope)
        missing = total.missing + total.is_held * scale * jnp.mean(gap, axis=1)

        dw, jumps = dw[:, :1], jax.tree.map(lambda a: a[:1], jumps)
        ends, later, tilt = ends[:, :1], jax.tree.map(lambda a: a[:, :1], fanned), 0.0
        if self.reads_z and len(here.value) == 1:
            drift = _driver_slope(problem, t, x, here) if along is None else along.drift(x, here)
            ends, later = self._ends(date, x, here, dw + dt * drift[:, None], jumps, along)
        elif self.reads_z:
            tilt = _driver_along(problem, t, x, here, dw[:, 0])
        x, later = ends[:, 0], jax.tree.map(lambda a: a[:, 0], later)
        later = later.kept(problem, date + 1, x)
        discount = scale * (1.0 + late * later.slope + tilt)
        is_held = total.is_held * still_held(problem, later, date + 1, x, self.blur, self.floor)
        return (x, later, _Sum(missing, discount, is_held)), None

    def last_step(self, last: LastStep, x: States, here: Held, total: _Sum) -> Values:
        """Return the missing values, with the last step's part, whose mean is differentiated by its density.

        d/dx E[V(X')] = E[(V(X') - c) d/dx log p(X' | x)] + d/dx E[c], with c = V(m) + p . (X' - m) of the
        solution's slope p and X' without noise, m: c moves along the path, and V may jump.
        """
        problem, found = self.solution.problem, self.solution.approximation
        date = jnp.asarray(problem.num_steps - 1)
        late, early = (share * problem.dt for share in ends_of_step(problem, date))
        dw, jumps = self._noise(date, x.shape[1] // self.copies, last.points)
        still = jnp.zeros_like(dw[:, :1]), jax.tree.map(lambda a: a[:1], jumps)
        fixed = jax.lax.stop_gradient(x)

        def follow(x: States, noise: tuple[Array, Any]) -> tuple[Array, Array]:
            ends, fanned = self._ends(date, x, here, *noise, None)
            return ends, jax.lax.stop_gradient(fanned.worth + late * fanned.driver)

        def score(x: State, dw: State) -> State:
            step = StepDensity(problem, problem.times[date], x, dw, last.noise)
            return step.weights().slope

        middle, at_middle = follow(fixed, still)
        ends, worth = follow(x, (dw, jumps))
        slope = jax.vmap(lambda x: found.gradient(date, x), -1, -1)(fixed)
        slope = slope.reshape(len(worth), *x.shape)
        along = jnp.einsum("cdp,dqp->cqp", slope, ends - middle)
        rest = worth - at_middle - jax.lax.stop_gradient(along)
        scores = jax.vmap(jax.vmap(score, (None, 1), 1), (1, 2), 2)(fixed, dw)
        moved = jnp.einsum("dqp,dp->qp", scores, x - fixed)  # 0, but not its derivative
        mean = jnp.mean(worth + rest * moved[None] + along - jax.lax.stop_gradient(along), axis=1)
        gap = mean - (here.worth - early * here.driver)
        return total.missing + total.is_held * total.discount / (1.0 - early * here.slope) * gap

    def _noise(
        self, date: Array, paths: int, points: int | None = None
    ) -> tuple[Float[Array, "dim points paths"], Any]:
        """Return the increments and jumps of a fan from each path, the same for all copies."""
        problem, copies = self.solution.problem, self.copies
        points = self.points if points is None else points
        key, jump_key = jax.random.split(jax.random.fold_in(self.key, date))
        shape, dtype = (problem.dim, paths), problem.x0.dtype
        dw = jnp.sqrt(problem.dt) * fan(key, points, shape, dtype)
        jumps = problem.draw_jumps(jump_key, (points, paths))
        jumps = jax.tree.map(lambda a: jnp.tile(a, (1, copies, *(1,) * (a.ndim - 2))), jumps)
        return jnp.tile(dw, (1, 1, copies)), jumps

    def _ends(
        self, date: Array, x: States, here: Held, dw: Array, jumps: Any, along: "_Along | None"
    ):
        """Return the states after steps, [dim, points, paths], and the values held there."""
        problem, found = self.solution.problem, self.solution.approximation
        own = lambda x, dw: problem.advance(problem.times[date], x, dw)  # noqa: E731
        move = jax.vmap(own, -1, -1) if along is None else along.advance
        ends = jax.vmap(move, (None, 1), 1)(x, dw)
        ends = jax.vmap(jax.vmap(problem.jumped, (-1, 0), -1), (1, 0), 1)(ends, jumps)
        carried = None
        if not self.knows_values:
            carried = (here.worth - problem.dt * here.driver)[:, None] + _moved(here, dw)
            carried = carried.reshape(len(carried), -1)
        flat_ends = ends.reshape(problem.dim, -1)
        later = held(problem, found, date + 1, flat_ends, carried, floor=self.floor)
        shape = dw.shape[1:]
        return ends, jax.tree.map(lambda a: a.reshape(len(a), *shape, *a.shape[2:]), later)


class _Along:
    """Steps from states along which errors move, of one contract whose driver reads Gamma: see `Onward`."""

    def __init__(self, onward: Onward, t: Array, x: States, here: Held):
        self.onward, self.t = onward, t
        self.mixing = jax.vmap(partial(onward.mixing, t), (-1, 0, 0, 0))(x, *_of_one(here))

    def advance(self, x: States, dw: States) -> States:
        """Return the states after a step."""
        return jax.vmap(partial(self.onward.advance, self.t), (-1, -1, 0), -1)(x, dw, self.mixing)

    def taken(
        self, t: Array, x: Float[Array, "dim points paths"], gamma: Array
    ) -> Float[Array, "contracts points paths"]:
        """Return the part of the driver in the diffusion of these paths, at points of each path."""
        of_path = jax.vmap(partial(self.onward.taken, t), (-1, 0, 0))
        return jax.vmap(of_path, (1, 0, None))(x, gamma, self.mixing)[None]

    def drift(self, x: States, here: Held) -> States:
        """Return the drift of dW by f_z."""
        of_path = jax.vmap(partial(self.onward.drift, self.t), (-1, 0, 0, 0, 0), -1)
        return of_path(x, *_of_one(here), self.mixing)


def _of_one(here: Held) -> tuple[Array, Array, Array]:
    """Return worth, Z and Gamma of the only contract, a row for each path."""
    (gamma,) = here.gamma
    return here.worth[0], here.z[0], gamma[0]


def _moved(
    here: Held, dw: Float[Array, "dim points paths"]
) -> Float[Array, "contracts points paths"]:
    """Return Z dW."""
    return jnp.einsum("cpd,dqp->cqp", here.z, dw)


def fan(
    key: PRNGKeyArray, points: int, shape: tuple[int, int], dtype
) -> Float[Array, "dim points paths"]:
    """Return standard normals for each path of [dim, paths], opposite pairs.

    They are at Sobol' points, randomly shifted for each path, where the points are a power of two and Sobol'
    points of this dimension are available.
    """
    if points == 1:
        return jnp.moveaxis(normals(key, (1, *shape), dtype), 0, 1)
    dim, paths = shape
    if points & (points - 1) or dim > MAX_DIMENSION:
        half = normals(key, (dim, points // 2, paths), dtype)
    else:
        words = sobol_words(None, points // 2, dim).reshape(dim, -1)
        shifted = words[:, :, None] ^ random_bits(key, shape)[:, None]
        half = inverse_normal(shifted, dtype)
    return jnp.concatenate([half, -half], axis=1)


def _driver_along(problem: Problem, t, x: States, here: Held, dw: States) -> Values:
    """Return f_z . dW of every contract."""

    def of_path(x, y, z, dw):
        tangent = jnp.broadcast_to(dw, z.shape)
        return jax.jvp(lambda z: problem.flat_driver(t, x, y, z), (z,), (tangent,))[1]

    return jax.vmap(of_path, (-1, -1, 1, -1), -1)(x, here.worth, here.z, dw)


def _driver_slope(problem: Problem, t, x: States, here: Held) -> States:
    """Return f_z of one contract."""

    def of_path(x, y, z):
        return jax.grad(lambda z: problem.flat_driver(t, x, y, z)[0])(z)[0]

    return jax.vmap(of_path, (-1, -1, 1), -1)(x, here.worth, here.z)


def martingale_increment(solution: Solution, date: Array, x: States, dw: States) -> Values:
    """Return the change of u over a step from a date without its drift, Gamma's part included."""
    problem, found = solution.problem, solution.approximation
    value = lambda x: flat(jax.vmap(lambda x: found.value(date, x), -1, -1)(x))  # noqa: E731
    return martingale_increments(problem, [Composition(value)], problem.times[date], x, dw)[1]
