"""Samples of today's value, Delta and Gamma from antithetic first steps and the paths after them."""

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...sampling import normals
from ..dynamics.gamma_drivers import LinearizedDiffusion, with_frozen_gamma
from ..dynamics.step_density import Derivatives, NoiseForm, Parabola, StepDensity
from ..problem import Problem, State, ends_of_step
from ..solution import Solution
from .defects import LastStep, defects_along_paths

_FIXED_POINT = 8  # iterations, each reducing the error by a factor of dt f_y / 2
_OUTSIDE = 0.00135  # probability in each tail beyond three standard errors
_OF_SQUARE = 2.0  # error if f reads Gamma, relative to the square of the missed fraction
_LEAST_SIZE = 0.1  # smallest scale of a value, in its standard deviations


class SampleSettings(NamedTuple):
    """Settings of the samples.

    pairs: path pairs per block; points: points of a fan of steps (`defects`); knows_values: whether the
    solution has values at later dates; reads_z: whether the driver uses z; at_end: whether derivatives take the
    driver of the first step only at its end; is_smooth: whether paths are also differentiated; blur: the
    relative distance of exercise and continuation value within which path derivatives include the rule.
    """

    pairs: int
    points: int
    knows_values: bool
    reads_z: bool
    at_end: bool
    is_smooth: bool
    blur: float


class FirstStep(NamedTuple):
    """The step from today.

    of: the problem of the step; noise: its form (`step_density.noise_form`); linearized: if the driver reads
    Gamma, the dynamics of errors, A today, and the solution's Gamma there, else None; last: settings to
    differentiate the mean of the last step if the payoff may jump.
    """

    of: Problem
    noise: NoiseForm
    linearized: tuple[LinearizedDiffusion, Array, Array] | None = None
    last: LastStep | None = None


class CertificateSamples(NamedTuple):
    """The value after the first step less the solution's value, [contracts, pairs], and its derivatives.

    by_weights: from weights of the first step's density; by_paths: pathwise, or None.
    """

    value: Any
    by_weights: Derivatives
    by_paths: Derivatives | None


AfterStep = tuple[Array, Array, Array]
"""The value after a first step including later defects, the part from defects, and f dt: [contracts, paths]."""
Slopes = tuple[Array, Array]
"""The slopes of this value and of its defect part to the state at date 1, [contracts, dim, paths]."""


