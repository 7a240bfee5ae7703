"""Selection of a solver and its basis by dimension, memory and pilot runs."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from .dynamics.active_subspace import ActiveSubspace, active_subspace
from .dynamics.driver_form import ErrorSources
from .problem import Problem, on_fewer_dates
from .solve_limits import SolveLimits
from .solver import AbstractSolver
from .solvers.bases import (
    AbstractBasis,
    Hermite,
    MeanPolynomials,
    PayoffBasis,
    SeparableBasis,
    SmoothMaximum,
)
from .solvers.gradient_regression import GradientRegression
from .solvers.grid_quadrature import GridQuadrature
from .solvers.projection_pursuit import ProjectionPursuit
from .stages import init, train

MAX_GRID_DIMENSION = 2
_MANY = 32  # contracts from which separate functions are cheaper than shared ones
_PILOT_PATHS, _PATHS = 8192, 65536  # paths of pilot runs and trainings
_MIN_PATHS = 1024  # of a regression
_MAX_FUNCTIONS = 500  # functions of a date, whose Gram matrix is inverted
_PILOTS_OF_REST = 4.0  # in units of a pilot's time: pilot, training, certificate and check
_INSTANT = 1e-12  # seconds
_COPIES_OF_GRID = 12  # peak memory of a grid in multiples of its state
_COPIES_OF_STATE, _COPIES_OF_FUNCTIONS = (
    3,
    5,
)  # multiples of a regression's state, and of its functions on paths
_CERTIFICATE_BYTES = 2**25  # a certificate processes its paths in blocks


class PilotRun(NamedTuple):
    """A pilot run of a solver: the variance of the value not explained; infinite if it failed.

    seconds: the time of the pilot, including compilation.
    """

    solver: AbstractSolver
    noise: float
    seconds: float


def subspace_of_grid(problem: Problem) -> ActiveSubspace | None:
    """Return the directions along which a grid solves a problem in more dimensions, or None."""
    if problem.dim <= MAX_GRID_DIMENSION or math.prod(problem.contracts) >= _MANY:
        return None
    return active_subspace(problem, MAX_GRID_DIMENSION)


def candidates(problem: Problem, is_positive: bool, limits: SolveLimits) -> list[AbstractSolver]:
    """Return the solvers that are suitable for the dimension and fit into memory.

    In one or two dimensions this is a grid; in more, regressions on several sets of functions, or
    `ProjectionPursuit` for many contracts if it supports them.

    Raises:
        ValueError: None of them fits into memory.
    """
    suitable: list[AbstractSolver] = [GridQuadrature()]
    if problem.dim > MAX_GRID_DIMENSION and _is_book(problem):
        suitable = [ProjectionPursuit()]
    elif problem.dim > MAX_GRID_DIMENSION:
        sets = (set_ for size, set_ in _basis_sets(problem.dim) if size <= _MAX_FUNCTIONS)
        rich, additive = next(sets), (SeparableBasis(2), MeanPolynomials(6, above=1))
        if is_positive:
            logs = tuple(replace(basis, logs=True) for basis in rich)
            mean = Hermite(1, logs=True), MeanPolynomials(8, above=1, logs=True)
            chosen = [logs, additive, mean, (Hermite(1), SmoothMaximum())]
        else:
            mean = Hermite(1), MeanPolynomials(8, above=1)
            chosen = [*dict.fromkeys([rich, additive]), mean]
        suitable = [
            GradientRegression(num_paths=_PILOT_PATHS, bases=(*bases, PayoffBasis()))
            for bases in chosen
        ]
    solvers = [one for s in suitable if (one := shrink_to_fit(problem, s, limits)) is not None]
    if not solvers:
        raise ValueError(f"{limits.summary}: this is not enough memory for any solution; give more")
    return solvers


def _is_book(problem: Problem) -> bool:
    if math.prod(problem.contracts) < _MANY:
        return False
    return ProjectionPursuit().unsupported_reason(problem) is None


def _basis_sets(dim: int) -> Iterator[tuple[int, tuple[AbstractBasis, ...]]]:
    """Yield the number of functions and the bases of each set, the largest first."""
    for degree in (4, 3):
        yield math.comb(dim + degree, degree), (Hermite(degree),)
    yield math.comb(dim + 2, 2) + 3, (Hermite(2), MeanPolynomials(5, above=2))
    yield 2 * dim + 6, (SeparableBasis(2), MeanPolynomials(6, above=1))
    yield 0, (Hermite(1), MeanPolynomials(6, above=1))


def run_pilots(
    problem: Problem,
    solvers: list[AbstractSolver],
    keys: list[PRNGKeyArray],
    limits: SolveLimits,
    report: Callable[[AbstractSolver], None],
) -> list[PilotRun]:
    """Return the pilot runs, best first (none for a single solver), leaving time for the rest.

    Raises:
        RuntimeError: No pilot run is finite.
    """
    if len(solvers) == 1:
        report(solvers[0])
        return [PilotRun(solvers[0], 0.0, 0.0)]
    pilots: list[PilotRun] = []
    for solver in solvers:
        if pilots and limits.seconds_left < _PILOTS_OF_REST * pilots[-1].seconds:
            break
        started = time.perf_counter()
        try:
            noise = float(train(problem, solver, keys.pop(0)).stats["losses"][-1, -1])
        except RuntimeError:  # not finite
            noise = math.inf
        pilots.append(PilotRun(solver, noise, time.perf_counter() - started))
        report(solver)
    pilots.sort(key=lambda one: one.noise)
    if not math.isfinite(pilots[0].noise):
        raise RuntimeError("no set of functions suits the equation: no regression is finite")
    return pilots


def select_solver(
    problem: Problem, pilot: PilotRun, limits: SolveLimits, fraction: float
) -> AbstractSolver:
    """Return the solver of a pilot run with as many paths as a solution needs and the time allows."""
    solver = pilot.solver
    if not isinstance(solver, GradientRegression):
        return solver
    affordable = fraction * limits.seconds_left / max(pilot.seconds, _INSTANT)
    most = solver.num_paths * max(1.0, affordable)
    return shrink_to_fit(problem, replace(solver, num_paths=_PATHS), limits, most) or solver


def select_checks(
    problem: Problem,
    sources: ErrorSources,
    solvers: list[AbstractSolver],
    pilots: list[PilotRun],
    limits: SolveLimits,
    fraction: float,
) -> list[tuple[AbstractSolver, Problem]]:
    """Return the solvers and the problems of other solutions, which reveal errors of dates and functions.

    For a grid there are two, on other dates; else one, by other functions where there are any, and on other
    dates if the error of their number is not known to be small. There is none if memory is not enough.
    """
    if isinstance(solvers[0], GridQuadrature):
        others = _on_other_dates(problem)
        is_enough = all(shrink_to_fit(one, solvers[0], limits) is not None for one in others)
        return [(solvers[0], one) for one in others if is_enough]
    other = problem
    if sources.needs_other_dates:
        other = on_fewer_dates(problem)
        if other.num_steps == problem.num_steps:
            other = problem.with_num_steps(2 * problem.num_steps)
    if isinstance(solvers[0], ProjectionPursuit):
        solver = replace(solvers[0], knots=solvers[0].knots // 2)
    else:
        untried = [
            PilotRun(solver, math.inf, pilots[0].seconds) for solver in solvers[len(pilots) :]
        ]
        others = [one for one in pilots[1:] if math.isfinite(one.noise)] + untried
        if not others and other is problem:
            return []
        solver = select_solver(other, (others or pilots)[0], limits, fraction)
    solver = shrink_to_fit(other, solver, limits)
    return [] if solver is None else [(solver, other)]


def _on_other_dates(problem: Problem) -> list[Problem]:
    """Return the problem on half and a quarter of its dates, or fewer, or on twice and four times as many.

    With few dates, or where the contract needs most of them, there are more.
    """
    needed = *problem.exercise_dates, *problem.stopping_dates
    least = problem.num_steps // math.gcd(problem.num_steps, *needed)
    half = problem.num_steps // 2 // least * least
    quarter = half // 2 // least * least
    multiples = 2 * problem.num_steps, 4 * problem.num_steps
    numbers = (half, quarter) if quarter > 1 else multiples
    return [problem.with_num_steps(number) for number in numbers]


def shrink_to_fit(
    problem: Problem, solver: Any, limits: SolveLimits, max_paths: float = math.inf
) -> Any | None:
    """Return the solver with as many paths as memory and `max_paths` allow; None if it does not fit.

    The paths of a regression are halved until it fits; other solvers are unchanged.
    """
    if not isinstance(solver, GradientRegression | ProjectionPursuit):
        return solver if _fits(problem, solver, limits) else None
    while solver.num_paths > max_paths or not _fits(problem, solver, limits):
        paths = solver.num_paths // 2
        if paths < _MIN_PATHS:
            return None
        solver = replace(solver, num_paths=paths, block=min(solver.block, paths))
    return solver


def _fits(problem: Problem, solver: Any, limits: SolveLimits) -> bool:
    return limits.budget is None or bytes_of(problem, solver) <= limits.budget


def bytes_of(problem: Problem, solver: Any) -> int:
    """Return an upper bound of the memory of training and certificate, from the shapes of their arrays.

    The programs of a regression hold its state three times, and the functions with their increments on all
    paths as often as the Gram matrix needs; the compiler reports less (`test_limits`).
    """
    training = eqx.filter_eval_shape(init, problem, solver, key=jax.random.key(0))
    arrays = jax.tree.leaves(training)
    state = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    if not isinstance(solver, GradientRegression):
        return _COPIES_OF_GRID * state + _CERTIFICATE_BYTES
    functions, itemsize = training.outputs.shape[-1], training.outputs.dtype.itemsize
    columns = functions * solver.num_paths * itemsize
    return _COPIES_OF_STATE * state + _COPIES_OF_FUNCTIONS * columns + _CERTIFICATE_BYTES
