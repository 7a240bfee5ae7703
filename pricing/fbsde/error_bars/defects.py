"""Defects of a solution on fresh paths, step by step, discounted to the first date.

With u the true and v the solution's value, e = u - v satisfies, up to second order,

    -de = (f_y e + f_z . zeta + defect) dt - zeta dW,

so e is the mean of the sum of defects, each discounted along the path with f_y, on paths whose noise is shifted
by f_z dt (Girsanov). Several contracts share unshifted paths, with a weight for each contract. If f is linear
in y and z, only the discretization error is left out.
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
from ..dynamics.gamma_drivers import LinearizedDiffusion
from ..dynamics.ito_taylor import States
from ..dynamics.node_values import (
    NodeValues,
    Values,
    alive_weight,
    node_values,
)
from ..dynamics.step_density import NoiseForm, StepDensity
from ..problem import Problem, State, ends_of_step
from ..solution import Solution

Sums = tuple[Values, Values, Values]
"""The defects so far, the discount from the first date, and the weight of unexercised paths."""


class LastStep(NamedTuple):
    """Settings to differentiate the mean of the last step by its density if the payoff may jump.

    noise: the form of its noise; points: the points of the fan, which only cost payoff evaluations.
    """

    noise: NoiseForm
    points: int


def defects_along_paths(
    solution: Solution,
    x: States,
    y: Values | None = None,
    *,
    key: PRNGKeyArray,
    points: int,
    blur: Float[Array, " contracts"],
    reads_z: bool,
    floor: Float[Array, " contracts"],
    linearized: LinearizedDiffusion | None = None,
    last: LastStep | None = None,
    copies: int = 1,
) -> tuple[NodeValues, Values]:
    """Simulate fresh paths from states at date 1 to maturity, and sum their defects.

    From each state on a path, a fan of steps estimates the defect of the step's mean; the path continues along
    the first of them.

    Args:
        solution: The solution whose defects are summed.
        x: The states at date 1, of shape [dim, paths].
        y: The values there, if the solution knows only Z: Y is then propagated along each path, and its error
            at maturity is the defect. None for the solution's values.
        key: Key of the increments after date 1.
        points: The number of steps of a fan, a power of two of at least 2: antithetic pairs at randomly shifted
            Sobol' points. With y it is one.
        blur: The distance of the exercise value from the value, for each contract, within which path
            derivatives include the exercise rule (`node_values.alive_weight`).
        reads_z: Whether the driver uses z.
        floor: Lower bound of the continuation value, for each contract (`exercise_floor`).
        linearized: Dynamics of the paths if the driver reads Gamma; None for those of the problem.
        last: Settings to differentiate the mean of the last step by its density; None for pathwise derivatives.
        copies: The number of concatenated sets of paths with the same increments.
    """
    walk = _PathSteps(
        solution,
        key,
        points if y is None else 1,
        copies,
        y is None,
        reads_z,
        linearized,
        blur,
        floor,
    )
    problem, date = solution.problem, jnp.asarray(1)
    first = node_values(problem, solution.approximation, date, x, y, floor=floor)
    kept, zero = first.kept(problem, date, x), jnp.zeros_like(first.worth)
    start = x, kept, (zero, zero + 1.0, alive_weight(problem, kept, date, x, blur, floor))
    dates = jnp.arange(1, problem.num_steps - (last is not None))
    step = jax.checkpoint(walk.step, prevent_cse=False)
    (x, here, sums), _ = jax.lax.scan(step, start, dates)
    missing = sums[0] if last is None else walk.last_step(last, x, here, sums)
    return first, missing


class _PathSteps(NamedTuple):
    """The steps of the paths from date to date, with their running sums; see `defects_along_paths`."""

    solution: Solution
    key: PRNGKeyArray
    points: int
    copies: int
    knows_values: bool
    reads_z: bool
    linearized: LinearizedDiffusion | None
    blur: Float[Array, " contracts"]
    floor: Float[Array, " contracts"]

    def step(self, state: tuple[States, NodeValues, Sums], date: Array):
        """Return the states at the next date, the values there, and the sums with the step's defect."""
        x, here, (missing, discount, is_alive) = state
        problem = self.solution.problem
        t, dt = problem.times[date], problem.dt
        late, early = (share * dt for share in ends_of_step(problem, date))
        dw, jumps = self._noise(date, x.shape[1] // self.copies)
        along = None if self.linearized is None else _LinearizedSteps(self.linearized, t, x, here)
        ends, fanned = self._ends(date, x, here, dw, jumps, along)
        at_start, at_end = here.driver, fanned.driver
        if along is not None:
            at_start = at_start - along.compensator(t, x[:, None], here.gamma[0])[:, 0]
            at_end = at_end - along.compensator(problem.times[date + 1], ends, fanned.gamma[0][0])
        gap = fanned.worth - (here.worth - early * at_start)[:, None] + late * at_end
        if not self.knows_values:  # the defect appears only at the end
            gap = jnp.where(date + 1 == problem.num_steps, gap - _moved(here, dw), 0.0)
        scale = discount / (1.0 - early * here.slope)
        missing = missing + is_alive * scale * jnp.mean(gap, axis=1)

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
        is_alive = is_alive * alive_weight(problem, later, date + 1, x, self.blur, self.floor)
        return (x, later, (missing, discount, is_alive)), None

    def last_step(self, last: LastStep, x: States, here: NodeValues, sums: Sums) -> Values:
        """Return the defects including the last step, whose mean is differentiated by its density.

        d/dx E[V(X')] = E[(V(X') - c) d/dx log p(X' | x)] + d/dx E[c], with c = V(m) + p . (X' - m), where p is
        the solution's slope and m is X' without noise: c moves along the path, and V may jump.
        """
        problem, found = self.solution.problem, self.solution.approximation
        missing, discount, is_alive = sums
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
            return step.weights().first

        middle, at_middle = follow(fixed, still)
        ends, worth = follow(x, (dw, jumps))
        slope = jax.vmap(lambda x: found.gradient(date, x), -1, -1)(fixed)
        slope = slope.reshape(len(worth), *x.shape)
        along = jnp.einsum("cdp,dqp->cqp", slope, ends - middle)
        rest = worth - at_middle - jax.lax.stop_gradient(along)
        scores = jax.vmap(jax.vmap(score, (None, 1), 1), (1, 2), 2)(fixed, dw)
        moved = jnp.einsum("dqp,dp->qp", scores, x - fixed)  # 0, but with a nonzero derivative
        mean = jnp.mean(worth + rest * moved[None] + along - jax.lax.stop_gradient(along), axis=1)
        gap = mean - (here.worth - early * here.driver)
        return missing + is_alive * discount / (1.0 - early * here.slope) * gap

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
        self,
        date: Array,
        x: States,
        here: NodeValues,
        dw: Array,
        jumps: Any,
        along: "_LinearizedSteps | None",
    ):
        """Return the states after steps, [dim, points, paths], and the values there."""
        problem, found = self.solution.problem, self.solution.approximation
        own = lambda x, dw: problem.advance(problem.times[date], x, dw)
        move = jax.vmap(own, -1, -1) if along is None else along.advance
        ends = jax.vmap(move, (None, 1), 1)(x, dw)
        ends = jax.vmap(jax.vmap(problem.jumped, (-1, 0), -1), (1, 0), 1)(ends, jumps)
        carried = None
        if not self.knows_values:
            carried = (here.worth - problem.dt * here.driver)[:, None] + _moved(here, dw)
            carried = carried.reshape(len(carried), -1)
        flat_ends = ends.reshape(problem.dim, -1)
        later = node_values(problem, found, date + 1, flat_ends, carried, floor=self.floor)
        shape = dw.shape[1:]
        return ends, jax.tree.map(lambda a: a.reshape(len(a), *shape, *a.shape[2:]), later)