def samples(
    solution: Solution,
    own: Array,
    form: SampleSettings,
    start: FirstStep,
    quantities: Array | None,
    floor: Array,
    *,
    key: PRNGKeyArray,
) -> CertificateSamples:
    """Return a block of samples.

    own: the solution's value today, [contracts]; quantities: [contracts] of a portfolio with one linear driver,
    whose samples are sums over contracts; None for samples of each contract. floor: lower bound of the
    continuation value (`exercise_floor`).
    """
    problem, pairs = solution.problem, form.pairs
    t, x0, dt = problem.times[0], problem.x0, problem.dt
    late, _ = ends_of_step(problem, jnp.asarray(0))
    at_end = 1.0 if form.at_end else late  # weight of the driver at the end, in derivatives
    first, later, at_jumps = jax.random.split(key, 3)
    noise = jnp.sqrt(dt) * normals(first, (pairs, problem.dim), x0.dtype)
    dw = jnp.concatenate([noise, -noise])
    x = jax.vmap(lambda dw: start.of.advance(t, x0, dw))(dw).T
    middle = start.of.advance(t, x0, jnp.zeros_like(x0))
    z = problem.z_of(t, x0, solution.approximation.gradient(0, x0)).reshape(-1, problem.dim)
    tilts = _tilts(problem, own, z, start) if form.reads_z else None
    moves = jnp.sqrt(
        problem.maturity * jnp.sum(z**2, axis=1)
    )  # the standard deviation of the value over its life
    size = jnp.maximum(jnp.abs(own), _LEAST_SIZE * moves)
    blur = form.blur * size + jnp.finfo(own.dtype).tiny
    settings = {"key": later, "points": form.points, "blur": blur, "reads_z": form.reads_z}
    linearized = None if start.linearized is None else start.linearized[0]
    settings["last"] = start.last
    follow = partial(defects_along_paths, solution, linearized=linearized, floor=floor, **settings)
    jumps = problem.draw_jumps(at_jumps, (pairs,))

    def summed(of_each):
        if quantities is None:
            return of_each
        return jax.tree.map(partial(_weighted, quantities), of_each)

    def after(x, y=None, copies: int = 2) -> AfterStep:
        noise = jax.tree.map(lambda a: jnp.concatenate([a] * copies), jumps)
        x = jax.vmap(problem.jumped, (-1, 0), -1)(x, noise)
        here, missing = follow(x, y, copies=copies)
        driver = here.driver
        if start.linearized is not None:
            linearized, factor, _ = start.linearized
            of_path = jax.vmap(partial(linearized.compensator, problem.times[1]), (-1, 0, None))
            driver = driver - of_path(x, here.gamma[0][0], factor)[None]
        driver = dt * (driver + here.slope * missing)
        return summed((here.worth + missing + at_end * driver, missing, driver))

    y = still = None
    if not form.knows_values:
        still = (own - dt * problem.flat_driver(t, x0, own, z))[:, None]
        y, still = still + z @ dw.T, jnp.broadcast_to(still, (own.size, pairs))
    if quantities is not None and tilts is not None:
        tilts = tilts[:1]
    found, slopes = _with_slopes(after, x) if form.is_smooth else (after(x, y), None)
    total, missing, driver = found
    tilted = 0.0 if tilts is None else (tilts @ dw.T) * missing
    value = total - (at_end - late) * driver + tilted - summed(own)[:, None]
    # the middle path does not affect means, since weights have zero mean: it reduces noise
    between = after(jnp.broadcast_to(middle[:, None], (problem.dim, pairs)), still, 1)[0]
    centered = total + tilted - jnp.tile(between, 2)
    control = Parabola(middle, *summed(_slopes(solution)))

    def of_step(dw, x, total, missing, slopes):
        step = StepDensity(start.of, t, x0, dw, start.noise)
        return _derivatives(step, x, control, tilts, total, missing, slopes)

    axes = (0, -1, -1, -1, None if slopes is None else -1)
    both = jax.vmap(of_step, axes, 1)(dw, x, centered, missing, slopes)
    found = CertificateSamples(value, *both)
    return jax.tree.map(lambda x: 0.5 * (x[:, :pairs] + x[:, pairs:]), found)


def _weighted(quantities: Array, of_each: Array) -> Array:
    return jnp.tensordot(quantities, of_each, 1)[None]


def _with_slopes(after: Callable, x: Float[Array, "dim paths"]) -> tuple[AfterStep, Slopes]:
    """Return the result of `after`, and its slopes along each path."""
    found, pull = jax.vjp(after, x)
    contracts, dim = len(found[0]), len(x)
    if contracts > dim:  # one sweep per coordinate

        def of_axis(axis):
            tangent = jnp.broadcast_to(axis[:, None], x.shape)
            return jax.jvp(after, (x,), (tangent,))[1]

        moved = jax.lax.map(of_axis, jnp.eye(dim, dtype=x.dtype))
        return found, (jnp.moveaxis(moved[0], 0, 1), jnp.moveaxis(moved[1], 0, 1))

    def of_contract(row):
        zero = jnp.zeros_like(found[0])
        one = zero.at[row].set(1.0)
        return pull((one, zero, zero))[0], pull((zero, one, zero))[0]

    return found, jax.lax.map(of_contract, jnp.arange(contracts))


def _derivatives(
    step: StepDensity,
    x: State,
    control: Parabola,
    tilts: Float[Array, "contracts dim"] | None,
    total: Float[Array, " contracts"],
    missing: Float[Array, " contracts"],
    slopes: Slopes | None,
) -> tuple[Derivatives, Derivatives | None]:
    """Return samples of Delta and Gamma from weights and from path slopes; those of a parabola are known.

    The defects are discounted by 1 + f_z . dW, which depends on x even if X_1 is fixed.
    """
    slope, curvature = step.weights()
    carried, *own = step.carried(control)
    own, rest = Derivatives(*own), total - carried
    delta = own.first + rest[:, None] * slope[None]
    gamma = own.second + rest[:, None, None] * curvature[None]
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
    gamma = 0.5 * (gamma + jnp.swapaxes(gamma, 1, 2))  # of each path, for its standard error
    return by_weights, Derivatives(own.first + delta, own.second + gamma)


