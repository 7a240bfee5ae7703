"""Select a solver and its basis by dimension and pilot runs, and certify the solution."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..progress import Progress
from .dynamics.driver_form import is_affine
from .dynamics.simulation import simulate
from .error_bars.certificate import (
    Certificate,
    Estimate,
    certify,
    unsummed,
)
from .error_bars.early_exercise_bounds import bounds, unbounded
from .error_bars.relative_errors import (
    EntryErrors,
    Tolerance,
    errors,
    without_noise,
)
from .limits import Limits
from .problem import Problem
from .solution import Solution
from .solver import AbstractSolver
from .solvers.bases import (
    AbstractBasis,
    Additive,
    Hermite,
    Mean,
    Payoffs,
    SmoothMaximum,
)
from .solvers.gradient_regression import GradientRegression
from .solvers.grid_quadrature import GridQuadrature

_PILOT_PATHS, _PATHS = 8192, 65536  # of trainings
_PILOT_CERTIFICATE = 8192
_LEAST_OF_BOUND, _MOST_OF_BOUND = 1024, 16384  # paths of an upper bound
_NOISE_OF_BOUND = 0.1  # of the tolerance of the value: a standard error of that bound
_OF_GRID = 2  # dimensions, at most
_MOST_FUNCTIONS = 500  # of a date: their Gram matrix is inverted at each
_TO_COME = 4.0  # times of a pilot: itself, the training, the certificate and its check
_INSTANT = 1e-12  # seconds
_LOOK = 64  # paths on which the states are looked at


class Tried(NamedTuple):
    """Result of a pilot of a solver: the variance of the value that its functions leave; infinite if it failed.

    seconds: the time of the pilot, with the compilation of its program.
    """

    solver: AbstractSolver
    noise: float
    seconds: float


def candidates(problem: Problem, is_positive: bool) -> list[AbstractSolver]:
    """Return solvers that suit the dimension: a grid in one or two, in more regressions on some functions."""
    if problem.dim <= _OF_GRID:
        return [GridQuadrature()]
    rich = next(set_ for size, set_ in _sets(problem.dim) if size <= _MOST_FUNCTIONS)
    additive = Additive(2), Mean(6, above=1)
    if is_positive:
        of_logs = tuple(replace(basis, logs=True) for basis in rich)
        mean = Hermite(1, logs=True), Mean(8, above=1, logs=True)
        chosen = [of_logs, additive, mean, (Hermite(1), SmoothMaximum())]
    else:
        chosen = [*dict.fromkeys([rich, additive]), (Hermite(1), Mean(8, above=1))]
    return [
        GradientRegression(num_paths=_PILOT_PATHS, bases=(*bases, Payoffs())) for bases in chosen
    ]


def _sets(dim: int) -> Iterator[tuple[int, tuple[AbstractBasis, ...]]]:
    """Yield the number of functions and the functions of each set, the largest first."""
    for degree in (4, 3):
        yield math.comb(dim + degree, degree), (Hermite(degree),)
    yield math.comb(dim + 2, 2) + 3, (Hermite(2), Mean(5, above=2))
    yield 2 * dim + 6, (Additive(2), Mean(6, above=1))
    yield 0, (Hermite(1), Mean(6, above=1))


def choose(
    problem: Problem,
    train: Callable[..., Solution],
    *,
    key: PRNGKeyArray,
    tolerance: Tolerance,
    limits: Limits,
    progress: Progress | None = None,
) -> Solution:
    """Return the solution of the solver whose pilot did best, with the errors of today's figures.

    They are certified on as many paths as the tolerance needs. Where no defects are summed
    (`certificate.unsummed`) they are those of a grid, without noise.

    Args:
        problem: The equation.
        train: (solver, key=, problem=) -> solution; the problem is the one above by default.
        key: Key of all paths.
        tolerance: The tolerances of value, Delta and Gamma.
        limits: Limits of paths, time and memory.
        progress: Called as each pilot ends, the training, and the certificate.

    Returns:
        The solution; a RuntimeError if no pilot is finite. In its `stats` are "certificate", "errors" (of
        value, Delta and Gamma, as multiples of their sizes), "entry_errors" (of every entry of every contract),
        "solver", and the results of the pilots, "tried".
        Where the driver is nonlinear, a step is not exact, no defects are summed, or a right to exercise has no
        bound, also "checked_by", the figures of another solution, on half of the dates if the contract's are
        among them; without time or memory for it the errors are unknown. For a right to exercise also "upper",
        an upper bound of the value (`bounds`): the gap to it counts as error, too.

    Raises:
        ValueError: The memory is not enough for any solution.
    """
    has_defects = _has_defects(problem)
    has_bound = has_defects and unbounded(problem) is None
    keys = iter(jax.random.split(key, 64))
    scale, is_positive = _scale(problem, key=next(keys))
    all_ = candidates(problem, bool(np.all(is_positive)))
    solvers = [one for solver in all_ if (one := limits.smaller(problem, solver)) is not None]
    if not solvers:
        raise ValueError(f"{limits.words}: this is not enough memory for any solution; give more")
    needs_check = not has_defects or _has_more_error(problem, has_bound)
    stages = len(solvers) + 2 + needs_check
    say = partial(_say, progress, iter(range(1, stages + 1)), stages)
    tried = _tried(solvers, train, keys, limits, say)
    share = 0.5 / (1 + needs_check)
    best = _in_full(problem, tried[0], limits, share)
    told = partial(errors, scale=scale)

    started = time.perf_counter()
    solution = train(best, key=next(keys))
    reserved = time.perf_counter() - started
    say(best)
    if has_defects:
        spared = (limits.seconds_left - needs_check * reserved) / (1 + needs_check + has_bound)
        excess = lambda found: _most(told(found).worst(), tolerance)  # noqa: E731
        judge, found = _certified(solution, keys, excess, limits, spared)
    else:
        judge, found = without_noise, without_noise(solution)
    spared = limits.seconds_left - needs_check * reserved
    upper = _upper(solution, found, keys, tolerance, spared) if has_bound else None
    say(best)
    other, known = None, told(found, None, upper)
    if needs_check:
        check = _another(problem, solvers, tried, limits, share)
        if check is None or limits.seconds_left < reserved:
            known = EntryErrors(*(np.full_like(error, math.inf) for error in known))
        else:
            other = judge(train(check[0], key=next(keys), problem=check[1]))
            known = told(found, other, upper)
        say(check[0] if check else best)
    more = {
        "certificate": found,
        "checked_by": other,
        "upper": upper,
        # as arrays: numbers would make another program of everything that takes the solution
        "errors": jax.tree.map(jnp.asarray, known.worst()),
        "entry_errors": jax.tree.map(jnp.asarray, known),
        "solver": best,
        "tried": tried,
    }
    return eqx.tree_at(lambda s: s.stats, solution, solution.stats | more)


def _has_defects(problem: Problem) -> bool:
    """Return True if the defects of the equation are summed; otherwise a grid solves it.

    Raises:
        TypeError: They are not, and there are too many dimensions for a grid.
    """
    reason = unsummed(problem)
    if reason is not None and problem.dim > _OF_GRID:
        raise TypeError(
            f"{reason}; in more than {_OF_GRID} dimensions nothing would show how far off a solution is: name "
            "a solver, and compare solutions by other functions and on other dates"
        )
    return reason is None


def _has_more_error(problem: Problem, has_bound: bool) -> bool:
    """Return True if a value has an error that neither its noise nor an upper bound shows."""
    is_right = problem.exercise_value is not None
    return problem.step is None or not is_affine(problem) or (is_right and not has_bound)


def _another(
    problem: Problem,
    solvers: list[AbstractSolver],
    tried: list[Tried],
    limits: Limits,
    share: float,
) -> tuple[AbstractSolver, Problem] | None:
    """Return the solver and the problem of another solution: with fewer dates, other functions, or both.

    None if there is no other, or no memory for it.
    """
    fewer = _on_fewer_dates(problem)
    if isinstance(solvers[0], GridQuadrature):
        if fewer is not problem:
            return solvers[0], fewer
        regression = GradientRegression(num_paths=_PATHS, bases=(Hermite(6), Payoffs()))
        other = limits.smaller(problem, regression)
        return None if other is None else (other, problem)
    untried = [Tried(solver, math.inf, tried[0].seconds) for solver in solvers[len(tried) :]]
    others = [one for one in tried[1:] if math.isfinite(one.noise)] + untried
    if not others and fewer is problem:
        return None
    return _in_full(problem, (others or tried)[0], limits, share), fewer


def _certified(
    solution: Solution,
    keys: Iterator[PRNGKeyArray],
    excess: Callable[[Certificate], float],
    limits: Limits,
    seconds: float,
) -> tuple[Callable[[Solution], Certificate], Certificate]:
    """Return the function that certifies solutions, with enough paths, and the first certificate.

    excess: the largest error, as a multiple of the tolerance; seconds: time for the certificate.
    """
    pilot = certify(solution, key=next(keys), num_paths=_PILOT_CERTIFICATE)
    noise = eqx.tree_at(lambda c: c.left, pilot, jnp.zeros_like(pilot.left))  # no path lessens that
    wanted = 1.2 * _PILOT_CERTIFICATE * excess(noise) ** 2
    affordable = seconds / _seconds_of_path(solution, limits, next(keys))
    count = limits.certificate_paths(wanted, _PILOT_CERTIFICATE, affordable)
    judge = lambda found: certify(found, key=next(keys), num_paths=count)  # noqa: E731
    return judge, judge(solution) if count > _PILOT_CERTIFICATE else pilot


def _upper(
    solution: Solution,
    found: Certificate,
    keys: Iterator[PRNGKeyArray],
    tolerance: Tolerance,
    seconds: float,
) -> Estimate | None:
    """Return an upper bound of what any rule of exercise earns, on as many paths as needed and time allows.

    Like all figures, it bounds the value before a right today; None if there is no later right, infinite if
    there is no time.
    """
    problem = solution.problem.replace(
        exercise_in_step=None
    )  # errors are those of the dates' right
    times = [float(problem.times[date]) for date in problem.exercise_dates if date > 0]
    if not times:
        return None
    solution = eqx.tree_at(lambda s: s.problem, solution, problem.replace(exercise_times=times))
    size, shape = float(jnp.max(jnp.abs(found.value.mean))), found.value.mean.shape
    if seconds <= 0.0 or size == 0.0:
        return Estimate(jnp.full(shape, math.inf), jnp.zeros(shape))

    def on_paths(count: int) -> Estimate:
        both = bounds(solution, key=next(keys), num_paths=count, throw=False)
        return Estimate(both.upper, both.std_errors.upper)

    started = time.perf_counter()
    pilot = on_paths(_LEAST_OF_BOUND)
    left = seconds / (time.perf_counter() - started) - 1.0
    excess = float(jnp.max(pilot.std_error)) / (_NOISE_OF_BOUND * tolerance.value * size)
    most = min(_MOST_OF_BOUND, _LEAST_OF_BOUND * left)
    if not 1.0 < excess**2 < math.inf or most <= _LEAST_OF_BOUND:
        return pilot
    wanted = min(_LEAST_OF_BOUND * excess**2, most)
    return on_paths(int(wanted) // _LEAST_OF_BOUND * _LEAST_OF_BOUND)


def _seconds_of_path(solution: Solution, limits: Limits, key: PRNGKeyArray) -> float:
    """Return the time that a certificate takes for a path, its program compiled; next to none without limit."""
    if limits.max_seconds is None:
        return _INSTANT
    started = time.perf_counter()
    certify(solution, key=key, num_paths=_PILOT_CERTIFICATE)
    return (time.perf_counter() - started) / _PILOT_CERTIFICATE


def _say(
    progress: Progress | None, done: Iterator[int], stages: int, solver: AbstractSolver
) -> None:
    if progress is not None:
        progress(next(done), stages, _words(solver))


def _most(told: Tolerance, asked: Tolerance) -> float:
    """Return the largest error as a multiple of its tolerance."""
    return max(error / most for error, most in zip(told, asked, strict=True))


def _tried(
    solvers: list[AbstractSolver],
    train: Callable[..., Solution],
    keys: Iterator[PRNGKeyArray],
    limits: Limits,
    say: Callable[[AbstractSolver], None],
) -> list[Tried]:
    """Return the pilots' results, the best first; a single solver needs no pilot. They leave time for the rest.

    Raises:
        RuntimeError: None is finite.
    """
    if len(solvers) == 1:
        say(solvers[0])
        return [Tried(solvers[0], 0.0, 0.0)]
    tried = []
    for solver in solvers:
        if tried and limits.seconds_left < _TO_COME * tried[-1].seconds:
            break
        tried.append(_pilot(solver, train, key=next(keys)))
        say(solver)
    tried.sort(key=lambda one: one.noise)
    if not math.isfinite(tried[0].noise):
        raise RuntimeError("no functions suit the equation: no regression on them is finite")
    return tried


def _pilot(solver: AbstractSolver, train: Callable[..., Solution], key: PRNGKeyArray) -> Tried:
    """Return a pilot's result: the variance of the value that its functions leave, over all dates."""
    started = time.perf_counter()
    try:
        noise = float(train(solver, key=key).stats["losses"][-1, -1])
    except RuntimeError:  # it is not finite
        noise = math.inf
    return Tried(solver, noise, time.perf_counter() - started)


