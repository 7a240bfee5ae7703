"""Samples of value, Delta and Gamma of today, from pairs of opposite first steps and the paths after them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...sampling import normals
from ..dynamics.gamma_drivers import Onward
from ..dynamics.step_density import NoiseForm, Parabola, StepDensity
from ..problem import Problem, State, ends_of_step
from ..solution import Solution
from .defects import LastStep, ahead

_LEAST_SIZE = 0.1  # of a value, in its deviations


class Form(NamedTuple):
    """Settings of the samples.

    pairs: of paths, in a block; points: of a fan of steps (`defects`); knows_values: whether the solution has
    values at later dates; reads_z: whether the driver has a use for z; at_end: whether the driver over the
    first step is that at its end alone, in the derivatives; is_smooth: whether paths are differentiated, too;
    blur: how near to the value exercise pays where its rule has a part of that, a share.
    """

    pairs: int
    points: int
    knows_values: bool
    reads_z: bool
    at_end: bool
    is_smooth: bool
    blur: float


class Start(NamedTuple):
    """The step from today.

    of: the problem of the step; noise: its form (`step_density.noise_form`); onward: where the driver reads
    Gamma, the dynamics of errors, A today, and the solution's Gamma there, else None; last: settings to
    differentiate the mean of the last step, where the payoff may jump.
    """

    of: Problem
    noise: NoiseForm
    onward: tuple[Onward, Array, Array] | None = None
    last: LastStep | None = None


class Derivatives(NamedTuple):
    """Of Delta [contracts, pairs, dim] and Gamma [contracts, pairs, dim, dim], samples or their estimates."""

    delta: Any
    gamma: Any


class Samples(NamedTuple):
    """Value after the first step, less the solution's own, [contracts, pairs], and its derivatives.

    by_weights: by the weights of the first step's density; by_paths: by derivatives of the path, or None.
    """

    value: Any
    by_weights: Derivatives
    by_paths: Derivatives | None


class _Follow(NamedTuple):
    """Values after a first step, [contracts, paths].

    total: worth at its end, with all that is missing later and the driver's part; missing: the missing part of
    it; driver: f at the end, times dt.
    """

    total: Array
    missing: Array
    driver: Array


class Slopes(NamedTuple):
    """Slopes of the total and of its missing part in the state at date 1, [contracts, dim, paths]."""

    total: Array
    missing: Array


def samples(
    solution: Solution,
    own: Array,
    form: Form,
    start: Start,
    quantities: Array | None,
    floor: Array,
    *,
    key: PRNGKeyArray,
) -> Samples:
    """Return a block of samples.

    own: the solution's value today, [contracts]; quantities: [contracts] of a portfolio, whose samples are then
    sums over contracts, which all have one linear driver; None: samples of each contract. floor: lower bound of
    the value of waiting (`exercise_floor`).
    """
    problem, pairs = solution.problem, form.pairs
    t, x0, dt = problem.times[0], problem.x0, problem.dt
    late, _ = ends_of_step(problem, jnp.asarray(0))
    at_end = 1.0 if form.at_end else late  # of the driver at the end, in the derivatives
    first, later, at_jumps = jax.random.split(key, 3)
    noise = jnp.sqrt(dt) * normals(first, (pairs, problem.dim), x0.dtype)
    dw = jnp.concatenate([noise, -noise])
    x = jax.vmap(lambda dw: start.of.advance(t, x0, dw))(dw).T
    middle = start.of.advance(t, x0, jnp.zeros_like(x0))
    z = problem.z_of(t, x0, solution.approximation.gradient(0, x0)).reshape(-1, problem.dim)
    tilts = _tilts(problem, own, z, start) if form.reads_z else None
    moves = jnp.sqrt(
        problem.maturity * jnp.sum(z**2, axis=1)
    )  # a deviation of the value over its life
    size = jnp.maximum(jnp.abs(own), _LEAST_SIZE * moves)
    blur = form.blur * size + jnp.finfo(own.dtype).tiny
    settings = {"key": later, "points": form.points, "blur": blur, "reads_z": form.reads_z}
    onward = None if start.onward is None else start.onward[0]
    settings["last"] = start.last
    follow = partial(ahead, solution, onward=onward, floor=floor, **settings)
    jumps = problem.draw_jumps(at_jumps, (pairs,))

    def summed(of_each):
        if quantities is None:
            return of_each
        return jax.tree.map(partial(_weighted, quantities), of_each)

    def after(x, y=None, copies: int = 2) -> _Follow:
        noise = jax.tree.map(lambda a: jnp.concatenate([a] * copies), jumps)
        x = jax.vmap(problem.jumped, (-1, 0), -1)(x, noise)
        here, missing = follow(x, y, copies=copies)
        driver = here.driver
        if start.onward is not None:
            onward, mixing, _ = start.onward
            of_path = jax.vmap(partial(onward.taken, problem.times[1]), (-1, 0, None))
            driver = driver - of_path(x, here.gamma[0][0], mixing)[None]
        driver = dt * (driver + here.slope * missing)
        return summed(_Follow(here.worth + missing + at_end * driver, missing, driver))

    y = still = None
    if not form.knows_values:
        still = (own - dt * problem.flat_driver(t, x0, own, z))[:, None]
        y, still = still + z @ dw.T, jnp.broadcast_to(still, (own.size, pairs))
    if quantities is not None and tilts is not None:
        tilts = tilts[:1]
    found, slopes = _with_slopes(after, x) if form.is_smooth else (after(x, y), None)
    tilted = 0.0 if tilts is None else (tilts @ dw.T) * found.missing
    value = found.total - (at_end - late) * found.driver + tilted - summed(own)[:, None]
    # the path between the two has no part in means of weights, which vanish: it takes noise off
    between = after(jnp.broadcast_to(middle[:, None], (problem.dim, pairs)), still, 1).total
    centered = found.total + tilted - jnp.tile(between, 2)
    control = Parabola(middle, *summed(_slopes(solution)))

    def of_step(dw, x, total, missing, slopes):
        step = StepDensity(start.of, t, x0, dw, start.noise)
        return _derivatives(step, x, control, tilts, total, missing, slopes)

    axes = (0, -1, -1, -1, None if slopes is None else -1)
    both = jax.vmap(of_step, axes, 1)(dw, x, centered, found.missing, slopes)
    found = Samples(value, *both)
    return jax.tree.map(lambda x: 0.5 * (x[:, :pairs] + x[:, pairs:]), found)


def _weighted(quantities: Array, of_each: Array) -> Array:
    """Return the sum over contracts, with an axis for it."""
    return jnp.tensordot(quantities, of_each, 1)[None]


def _with_slopes(after: Callable, x: Float[Array, "dim paths"]) -> tuple[_Follow, Slopes]:
    """Return the result of `after`, and its slopes along each path."""
    found, pull = jax.vjp(after, x)
    contracts, dim = len(found.total), len(x)
    if contracts > dim:  # a sweep for each coordinate

        def of_axis(axis):
            tangent = jnp.broadcast_to(axis[:, None], x.shape)
            return jax.jvp(after, (x,), (tangent,))[1]

        moved = jax.lax.map(of_axis, jnp.eye(dim, dtype=x.dtype))
        return found, Slopes(*(jnp.moveaxis(a, 0, 1) for a in moved[:2]))

    def of_contract(row):
        zero = jnp.zeros_like(found.total)
        one = zero.at[row].set(1.0)
        return pull(_Follow(one, zero, zero))[0], pull(_Follow(zero, one, zero))[0]

    return found, Slopes(*jax.lax.map(of_contract, jnp.arange(contracts)))


def _derivatives(
    step: StepDensity,
    x: State,
    control: Parabola,
    tilts: Float[Array, "contracts dim"] | None,
    total: Float[Array, " contracts"],
    missing: Float[Array, " contracts"],
    slopes: Slopes | None,
) -> tuple[Derivatives, Derivatives | None]:
    """Return samples of Delta and Gamma by weights, and by the path's slopes: a parabola's are known.

    What is missing is discounted by 1 + f_z . dW, which moves with x where X_1 stays.
    """
    slope, curvature = step.weights()
    carried, *own = step.carried(control)
    own, rest = Derivatives(*own), total - carried
    delta = own.delta + rest[:, None] * slope[None]
    gamma = own.gamma + rest[:, None, None] * curvature[None]
    first = None
    if tilts is not None:
        first, second = jax.vmap(step.along)(tilts)
        cross = first[:, :, None] * slope[None, None]
        second = second + cross + jnp.swapaxes(cross, 1, 2)
        delta = delta + missing[:, None] * first
        gamma = gamma + missing[:, None, None] * second
    by_weights = Derivatives(delta, gamma)
    if slopes is None:
        return by_weights, None
    of_total, of_missing = slopes
    if tilts is not None:
        of_total = of_total + (tilts @ step.dw)[:, None] * of_missing
    delta, gamma = step.along_path(of_total - control(x)[1])
    gamma = gamma + delta[:, :, None] * slope[None, None]
    if first is not None:
        gamma = gamma + step.along_path(of_missing)[0][:, :, None] * first[:, None, :]
    return by_weights, Derivatives(own.delta + delta, own.gamma + gamma)


def _slopes(solution: Solution) -> tuple[Array, Array]:
    """Return the solution's own Delta and Gamma today; zero for a Gamma that it does not learn."""
    found, x0 = solution.approximation, solution.problem.x0
    slope = found.gradient(0, x0).reshape(-1, x0.size)
    try:
        second = found.hessian(0, x0).reshape(-1, x0.size, x0.size)
    except TypeError:
        second = jnp.zeros((*slope.shape, x0.size), slope.dtype)
    return slope, second


def _tilts(problem: Problem, y: Array, z: Array, start: Start) -> Float[Array, "contracts dim"]:
    """Return f_z of every contract today, by which dW drifts; contracts do not read one another's."""
    t, x = problem.times[0], problem.x0
    if start.onward is not None:
        onward, mixing, gamma = start.onward
        return onward.drift(t, x, y[0], z[0], gamma, mixing)[None]
    _, pull = jax.vjp(lambda z: problem.flat_driver(t, x, y, z), z)
    return pull(jnp.ones_like(y))[0]
