"""Certificates of today's value, Delta and Gamma: estimates from fresh paths, with standard errors."""

import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.blas_threads import single_blas_thread
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ...fields import Number
from ...numbers_shown import repr_with_numbers
from ..dynamics.driver_form import driver_forms, no_certificate_reason
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.forward_paths import sampled_states
from ..dynamics.gamma_drivers import linearized_dynamics, linearized_first_step
from ..dynamics.step_density import noise_form
from ..problem import Problem, reads_z
from ..solution import Solution
from ..solver import RESULTS
from ..solvers.projection_pursuit import RidgeExpansion
from .book_certificate import book_figures
from .certificate_samples import (
    CertificateSamples,
    FirstStep,
    SampleSettings,
    figures_of_today,
    samples,
)
from .continuity import Jumping, jumping
from .defects import LastStep

_NUMBERS = 2**21  # samples of Gamma in memory at once
_MOST_PAIRS = 1024  # most path pairs of a block
_POINTS = {2: 32, 10: 8}  # dimension, at most -> points of a fan of steps; two for more dimensions
_POINTS_AT_END = 32  # points of a fan of the last step if the payoff may jump
_LOOK = 4  # paths that determine the form of that step's noise
_FEW = 10  # dimensions up to which a linear system is solved for each point
_WEIGHTS_ALONE = 2  # dimensions up to which pathwise derivatives would not reduce noise
_BLUR = (
    0.01  # relative distance from the value within which path derivatives include the exercise rule
)


class Estimate(eqx.Module):
    """A mean over paths and its standard error.

    Attributes:
        mean: The estimate, of any shape.
        std_error: Its standard error.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import Estimate
        >>> Estimate(jnp.array([8.0, 7.5]), jnp.array([0.25, 0.125]))
        Estimate(mean=[8, 7.5], std_error=[0.25, 0.125])
    """

    __repr__ = repr_with_numbers

    mean: Float[Array, "*shape"]
    std_error: Float[Array, "*shape"]

    @property
    def relative_error(self) -> Float[Array, ""]:
        """The largest standard error divided by the largest entry of the mean."""
        return jnp.max(self.std_error) / jnp.max(jnp.abs(self.mean))


class Certificate(eqx.Module):
    """Today's value, Delta and Gamma, estimated by `certify` on fresh paths.

    Attributes:
        value: The value, of shape [*contracts].
        delta: The gradient in the state, [*contracts, dim].
        gamma: The Hessian in the state, [*contracts, dim, dim].
        missed: The value less the solution's value, [*contracts]: the error of the solution.
        left: The error not covered by standard errors, as a fraction of each figure, [*contracts]: if the
            driver reads Gamma, and from `solve` without a solver that of discounting by long steps; else 0.
    """

    __repr__ = repr_with_numbers

    value: Estimate
    delta: Estimate
    gamma: Estimate
    missed: Float[Array, "*contracts"]
    left: Float[Array, "*contracts"]