def _in_full(problem: Problem, tried: Tried, limits: Limits, share: float) -> AbstractSolver:
    """Return the solver on as many paths as a solution is made of, or as a share of the time is enough for."""
    solver = tried.solver
    if not isinstance(solver, GradientRegression):
        return solver
    affordable = share * limits.seconds_left / max(tried.seconds, _INSTANT)
    most = solver.num_paths * max(1.0, affordable)
    return limits.smaller(problem, replace(solver, num_paths=_PATHS), most) or solver


def _on_fewer_dates(problem: Problem) -> Problem:
    """Return the problem on half of its dates; as it is where the contract needs the others."""
    try:
        return problem.with_num_steps(max(1, problem.num_steps // 2))
    except ValueError:
        return problem


def _scale(problem: Problem, *, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale of each coordinate, and whether it stays above 0 on some paths, as prices do.

    The scale of prices is x0; of other coordinates, their deviation at the end.
    """
    states = np.asarray(simulate(problem, _LOOK, key=key).states)
    is_positive = np.all(states > 0.0, axis=(0, 1))
    return np.where(is_positive, states[0, 0], np.std(states[-1], axis=0)), is_positive


def _words(solver: AbstractSolver) -> str:
    if not isinstance(solver, GradientRegression):
        return type(solver).__name__
    return ", ".join(type(basis).__name__ for basis in solver.bases)