def _slopes(solution: Solution) -> tuple[Array, Array]:
    """Return the solution's Delta and Gamma today; zero for a Gamma that it does not learn."""
    found, x0 = solution.approximation, solution.problem.x0
    slope = found.gradient(0, x0).reshape(-1, x0.size)
    try:
        second = found.hessian(0, x0).reshape(-1, x0.size, x0.size)
    except TypeError:
        second = jnp.zeros((*slope.shape, x0.size), slope.dtype)
    return slope, second


def _tilts(problem: Problem, y: Array, z: Array, start: FirstStep) -> Float[Array, "contracts dim"]:
    """Return f_z of every contract today, the drift of dW; contracts do not depend on each other's z."""
    t, x = problem.times[0], problem.x0
    if start.linearized is not None:
        linearized, factor, gamma = start.linearized
        return linearized.drift(t, x, y[0], z[0], gamma, factor)[None]
    _, pull = jax.vjp(lambda z: problem.flat_driver(t, x, y, z), z)
    return pull(jnp.ones_like(y))[0]


def _better(by_weights: Any, by_paths: Any, unit: Array) -> Any:
    """Return each contract's less noisy estimate; the one from weights if the two disagree.

    unit: the unit in which entries are compared.
    """
    largest = lambda x: jnp.max(x, axis=tuple(range(1, x.ndim)), keepdims=True)
    noise = jnp.hypot(by_weights.std_error, by_paths.std_error)
    most = cover(noise[0].size)
    agree = largest(jnp.abs(by_weights.mean - by_paths.mean) - most * noise) <= 0.0
    is_less = largest(by_paths.std_error / unit) < largest(by_weights.std_error / unit)
    pick = lambda path, weight: jnp.where(agree & is_less, path, weight)
    return jax.tree.map(pick, by_paths, by_weights)


def figures_of_today(
    problem: Problem, form: SampleSettings, start: FirstStep, own: Array, found: CertificateSamples
) -> tuple[tuple[Array, ...], list[Array], Array, Array]:
    """Return value, Delta and Gamma, with the driver at the start of the first step, and standard errors.

    Also return the error of the solution's value, and the effect of Gamma's squared error: see `Certificate`.
    The fields of `found` are estimates with `mean` and `std_error`.
    """
    shape, dim, t, x0 = problem.contracts, problem.dim, problem.times[0], problem.x0
    derivatives: Derivatives = found.by_weights
    unit = 1.0 / start.noise.scale
    if found.by_paths is not None:
        derivatives = Derivatives(
            _better(derivatives.first, found.by_paths.first, unit[None]),
            _better(
                derivatives.second, found.by_paths.second, unit[None, :, None] * unit[None, None]
            ),
        )
    rest, slope, second = (jnp.asarray(x.mean) for x in (found.value, *derivatives))
    errors = [x.std_error for x in (found.value, *derivatives)]
    if start.linearized is not None:
        problem = with_frozen_gamma(*start.linearized)
    z0 = problem.z_of(t, x0, slope.reshape(*shape, dim)).reshape(-1, dim)

    _, early = ends_of_step(problem, jnp.asarray(0))

    def today(x, ahead):
        """Return u(0, x), given the mean of what lies ahead."""
        y = ahead + own
        for _ in range(_FIXED_POINT):
            y = ahead + own + early * problem.dt * problem.flat_driver(t, x, y, z0)
        return y

    def near(x):
        h = x - x0
        return today(x, rest + slope @ h + 0.5 * (second @ h) @ h)

    value, stretch = jax.jvp(lambda ahead: today(x0, ahead), (rest,), (jnp.ones_like(rest),))
    if not form.at_end:  # otherwise they already have the whole driver
        slope, second = jax.jacfwd(near)(x0), jax.jacfwd(jax.jacfwd(near))(x0)
        errors = [jax.vmap(jnp.multiply)(jnp.abs(stretch), x) for x in errors]
    left, tiny = jnp.zeros_like(own), jnp.finfo(own.dtype).tiny
    if problem.reads_gamma:
        left = _OF_SQUARE * ((value - own) / jnp.maximum(jnp.abs(value), tiny)) ** 2
    shaped = lambda x: x.reshape(*shape, *x.shape[1:])
    figures = shaped(value), shaped(slope), shaped(second)
    return figures, list(map(shaped, errors)), shaped(value - own), shaped(left)


def cover(entries: int) -> float:
    """Return the number of standard errors that covers all entries with probability .997 (Bonferroni)."""
    return NormalDist().inv_cdf(1.0 - _OUTSIDE / entries)