@full_matmul_precision
@single_blas_thread
def certify(
    solution: Solution,
    *,
    key: PRNGKeyArray,
    num_paths: int = 65536,
    quantities: Number | None = None,
) -> Certificate:
    """Estimate today's value, Delta and Gamma on fresh paths, with standard errors.

    The estimates are independent of the training paths. The solution serves as a control variate: a poor
    solution increases the standard errors but hardly biases the estimates.

    *Value.* u(0, x0) is the solution's value plus the mean over paths of its defects, the errors in the
    equation over each step (`docs/derivations.md`). If the driver is affine in y and z, the only errors are
    noise and time discretization. Otherwise there is also the square of the solution's error. Standard errors
    show neither: compare the certificates of two solutions, on other dates, as `solve` does. A right to
    exercise follows the solution's rule, so the value is a lower bound.

    *Drivers that read Gamma.* The square is that of Gamma's error, which may be large. For call spreads under
    uncertain volatility, when too few functions missed 7 and 9 % of the value, the certificate was off by 0.5
    and 1.7 %. Therefore `left` is 2 m^2, with m the missed fraction, and `solve` adds it to the errors.

    *Delta and Gamma.* They are means of the value after the first step, weighted by derivatives of that step's
    density (likelihood ratios), on antithetic pairs: neither the solution nor the payoff is differentiated. In
    three or more dimensions, if no path stops, the same paths give a second, pathwise estimate with less noise.
    It is used if both agree and no function jumps before maturity; a jump of the terminal value is smoothed by
    the last step's density.

    *Many contracts.* A `ProjectionPursuit` solution has its own martingale as a control variate. Value, Delta
    and Gamma of every contract are then combinations of moments of the first step's noise, on the same paths;
    standard errors come from means over blocks of paths. The exercise rule is that of the solution, improved
    once on other paths, a quarter of `num_paths`. The gain is included in the value's standard error.

    In the value, the driver over the first step is the mean of both ends. In Delta and Gamma, it is taken only
    at the end if it reads z or Gamma.

    While it runs, BLAS is limited to one thread in the whole process.

    Args:
        solution: A solution from `solve`, with u at all dates and states.
        key: Key of the paths, which must differ from the training paths.
        num_paths: The number of paths.
        quantities: The quantity of each contract in a portfolio, whose figures are then returned, with the
            errors of the sum along each path. None: the figures of each contract.

    Returns:
        The three figures and their standard errors, for each contract or the portfolio. A portfolio whose
        contracts do not share one linear driver raises TypeError; quantities that do not have the contracts'
        shape raise ValueError.

    Raises:
        ValueError: There are fewer than four paths.
        TypeError: The driver reads the values of other contracts, or the Gamma of several, or values are
            switched.

    Examples:
        >>> from pricing.fbsde import Solution, certify
        >>> def delta(solution: Solution, key):
        ...     found = certify(solution, key=key).delta
        ...     return found.mean, found.std_error
    """
    problem = solution.problem
    if num_paths < 4:
        raise ValueError(f"num_paths={num_paths}: give four or more.")
    if (reason := no_certificate_reason(problem, driver_forms(problem, "is_of_each"))) is not None:
        raise TypeError(f"{reason}; compare solutions on half of the dates, or by other functions")
    flat = None if quantities is None else _of_portfolio(solution, quantities)
    return figures_on_paths(solution, key, num_paths, flat)


