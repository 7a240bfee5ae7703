"""Primal-dual bounds of today's value: the value of the fitted exercise rule, and a dual upper bound."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.blas_threads import single_blas_thread
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ...results import Between, Bounds
from ...sampling.bridge import bridged
from ..dynamics.driver_form import driver_forms, no_bounds_reason
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.forward_paths import has_exact_steps, over_blocks, simulate
from ..problem import Problem
from ..solution import Solution
from .certificate import Certificate, Estimate
from .defects import fan

_INNER_PATHS, _MORE_INNER_PATHS = 64, 256  # the latter if a gap is too wide
_BATCH = 1024  # paths of an upper bound to a tolerance, at a time
_MOST_INNER_PATHS = 4096  # inner paths times batches
_NOISE = 0.1  # standard error of that bound, relative to the tolerance of the value
_WIDE = 0.7  # gap, in the same unit, from which there are more inner paths
_BLOCK = 256  # paths at a time; each has inner paths
SIGNIFICANT = 3.0  # standard errors of a bound

Samples = Float[Array, "*contracts paths"]


@full_matmul_precision
@single_blas_thread
def bounds(
    solution: Solution,
    *,
    key: PRNGKeyArray,
    num_paths: int = 4096,
    num_inner_paths: int = _INNER_PATHS,
    throw: bool = True,
) -> Bounds:
    """Compute lower and upper bounds of u(0, x0) for a right to early exercise, on the same fresh paths.

    The lower bound is the mean of (discounted payoff - M) at the date at which the payoff first exceeds the
    solution's continuation value, where the martingale M only reduces noise. The upper bound is the mean of its
    maximum over dates (Rogers, 2002; Haugh, Kogan, 2004). M increases from one exercise date to the next by V -
    E[V], with V the larger of payoff and continuation value. E[V] is estimated on inner paths (Andersen,
    Broadie, 2004): antithetic pairs, at randomly shifted Sobol' points if their number is a power of two.

    For a right at any time (`Problem.exercise_in_step`), the upper bound also holds for exercise between two
    dates: at the second date it is worth at most the payoff there plus interest and dividends over the step
    (Jensen's inequality). The gap therefore includes the interest and dividends of a step.

    While it runs, BLAS is limited to one thread in the whole process.

    Args:
        solution: The solution, of a problem whose driver discounts: f = -r(t, x) y.
        key: The key of the random numbers.
        num_paths: The number of paths, a multiple of 256.
        num_inner_paths: The number of inner paths from each exercise date, an even number.
        throw: Whether to raise RuntimeError if a bound is not finite.

    Returns:
        The bounds of every contract, their gap and standard errors.

    Raises:
        ValueError: The driver does not just discount, paths jump or may be stopped, there is no early exercise,
            exercise between two dates cannot be bounded, or a number of paths is not such a multiple.

    Examples:
        >>> from pricing.fbsde import Solution, bounds
        >>> def gap(solution: Solution, key):
        ...     return bounds(solution, key=key, num_paths=1024).gap
    """
    problem = solution.problem
    if num_paths % _BLOCK or num_inner_paths % 2:
        raise ValueError(
            f"num_paths={num_paths}, num_inner_paths={num_inner_paths}: give multiples of "
            f"{_BLOCK} and of 2."
        )
    if (reason := no_bounds_reason(problem, driver_forms(problem, "discounts"))) is not None:
        raise ValueError(reason)
    today = problem.times[0], problem.dt, problem.x0
    if problem.exercise_in_step is not None and jnp.any(
        jnp.isinf(problem.exercise_in_step(*today))
    ):
        raise ValueError(
            "bounds of a right at any time need a payoff that is a sum of spots and cash: give the right on "
            "dates (Bermudan)."
        )
    is_exact = _has_one_inner_step(problem)
    means, errors = _means_and_errors(solution, key, num_paths, num_inner_paths, is_exact)
    return Bounds.of(means, errors, stats={"num_paths": num_paths}, throw=throw)


def bounds_to_tolerance(
    solution: Solution,
    found: Certificate,
    keys: list[PRNGKeyArray],
    *,
    tolerance: float,
    seconds: float,
) -> tuple[Estimate, Estimate] | None:
    """Return a lower and an upper bound of the value, on as many paths as needed and as time allows.

    Noise of the inner paths widens the gap: if a pilot's is too wide, there are more of them, and also if they
    reduce the noise more than further paths at the same cost. Like all figures, the bounds are those before a
    right to exercise today. The result is None without a later right, and the bounds are infinite if there is
    no time.
    """
    problem = solution.problem.replace(exercise_in_step=None)  # errors are for the grid
    times = [float(problem.times[date]) for date in problem.exercise_dates if date > 0]
    if not times:
        return None
    solution = eqx.tree_at(lambda s: s.problem, solution, problem.replace(exercise_times=times))
    size, shape = float(jnp.max(jnp.abs(found.value.mean))), found.value.mean.shape
    if seconds <= 0.0 or size == 0.0:
        at = lambda bound: Estimate(jnp.full(shape, bound), jnp.zeros(shape))
        return at(-math.inf), at(math.inf)

    asked, is_exact = tolerance * size, _has_one_inner_step(problem)

    def batch(key: PRNGKeyArray, inner: int) -> tuple[Between, Between]:
        """Return the bounds on a batch of paths, and their standard errors."""
        return _means_and_errors(solution, key, _BATCH, inner, is_exact)

    def timed(key: PRNGKeyArray, inner: int) -> tuple[tuple[Between, Between], float, float]:
        """Return a batch, its noise as a multiple of the noise to reach, and the seconds that it took."""
        started = time.perf_counter()
        both = batch(key, inner)
        noise = float(jnp.max(both[1].upper)) / (_NOISE * asked)
        return both, noise, time.perf_counter() - started

    inner, ratio = _INNER_PATHS, _MORE_INNER_PATHS / _INNER_PATHS
    key, other_key, *more_keys = jax.random.split(keys.pop(0), 2 + _MOST_INNER_PATHS // inner)
    first, noise, each = timed(key, inner)
    left = seconds - each
    is_wide = _WIDE * asked < float(jnp.max(first[0].upper - found.value.mean)) < math.inf
    if ratio * each < left and (is_wide or 2.0 < noise < math.inf):
        other, noise_of_other, each_of_other = timed(other_key, _MORE_INNER_PATHS)
        left -= each_of_other
        if is_wide or noise_of_other < noise / ratio**0.5:  # else more paths have less noise
            first, noise, each, inner = other, noise_of_other, each_of_other, _MORE_INNER_PATHS
    more = min(noise**2, _MOST_INNER_PATHS // inner, 1.0 + left / each) - 1.0
    count = math.ceil(more) if more > 0.0 and noise < math.inf else 0
    means, errors = _pooled([first, *(batch(key, inner) for key in more_keys[:count])])
    return Estimate(means.lower, errors.lower), Estimate(means.upper, errors.upper)


def _pooled(batches: Sequence[tuple[Between, Between]]) -> tuple[Between, Between]:
    """Return means and standard errors of batches of equal size together."""
    means, errors = (
        jax.tree.map(lambda *x: jnp.stack(x), *each) for each in zip(*batches, strict=True)
    )
    mean = jax.tree.map(lambda x: jnp.mean(x, axis=0), means)
    return mean, jax.tree.map(lambda x: jnp.linalg.norm(x, axis=0) / len(batches), errors)


def with_middle_of_bounds(
    found: Certificate, lower: Estimate, upper: Estimate, tolerance: float
) -> Certificate:
    """Return figures whose value is the middle of its bounds, if it misses its tolerance and is nearer to both.

    A sixth of the gap is then part of the standard error: three of them reach the bounds.
    """
    value = found.value
    error = jnp.maximum(
        SIGNIFICANT * value.std_error, upper.mean + SIGNIFICANT * upper.std_error - value.mean
    )
    middle = 0.5 * (lower.mean + upper.mean)
    noise = jnp.maximum(lower.std_error, upper.std_error)
    std_error = noise + jnp.abs(upper.mean - lower.mean) / (2.0 * SIGNIFICANT)
    is_better = (error > tolerance * jnp.abs(value.mean)) & (SIGNIFICANT * std_error < error)
    moved = jnp.where(is_better, middle - value.mean, 0.0)
    value = Estimate(value.mean + moved, jnp.where(is_better, std_error, value.std_error))
    return dataclasses.replace(found, value=value, missed=found.missed + moved)


@stored_jit
def _means_and_errors(
    solution: Solution, key: PRNGKeyArray, num_paths: int, num_inner: int, is_exact: bool
) -> tuple[Between, Between]:
    """Return the means of both bounds and of their gap over all paths, and the standard errors."""
    floor = exercise_floor(solution.problem)
    of_block = lambda key: _samples(solution, floor, key, num_inner, is_exact)
    lower, upper = over_blocks(of_block, num_paths // _BLOCK, key)
    samples = jnp.stack([lower, upper, upper - lower])
    errors = jnp.std(samples, axis=-1) / num_paths**0.5
    return Between(*jnp.mean(samples, axis=-1)), Between(*errors)


def _samples(
    solution: Solution, floor: Array, key: PRNGKeyArray, num_inner: int, is_exact: bool
) -> tuple[Samples, Samples]:
    """Return, on every path, the cash flow of the rule and the largest payoff, less a martingale."""
    problem = solution.problem
    outer, inner = jax.random.split(key)
    states = jnp.swapaxes(simulate(problem, _BLOCK, key=outer).states, 1, 2)
    rates = jax.vmap(lambda t, x: _rate(problem, t, x))(problem.times, states)
    growth = 0.5 * problem.dt * (rates[1:] + rates[:-1])
    discounts = jnp.exp(-jnp.cumsum(jnp.concatenate([jnp.zeros_like(growth[:1]), growth]), axis=0))
    paid = _discounted(discounts[-1], jax.vmap(problem.terminal, -1, -1)(states[-1]))
    floor = floor.reshape(*paid.shape[:-1], 1)
    dates = _period_ends(problem)

    def paid_since(date, exercise):
        """Return the largest exercise payoff since the previous date, for exercise at any time."""
        if problem.exercise_in_step is None:
            return exercise
        t, x = problem.times[date], states[date]
        since = jax.vmap(problem.exercise_in_step, (None, None, -1), -1)(t, problem.dt, x)
        return jnp.where(date > 0, jnp.maximum(exercise, since), exercise)

    def advance(state, of_period):
        martingale, best, earned, is_alive = state
        first, last, key, is_open = of_period
        exercise, continuation = _exercise_and_continuation(solution, first, states[first])
        less = lambda payoff: _discounted(discounts[first], payoff) - martingale
        exercised = is_open & is_alive & (exercise > jnp.maximum(continuation, floor))
        earned = jnp.where(exercised, less(exercise), earned)
        most = less(paid_since(first, exercise))
        best = jnp.where(is_open & (most > best), most, best)
        mean = _mean_ahead(solution, key, first, last, states[first], num_inner, is_exact)
        span = (last - first).astype(rates.dtype) * problem.dt
        in_one_step = discounts[first] * jnp.exp(-0.5 * span * (rates[first] + rates[last]))
        discount = in_one_step if is_exact else discounts[last]
        ahead = _discounted(discount, _value(solution, last, states[last]))
        martingale = martingale + ahead - _discounted(discounts[first], mean)
        return (martingale, best, earned, is_alive & ~exercised), None

    keys = jax.random.split(inner, len(dates) - 1)
    is_open = jnp.asarray(problem.is_exercise_date[dates[:-1]])
    periods = jnp.asarray(dates[:-1]), jnp.asarray(dates[1:]), keys, is_open
    zero = jnp.zeros_like(paid)
    start = zero, jnp.full_like(paid, -jnp.inf), zero, jnp.ones(paid.shape, bool)
    (martingale, best, earned, is_alive), _ = jax.lax.scan(advance, start, periods)
    most = paid
    if problem.exercise_in_step is not None:
        exercise = jax.vmap(_exercise(problem), (None, -1), -1)(problem.times[-1], states[-1])
        own = _discounted(discounts[-1], paid_since(problem.num_steps, exercise))
        most = jnp.maximum(paid, own)
    lower = jnp.where(is_alive, paid - martingale, earned)
    return lower, jnp.maximum(best, most - martingale)


def _mean_ahead(solution: Solution, key, first, last, x, num_inner: int, is_exact: bool) -> Samples:
    """Return the discounted mean of the value at date `last`, given x at date `first`.

    Inner paths take one step if steps are exact over any time, else the steps of all paths, at Sobol' points in
    Brownian-bridge order: the most even coordinates determine their ends. They discount by the trapezoidal rule
    over each of their steps, and so must the value less this mean, to have mean zero.
    """
    problem = solution.problem
    dim, paths = x.shape
    longest = int(np.max(np.diff(_period_ends(problem))))
    count = 1 if is_exact else longest
    noise = bridged(fan(key, num_inner, (count * dim, paths), x.dtype).reshape(count, dim, -1))
    x = jnp.broadcast_to(x[:, None], (dim, num_inner, paths)).reshape(dim, -1)
    span = (last - first).astype(x.dtype) * problem.dt if is_exact else problem.dt

    def advance(state, of_step):
        step, noise = of_step
        x, log_discount = state
        t = problem.times[first] + step.astype(span.dtype) * span
        move = lambda x, w: problem.advance(t, x, jnp.sqrt(span) * w, span)
        after = jax.vmap(move, -1, -1)(x, noise)
        growth = 0.5 * span * (_rate(problem, t, x) + _rate(problem, t + span, after))
        is_on = (first + step < last) | is_exact
        return (jnp.where(is_on, after, x), log_discount - jnp.where(is_on, growth, 0.0)), None

    start = x, jnp.zeros(x.shape[1], x.dtype)
    (x, log_discount), _ = jax.lax.scan(advance, start, (jnp.arange(count), noise))
    value = _discounted(jnp.exp(log_discount), _value(solution, last, x))
    return jnp.mean(value.reshape(*value.shape[:-1], num_inner, paths), axis=-2)


def _has_one_inner_step(problem: Problem) -> bool:
    """Return True if inner paths take one step to the next exercise date: those of an exact `step`."""
    return problem.step is not None and has_exact_steps(problem)


def _period_ends(problem: Problem) -> np.ndarray:
    """Return today, the exercise dates, and the last date."""
    return np.unique([0, *problem.exercise_dates, problem.num_steps])


def _value(solution: Solution, date, x) -> Samples:
    """Return the larger of exercise and continuation value; at the last date the terminal value."""
    problem = solution.problem
    last = problem.num_steps

    def before():
        return jnp.maximum(*_exercise_and_continuation(solution, jnp.minimum(date, last - 1), x))

    return jax.lax.cond(date == last, lambda: jax.vmap(problem.terminal, -1, -1)(x), before)


def _exercise_and_continuation(solution: Solution, date, x) -> tuple[Samples, Samples]:
    problem, found = solution.problem, solution.approximation
    t = problem.times[date]
    exercise = jax.vmap(_exercise(problem), (None, -1), -1)(t, x)
    return exercise, jax.vmap(lambda x: found.value(date, x), -1, -1)(x)


def _exercise(problem: Problem) -> Callable:
    assert problem.exercise_value is not None  # checked by `bounds`
    return problem.exercise_value


def _discounted(discount: Float[Array, " paths"], values: Samples) -> Samples:
    """Return the values of every contract, discounted to today."""
    return values * discount.reshape((1,) * (values.ndim - 1) + discount.shape)


def _rate(problem: Problem, t, x) -> Float[Array, " paths"]:
    """Return r of f = -r y."""
    one = jnp.ones(problem.contracts, x.dtype)
    z = jnp.zeros((*problem.contracts, problem.dim), x.dtype)
    return -jax.vmap(lambda x: jnp.ravel(problem.driver(t, x, one, z))[0], -1)(x)