class _LinearizedSteps:
    """Steps of the error dynamics of a contract whose driver reads Gamma; see `LinearizedDiffusion`."""

    def __init__(self, linearized: LinearizedDiffusion, t: Array, x: States, here: NodeValues):
        self.linearized, self.t = linearized, t
        self.factor = jax.vmap(partial(linearized.factor, t), (-1, 0, 0, 0))(x, *_of_one(here))

    def advance(self, x: States, dw: States) -> States:
        """Return the states after a step."""
        return jax.vmap(partial(self.linearized.advance, self.t), (-1, -1, 0), -1)(
            x, dw, self.factor
        )

    def compensator(
        self, t: Array, x: Float[Array, "dim points paths"], gamma: Array
    ) -> Float[Array, "contracts points paths"]:
        """Return the part of the driver contained in the diffusion of these paths, at points of each path."""
        of_path = jax.vmap(partial(self.linearized.compensator, t), (-1, 0, 0))
        return jax.vmap(of_path, (1, 0, None))(x, gamma, self.factor)[None]

    def drift(self, x: States, here: NodeValues) -> States:
        """Return the drift of dW from f_z."""
        of_path = jax.vmap(partial(self.linearized.drift, self.t), (-1, 0, 0, 0, 0), -1)
        return of_path(x, *_of_one(here), self.factor)


def _of_one(here: NodeValues) -> tuple[Array, Array, Array]:
    """Return value, Z and Gamma of the only contract, one row per path."""
    (gamma,) = here.gamma
    return here.worth[0], here.z[0], gamma[0]


def _moved(
    here: NodeValues, dw: Float[Array, "dim points paths"]
) -> Float[Array, "contracts points paths"]:
    return jnp.einsum("cpd,dqp->cqp", here.z, dw)


def fan(
    key: PRNGKeyArray, points: int, shape: tuple[int, int], dtype
) -> Float[Array, "dim points paths"]:
    """Return standard normals for each path of [dim, paths], in antithetic pairs.

    They are Sobol' points, randomly shifted for each path, if their number is a power of two and Sobol' points
    of this dimension are available.
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


def _driver_along(problem: Problem, t, x: States, here: NodeValues, dw: States) -> Values:
    """Return f_z . dW of every contract."""

    def of_path(x, y, z, dw):
        tangent = jnp.broadcast_to(dw, z.shape)
        return jax.jvp(lambda z: problem.flat_driver(t, x, y, z), (z,), (tangent,))[1]

    return jax.vmap(of_path, (-1, -1, 1, -1), -1)(x, here.worth, here.z, dw)


def _driver_slope(problem: Problem, t, x: States, here: NodeValues) -> States:
    """Return f_z of one contract."""

    def of_path(x, y, z):
        return jax.grad(lambda z: problem.flat_driver(t, x, y, z)[0])(z)[0]

    return jax.vmap(of_path, (-1, -1, 1), -1)(x, here.worth, here.z)