def figures_on_paths(
    solution: Solution,
    key: PRNGKeyArray,
    num_paths: int,
    quantities: Float[Array, " contracts"] | None = None,
) -> Certificate:
    """Return the certificate of an equation by summing defects; quantities are flat.

    Raises:
        RuntimeError: A figure is not finite: the noise of the first step does not move every coordinate.
    """
    problem = solution.problem
    if isinstance(solution.approximation, RidgeExpansion):
        return _of_book(solution, key, num_paths, quantities)
    dim, count = problem.dim, math.prod(problem.contracts)
    numbers = count * dim * dim if quantities is None else max(count, dim) * dim
    pairs = max(2, min(_MOST_PAIRS, num_paths // 2, _NUMBERS // numbers))
    blocks = -(-num_paths // (2 * pairs))
    known = solution.approximation.result(0, min(1, problem.num_steps - 1), problem.x0)
    knows_values = bool(known == RESULTS.successful)
    points = next((number for most, number in _POINTS.items() if dim <= most), 2)
    is_smooth = knows_values and problem.is_alive is None and dim > _WEIGHTS_ALONE
    jumps = jumping(problem) if is_smooth else Jumping(False, False)
    has_last = (
        problem.num_steps > 1 and not problem.reads_gamma
    )  # a step with a density after the first
    is_smooth = is_smooth and not jumps.before and (has_last or not jumps.at_end)
    of_z = reads_z(problem)
    at_end = of_z or problem.reads_gamma
    form = SampleSettings(pairs, points, knows_values, of_z, at_end, is_smooth, _BLUR)
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
            "solution is not finite far out; use Delta and Gamma of the solution itself."
        )
    return found


def _of_book(
    solution: Solution, key: PRNGKeyArray, num_paths: int, quantities: Array | None
) -> Certificate:
    found = book_figures(solution, key, num_paths, quantities)
    figures = map(Estimate, found.means, found.std_errors)
    return Certificate(*figures, missed=found.missed, left=jnp.zeros_like(found.missed))


def without_noise(solution: Solution) -> Certificate:
    """Return today's figures from a grid solution, which has no noise."""
    t, x0 = solution.problem.times[0], solution.problem.x0
    own = solution.value(t, x0), solution.delta(t, x0), solution.gamma(t, x0)
    figures = [Estimate(figure, jnp.zeros_like(figure)) for figure in own]
    return Certificate(*figures, missed=jnp.zeros_like(own[0]), left=jnp.zeros_like(own[0]))


def on_grids(solution: Solution, coarser: Iterable[Solution]) -> Certificate:
    """Return today's figures from a grid, with the sum of their differences from coarser grids as errors."""
    one, others = without_noise(solution), [without_noise(other) for other in coarser]

    def of_name(name: str) -> Estimate:
        own = getattr(one, name).mean
        apart = [jnp.abs(own - getattr(other, name).mean) for other in others]
        return Estimate(own, jnp.sum(jnp.stack(apart), axis=0))

    figures = map(of_name, ("value", "delta", "gamma"))
    return Certificate(*figures, missed=one.missed, left=one.left)


@stored_jit(quick_to_compile=True)
def _certificate(
    solution: Solution,
    form: SampleSettings,
    start: FirstStep,
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
        sums = lambda power: jax.tree.map(lambda x: jnp.sum(x**power, axis=1), found)
        return sums(1), sums(2)

    def add(index, sums: tuple[CertificateSamples, CertificateSamples]):
        return jax.tree.map(jnp.add, sums, of_block(index))

    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_block, 0))
    first, second = jax.lax.fori_loop(0, blocks, add, empty)
    count = (form.pairs * blocks).astype(own.dtype)
    means = jax.tree.map(lambda x: x / count, first)
    variance = lambda x, mean: jnp.maximum(x / count - mean**2, 0.0) / (count - 1)
    errors = jax.tree.map(lambda x, mean: jnp.sqrt(variance(x, mean)), second, means)
    estimates = jax.tree.map(Estimate, means, errors)
    if quantities is not None:
        problem, own = _as_one(problem, quantities), jnp.sum(quantities * own)[None]
    *figures, missed, left = figures_of_today(problem, form, start, own, estimates)
    return Certificate(*map(Estimate, *figures), missed=missed, left=left)


def _start(solution: Solution) -> FirstStep:
    problem, found = solution.problem, solution.approximation
    linearized = linearized_dynamics(problem)
    if linearized is None:
        return FirstStep(problem, noise_form(problem))
    t, x0 = problem.times[0], problem.x0
    z = problem.z_of(t, x0, found.gradient(0, x0))
    gamma = found.hessian(0, x0)
    factor = linearized.factor(t, x0, found.value(0, x0), z, gamma)
    first = linearized_first_step(linearized, factor)
    return FirstStep(first, noise_form(first), (linearized, factor, gamma))


def _last_step(problem: Problem, points: int) -> LastStep:
    """Return the settings to differentiate the mean of the last step, with the form of its noise."""
    states = sampled_states(problem, _LOOK, key=jax.random.key(0))[-2]
    noise = noise_form(problem, problem.times[-2], states)
    if noise.factor is None and problem.dim > _FEW:
        return LastStep(noise, points)
    return LastStep(noise, max(points, _POINTS_AT_END))


def _of_portfolio(solution: Solution, quantities: Number) -> Float[Array, " contracts"]:
    """Return the flat quantities; a shape other than that of the contracts raises ValueError.

    Raises:
        TypeError: The driver of the sum is not the sum of the drivers, checked at one state.
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
            "the contracts of a portfolio do not share one linear driver, so its figures are not "
            "sums along paths: certify each contract, or solve one problem whose terminal value "
            "is the sum"
        )
    return flat


def _as_one(problem: Problem, quantities: Float[Array, " contracts"]) -> Problem:
    """Return the problem of a portfolio as a single contract, with the common driver."""
    shape, dim = problem.contracts, problem.dim

    def driver(t, x, y, z):
        each = jnp.broadcast_to(y, shape), jnp.broadcast_to(z, (*shape, dim))
        return problem.driver(t, x, *each).reshape(-1)[0]

    total = lambda x: jnp.sum(quantities * problem.terminal(x).reshape(-1))
    return eqx.tree_at(lambda p: (p.terminal, p.driver), problem, (total, driver))
