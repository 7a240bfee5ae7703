"""Certify value, Delta and Gamma of today: unbiased figures from fresh paths, with standard errors."""

import math
from statistics import NormalDist

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ...fields import Number
from ..dynamics.driver_form import is_of_each
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.gamma_drivers import first_step_onward, onward_of, with_gamma_held
from ..dynamics.simulation import simulate
from ..dynamics.step_density import noise_form
from ..problem import Problem, ends_of_step, reads_z
from ..results import RESULTS
from ..solution import Solution
from .certificate_samples import (
    Derivatives,
    Form,
    Samples,
    Start,
    samples,
)
from .continuity import Jumping, jumping
from .defects import LastStep

_FIXED_POINT = 8  # iterations, each of which gains a factor of dt f_y / 2
_NUMBERS = 2**21  # of samples of Gamma in memory at once
_MOST_PAIRS = 1024  # of a block
_OUTSIDE = 0.00135  # chance of a figure above its error, and below: three standard errors
_POINTS = {2: 32, 10: 8}  # of the fan of steps from a state, up to so many dimensions; two in more
_POINTS_AT_END = 32  # of a fan of the last step where the payoff may jump
_LOOK = 4  # paths on which the form of that step's noise is looked at
_FEW = 10  # dimensions in which a system is solved for each of these points
_WEIGHTS_ALONE = 2  # dimensions up to which derivatives by paths would take off no noise
_OF_SQUARE = 2.0  # error where f reads Gamma, over the square of the missed fraction
_BLUR = (
    0.01  # of the value: how near to it exercise pays where a path's derivative has the rule's part
)


class Estimate(eqx.Module):
    """A mean over paths and its standard error.

    Attributes:
        mean: The estimate, of any shape.
        std_error: Its standard error.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import Estimate
        >>> float(Estimate(jnp.array(8.0), jnp.array(0.5)).relative_error)
        0.0625
    """

    mean: Float[Array, "*shape"]
    std_error: Float[Array, "*shape"]

    @property
    def relative_error(self) -> Float[Array, ""]:
        """The largest standard error, over the largest entry of the mean."""
        return jnp.max(self.std_error) / jnp.max(jnp.abs(self.mean))


class Certificate(eqx.Module):
    """Value, Delta and Gamma of today from fresh paths; the solution serves only as a control variate.

    Attributes:
        value: The value, of shape [*contracts].
        delta: The gradient, [*contracts, dim].
        gamma: The Hessian, [*contracts, dim, dim].
        missed: Error of the solution's own value, [*contracts]: the value less it.
        left: Estimated effect of the squared error of Gamma where the driver reads it, as a fraction of value,
            Delta and Gamma, [*contracts]; else 0.

    Examples:
        >>> from pricing.fbsde import Certificate
        >>> def interval(found: Certificate):
        ...     value, error = found.value.mean, found.value.std_error
        ...     return value - 2 * error, value + 2 * error
    """

    value: Estimate
    delta: Estimate
    gamma: Estimate
    missed: Float[Array, "*contracts"]
    left: Float[Array, "*contracts"]


@full_matmul_precision
def certify(
    solution: Solution,
    *,
    key: PRNGKeyArray,
    num_paths: int = 65536,
    quantities: Number | None = None,
) -> Certificate:
    """Estimate value, Delta and Gamma of today on fresh paths, with standard errors.

    The value is the solution's plus the mean of the defects of its equation along paths (`defects`). So an
    error of the solution does not enter at all where the driver is affine in y and z. Where it is not, the
    square of the error enters, which standard errors do not show: compare the certificates of two solutions,
    as `solve` does. A right to exercise follows the solution's rule, whose errors enter by their square, too,
    from below. The error of the grid of dates remains.

    Where the driver reads Gamma (`gamma_drivers.Onward`), the square is that of Gamma's error, which may be
    large. Of call spreads under uncertain volatility by too few functions, 7 and 9 % of the value were missed,
    and 0.5 and 1.7 % left. So `left` is 2 m^2, m the share that was missed, and `solve` adds it to the errors.

    Delta and Gamma are derivatives of the first step's density (`step_density`), on pairs of opposite steps:
    neither the solution nor the payoff is differentiated. In three dimensions or more, where no path stops,
    they are estimated once more on the same paths: Delta by the derivative of a path, Gamma by the density's
    derivative of that. In many dimensions the noise of these is far less, but they miss jumps, and rises that
    are as steep (`continuity`). So where what is paid at the end may jump, the last step's mean is
    differentiated by its density; where anything jumps before the end (the driver, a step, what exercise pays),
    weights stand alone. Those by paths are taken where their noise is less, and both agree as often as all
    entries of two right estimates do.

    The driver over the first step is the mean of both ends in the value; in Delta and Gamma it is the end alone
    where it reads z or Gamma.

    Args:
        solution: A solution by `solve`, with u at all dates and states.
        key: Key of the paths, which must not be those of the training.
        num_paths: The number of paths.
        quantities: The quantity of each contract in a portfolio, whose figures are then returned: its errors
            are those of the sum along each path. None: the figures of each contract.

    Returns:
        The three figures and their standard errors, of each contract or of the portfolio.
        A portfolio whose contracts do not share one linear driver is a TypeError; quantities that do not have
        the contracts' shape are a ValueError.

    Raises:
        ValueError: The paths are fewer than four.
        TypeError: The driver reads the values of other contracts, or Gamma of many, or values are switched.
        RuntimeError: A figure is not finite: the noise of the first step does not move every coordinate.

    Examples:
        >>> from pricing.fbsde import Solution, certify
        >>> def delta(solution: Solution, key):
        ...     found = certify(solution, key=key).delta
        ...     return found.mean, found.std_error
    """
    problem = solution.problem
    if num_paths < 4:
        raise ValueError(f"num_paths={num_paths}: give four or more.")
    if (reason := unsummed(problem)) is not None:
        raise TypeError(f"{reason}; compare solutions on half of the dates, or by other functions")
    dim, count = problem.dim, math.prod(problem.contracts)
    numbers = count * dim * dim
    if quantities is not None:
        quantities, numbers = _of_portfolio(solution, quantities), max(count, dim) * dim
    pairs = max(2, min(_MOST_PAIRS, num_paths // 2, _NUMBERS // numbers))
    blocks = -(-num_paths // (2 * pairs))
    known = solution.approximation.result(0, min(1, problem.num_steps - 1), problem.x0)
    knows_values = bool(known == RESULTS.successful)
    points = next((number for most, number in _POINTS.items() if dim <= most), 2)
    is_smooth = knows_values and problem.is_alive is None and dim > _WEIGHTS_ALONE
    jumps = jumping(problem) if is_smooth else Jumping(False, False)
    has_last = (
        problem.num_steps > 1 and not problem.reads_gamma
    )  # a step with a density, after the first
    is_smooth = is_smooth and not jumps.before and (has_last or not jumps.at_end)
    of_z = reads_z(problem)
    at_end = of_z or problem.reads_gamma
    form = Form(pairs, points, knows_values, of_z, at_end, is_smooth, _BLUR)
    start = _start(solution)
    if is_smooth and jumps.at_end:
        last = _last_step(problem, points)
        start = start._replace(last=last)
        pairs = max(2, min(pairs, _NUMBERS // (count * dim * last.points)))
        form, blocks = form._replace(pairs=pairs), -(-num_paths // (2 * pairs))
    found = _certificate(solution, form, start, jnp.asarray(blocks), quantities, key=key)
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found)):
        raise RuntimeError(
            "a figure is not finite: the noise of the first step does not move every coordinate, or the "
            "solution is not finite far out; take Delta and Gamma of the solution itself."
        )
    return found


@stored_jit(quick_to_compile=True)
def _certificate(
    solution: Solution,
    form: Form,
    start: Start,
    blocks: Int[Array, ""],
    quantities: Float[Array, " contracts"] | None,
    *,
    key: PRNGKeyArray,
) -> Certificate:
    problem = solution.problem
    own = solution.approximation.value(0, problem.x0).reshape(-1)
    floor = exercise_floor(problem)

    def of_block(index):
        key_of = jax.random.fold_in(key, index)
        found = samples(solution, own, form, start, quantities, floor, key=key_of)
        sums = lambda power: jax.tree.map(lambda x: jnp.sum(x**power, axis=1), found)  # noqa: E731
        return sums(1), sums(2)

    def add(index, sums: tuple[Samples, Samples]):
        return jax.tree.map(jnp.add, sums, of_block(index))

    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_block, 0))
    first, second = jax.lax.fori_loop(0, blocks, add, empty)
    count = (form.pairs * blocks).astype(own.dtype)
    means = jax.tree.map(lambda x: x / count, first)
    variance = lambda x, mean: jnp.maximum(x / count - mean**2, 0.0) / (count - 1)  # noqa: E731
    errors = jax.tree.map(lambda x, mean: jnp.sqrt(variance(x, mean)), second, means)
    estimates = jax.tree.map(Estimate, means, errors)
    if start.onward is not None:
        problem = with_gamma_held(*start.onward)
    if quantities is not None:
        problem, own = _as_one(problem, quantities), jnp.sum(quantities * own)[None]
    return _with_first_step(problem, form, start.noise.scale, own, estimates)


def _start(solution: Solution) -> Start:
    """Return the step from today."""
    problem, found = solution.problem, solution.approximation
    onward = onward_of(problem)
    if onward is None:
        return Start(problem, noise_form(problem))
    t, x0 = problem.times[0], problem.x0
    z = problem.z_of(t, x0, found.gradient(0, x0))
    gamma = found.hessian(0, x0)
    mixing = onward.mixing(t, x0, found.value(0, x0), z, gamma)
    first = first_step_onward(onward, mixing)
    return Start(first, noise_form(first), (onward, mixing, gamma))


def _last_step(problem: Problem, points: int) -> LastStep:
    """Return the settings to differentiate the mean of the last step; some paths show its noise's form."""
    states = simulate(problem, _LOOK, key=jax.random.key(0)).states[-2]
    noise = noise_form(problem, problem.times[-2], states)
    if noise.mixing is None and problem.dim > _FEW:
        return LastStep(noise, points)
    return LastStep(noise, max(points, _POINTS_AT_END))


def _better(by_weights: Estimate, by_paths: Estimate, unit: Array) -> Estimate:
    """Return each contract's estimate with less noise; the one by weights where the two do not agree.

    unit: unit of the entries, which are compared as multiples of it.
    """
    largest = lambda x: jnp.max(x, axis=tuple(range(1, x.ndim)), keepdims=True)  # noqa: E731
    noise = jnp.hypot(by_weights.std_error, by_paths.std_error)
    most = cover(noise[0].size)
    agree = largest(jnp.abs(by_weights.mean - by_paths.mean) - most * noise) <= 0.0
    is_less = largest(by_paths.std_error / unit) < largest(by_weights.std_error / unit)
    pick = lambda path, weight: jnp.where(agree & is_less, path, weight)  # noqa: E731
    return jax.tree.map(pick, by_paths, by_weights)


def _with_first_step(
    problem: Problem, form: Form, scale: Array, own: Array, found: Samples
) -> Certificate:
    """Return the figures, with the driver at the start of the first step.

    scale: change of each coordinate by a unit of noise.
    """
    shape, dim, t, x0 = problem.contracts, problem.dim, problem.times[0], problem.x0
    derivatives: Derivatives = found.by_weights
    unit = 1.0 / scale
    if found.by_paths is not None:
        derivatives = Derivatives(
            _better(derivatives.delta, found.by_paths.delta, unit[None]),
            _better(
                derivatives.gamma, found.by_paths.gamma, unit[None, :, None] * unit[None, None]
            ),
        )
    rest, slope, second = (jnp.asarray(x.mean) for x in (found.value, *derivatives))
    errors = [x.std_error for x in (found.value, *derivatives)]
    z0 = problem.z_of(t, x0, slope.reshape(*shape, dim)).reshape(-1, dim)

    _, early = ends_of_step(problem, jnp.asarray(0))

    def today(x, ahead):
        """Return u(0, x), the mean of what is ahead given."""
        y = ahead + own
        for _ in range(_FIXED_POINT):
            y = ahead + own + early * problem.dt * problem.flat_driver(t, x, y, z0)
        return y

    def near(x):
        h = x - x0
        return today(x, rest + slope @ h + 0.5 * (second @ h) @ h)

    value, stretch = jax.jvp(lambda ahead: today(x0, ahead), (rest,), (jnp.ones_like(rest),))
    if not form.at_end:  # otherwise they have the whole driver already
        slope, second = jax.jacfwd(near)(x0), jax.jacfwd(jax.jacfwd(near))(x0)
        errors = [jax.vmap(jnp.multiply)(jnp.abs(stretch), x) for x in errors]
    second = 0.5 * (second + jnp.swapaxes(second, 1, 2))
    left, tiny = jnp.zeros_like(own), jnp.finfo(own.dtype).tiny
    if problem.reads_gamma:
        left = _OF_SQUARE * ((value - own) / jnp.maximum(jnp.abs(value), tiny)) ** 2
    shaped = lambda x: x.reshape(*shape, *x.shape[1:])  # noqa: E731
    figures = zip((value, slope, second), errors, strict=True)
    estimates = (Estimate(shaped(mean), shaped(error)) for mean, error in figures)
    return Certificate(*estimates, missed=shaped(value - own), left=shaped(left))


def cover(entries: int) -> float:
    """Return the standard errors within which all entries are in 997 of 1,000 cases, by Bonferroni's rule."""
    return NormalDist().inv_cdf(1.0 - _OUTSIDE / entries)


def unsummed(problem: Problem) -> str | None:
    """Return the reason for which the defects of an equation are not summed, in words; None if they are."""
    if problem.reads_gamma and problem.contracts:
        return "the driver reads Gamma: the errors of each contract need paths with a diffusion of their own"
    if problem.reads_gamma and bool(problem.has_kink[1]):
        return "the driver reads Gamma, which has a kink at the first date: there are too few dates"
    if problem.switch is not None or not is_of_each(problem):
        return (
            "a contract reads the values of others, by its driver or a switch: defects of such a system are "
            "not summed"
        )
    return None


def _of_portfolio(solution: Solution, quantities: Number) -> Float[Array, " contracts"]:
    """Return the quantities, flat; a ValueError if they are of another shape than the contracts.

    Raises:
        TypeError: The driver of the sum is not the sum of the drivers, by a look at one state.
    """
    problem, flat = solution.problem, solution.portfolio(quantities).quantities.reshape(-1)
    if problem.reads_gamma:
        raise TypeError("the driver reads Gamma: certify one contract, without quantities")
    t, x0 = problem.times[0], problem.x0
    numbers = jax.random.normal(jax.random.key(0), (flat.size, problem.dim + 1), x0.dtype)
    driver = problem.flat_driver(t, x0, numbers[:, 0], numbers[:, 1:])
    total = flat @ numbers
    of_total = _as_one(problem, flat).driver(t, x0, total[0], total[1:])
    if not jnp.allclose(flat @ driver, of_total, rtol=1e-3, atol=1e-3 * jnp.max(jnp.abs(driver))):
        raise TypeError(
            "the contracts of a portfolio have not one linear driver, so its figures are no sums along paths: "
            "certify each contract, or solve one problem whose terminal value is the sum"
        )
    return flat


def _as_one(problem: Problem, quantities: Float[Array, " contracts"]) -> Problem:
    """Return the problem of a portfolio as of one contract, with the driver of all."""
    shape, dim = problem.contracts, problem.dim

    def driver(t, x, y, z):
        each = jnp.broadcast_to(y, shape), jnp.broadcast_to(z, (*shape, dim))
        return problem.driver(t, x, *each).reshape(-1)[0]

    total = lambda x: jnp.sum(quantities * problem.terminal(x).reshape(-1))  # noqa: E731
    return eqx.tree_at(lambda p: (p.terminal, p.driver), problem, (total, driver))
