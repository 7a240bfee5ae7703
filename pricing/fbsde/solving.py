"""Solve a backward equation with a given solver, or select one and certify its figures."""

import dataclasses
import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from jaxtape.jax_settings.blas_threads import single_blas_thread
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ..progress import Progress
from .dynamics.active_subspace import ActiveSubspace, OnSubspace
from .dynamics.driver_form import error_sources
from .dynamics.forward_paths import coordinate_scales
from .dynamics.step_density import check_step
from .error_bars.relative_errors import (
    DEFAULT_TOLERANCE,
    Tolerance,
    as_tolerance,
    unmet_tolerances,
)
from .error_bars.to_tolerance import error_bars
from .functions import with_traced_functions
from .problem import Problem
from .selection import (
    MAX_GRID_DIMENSION,
    candidates,
    run_pilots,
    select_checks,
    select_solver,
    subspace_of_grid,
)
from .solution import Solution
from .solve_limits import SolveLimits
from .solver import AbstractSolver
from .solvers.gradient_regression import GradientRegression
from .solvers.grid_quadrature import GridQuadrature
from .solvers.projection_pursuit import ProjectionPursuit
from .stages import Keys, train, with_note


@full_matmul_precision
@single_blas_thread
def solve(
    problem: Problem,
    solver: AbstractSolver | None = None,
    *,
    key: Keys,
    tolerance: Tolerance | float = DEFAULT_TOLERANCE,
    max_paths: int = 2**18,
    max_seconds: float | int | None = None,
    budget: float | int | None = None,
    progress: Progress | None = None,
    metrics: Path | None = None,
    resume: Path | None = None,
    every: int = 1,
    throw: bool = True,
) -> Solution:
    """Solve a backward equation for its value, Delta and Gamma.

    With a `solver`, run it: simulate paths, then compute or train its functions at each date. Without one,
    select a solver, and estimate the errors of today's figures:

    1. In one or two dimensions, use `GridQuadrature`, and also in more if the payoff, the driver and the steps
       of the paths only depend on one or two combinations of the coordinates or of their logarithms, such as
       a geometric mean: u is then a function of these. Otherwise run `GradientRegression` with several sets of
       functions on few paths, and use the set that explains most of the variance. For 32 or more contracts
       whose driver discounts, use `ProjectionPursuit`. 2. Solve on many paths. 3. Estimate value, Delta and
       Gamma on fresh paths, with standard errors (`certify`). If the tolerance requires more than 32,768 paths,
       or than `max_paths`, figures of a grid have the difference from coarser grids as their standard error
       where it is smaller, unless 8,192 paths contradict it. 4. If standard errors do not show every error (a
       driver that does more than discount at a constant rate, long steps at this rate, inexact steps), compare
       with a second solution on fewer dates or, if the contract needs all, on more, with other functions where
       there are any. With grids there are two more solutions, which remove the leading error of the dates from
       today's figures. For a right to exercise, compute bounds of the value (`bounds`); if it misses its
       tolerance and the bounds are nearer, it is their middle. For 32 or more contracts, compare with a second
       rule.

    While it runs, BLAS is limited to one thread in the whole process.

    Args:
        problem: The equation.
        solver: The solver and its settings; None to select one.
        key: One key; with a solver also several, of shape [n] (seeds), which are solved in parallel: every
            array of the solution then has a leading axis for them.
        tolerance: Relative tolerance of today's value, Delta and Gamma, without a solver; one number for all.
        max_paths: Maximum number of paths of the estimates of step 3.
        max_seconds: Time budget without a solver. At least one pilot and 8,192 paths run, and their programs
            are compiled. None: as long as `tolerance` requires.
        budget: Memory budget without a solver, in bytes. None: the memory for 65,536 paths.
        progress: Callback at the end of each stage, with the number of stages done, their total, and the latest
            loss as text (`pricing.progress`), the mean over keys.
        metrics: A file .jsonl, or a folder that TensorBoard reads, for the numbers of each stage.
        resume: A folder for checkpoints. An interrupted run resumes from the last one, bit for bit.
        every: Number of stages between two checkpoints.
        throw: Whether to raise RuntimeError if a loss is not finite or a figure misses its tolerance.

    Returns:
        The solution, with its result, and every loss in `stats`. Without a solver, `stats` also has "solver";
        "certificate" (the estimates of step 3); "errors" and "entry_errors" (relative errors of its three
        figures, and of each of their entries; `missed` is the error of the solution's own value);
        "absolute_errors" (the same of each entry, in its own unit); "checked_by" (the figures of the second
        solution, also extrapolated, or None); "upper" (the upper bound, or None); "subspace" (the combinations
        of coordinates of which u is a function, or None); and "pilots" (the pilot runs, best first).

        A problem that the solver cannot handle raises a TypeError that names solvers that can. With `throw`, a
        non-finite loss or a figure that misses its tolerance raises a RuntimeError with the remedy; the last
        checkpoint is that of the previous stage. A wrong `every`, a `resume` folder of another run, and an
        insufficient budget raise ValueError.

    Raises:
        TypeError: `key` is not a key of `jax.random`.
        ValueError: A solver is missing for several keys, `metrics` or `resume`; or it is given beside
            `max_seconds` or `budget`, which are not for it; or the noise of an exact `step` is not that of the
            problem's diffusion.

    Examples:
        >>> import jax
        >>> from pricing.fbsde import DeepBSDE, problems, solve
        >>> try:
        ...     solve(problems.max_call(2), DeepBSDE(), key=jax.random.key(0))
        ... except TypeError as error:
        ...     print(str(error)[:53])
        DeepBSDE does not solve this problem. It has early ex
    """
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError(f"key={key!r}: give a key, such as jax.random.key(0)")
    tolerance, problem = as_tolerance(tolerance), with_traced_functions(problem)
    check_step(problem)
    if solver is None:
        if key.ndim or metrics is not None or resume is not None:
            raise ValueError(
                "a solver is selected for one key, without metrics or resume: give a solver."
            )
        limits = SolveLimits(max_paths, max_seconds, budget)
        return _solve_to_tolerance(problem, key, tolerance, limits, progress, throw)
    _check_unlimited(solver, max_seconds, budget)
    files: dict[str, Any] = {"metrics": metrics, "resume": resume, "every": every}
    return train(problem, solver, key, progress, throw, **files)


def _check_unlimited(
    solver: AbstractSolver, max_seconds: float | int | None, budget: float | int | None
) -> None:
    """Refuse limits beside a solver, whose own settings decide.

    Raises:
        ValueError: There is one.
    """
    name = type(solver).__name__
    sizes = [size for size in ("num_paths", "block", "num_nodes") if hasattr(solver, size)]
    own = f"{name}, whose memory is that of its paths or nodes, a smaller {' or '.join(sizes)}"
    if hasattr(solver, "budget"):
        own = f"{name}(budget={budget})"
    for limit, given, remedy in (
        ("max_seconds", max_seconds, f"leave it out, and give {name} fewer paths or iterations"),
        ("budget", budget, f"leave it out, and give {own}"),
    ):
        if given is not None:
            raise ValueError(
                f"{limit}={given} limits solvers that are selected, and {name} is given: {remedy}"
            )


@single_blas_thread
def solver_by_pilots(problem: Problem, *, key: PRNGKeyArray) -> AbstractSolver:
    """Return the solver that `solve` would select in all coordinates, without limits of time and memory."""
    limits, problem = SolveLimits(2**18), with_traced_functions(problem)
    scale_key, *keys = jax.random.split(key, 64)
    _, is_positive = coordinate_scales(problem, key=scale_key)
    solvers = candidates(problem, bool(np.all(is_positive)), limits)
    pilots = run_pilots(problem, solvers, keys, limits, lambda solver: None)
    return select_solver(problem, pilots[0], limits, 1.0)


def _solve_to_tolerance(
    problem: Problem,
    key: PRNGKeyArray,
    tolerance: Tolerance,
    limits: SolveLimits,
    progress: Progress | None,
    throw: bool,
) -> Solution:
    """Solve with the solver of the best pilot run; `stats` has the error bars of today's figures.

    Raises:
        RuntimeError: A figure misses its tolerance, and `throw`.
    """
    subspace = subspace_of_grid(problem)
    posed = problem if subspace is None else subspace.reduced(problem)
    sources = error_sources(problem, has_grid=posed.dim <= MAX_GRID_DIMENSION)
    keys = list(jax.random.split(key, 64))  # the check takes keys from the end
    scale, is_positive = coordinate_scales(problem, key=keys.pop(0))
    solvers = candidates(posed, bool(np.all(is_positive)), limits)
    if isinstance(solvers[0], ProjectionPursuit):  # a second rule replaces an upper bound for each
        needs_check = sources.needs_other_dates or problem.exercise_value is not None
        sources = sources._replace(has_bound=False, needs_check=needs_check)
    report = partial(_report, progress, itertools.count(1), len(solvers) + 2 + sources.needs_check)
    pilots = run_pilots(posed, solvers, keys, limits, report)
    fraction = 0.5 / (1 + sources.needs_check)  # fraction of the time for a training
    solver = select_solver(posed, pilots[0], limits, fraction)
    checks = []
    if sources.needs_check:
        checks = select_checks(problem, sources, solvers, pilots, limits, fraction)

    trained = train if subspace is None else partial(_trained_on, subspace)
    started = time.perf_counter()
    solution, others, coarser = trained(problem, solver, keys.pop(0)), [], None
    report(solver)
    dates = sum(of.num_steps for _, of in checks) / problem.num_steps
    if limits.seconds_left >= max(1.0, dates) * (time.perf_counter() - started):
        others = [trained(of, one, keys.pop()) for one, of in checks]
        if isinstance(solver, GridQuadrature):
            own = keys.pop()
            coarser = lambda: [trained(problem, one, own) for one in solver.coarser(posed)]
    if sources.needs_check:
        report(checks[0][0] if checks else solver)

    stats, known = error_bars(solution, others, sources, keys, tolerance, scale, limits, coarser)
    report(solver)
    stats |= {"solver": solver, "pilots": pilots, "subspace": subspace}
    if throw and (unmet := unmet_tolerances(known, tolerance, problem.contracts)):
        raise RuntimeError(
            f"{unmet}: give more than {limits.summary}, a wider tolerance, or a solver with functions that "
            "suit the payoff; or throw=False, and look at stats['certificate']"
        )
    solution = eqx.tree_at(lambda s: s.stats, solution, solution.stats | stats)
    return with_note(solution, solver, limits.started)


def _trained_on(
    subspace: ActiveSubspace, problem: Problem, solver: AbstractSolver, key: PRNGKeyArray
) -> Solution:
    """Return a solution that is trained in the directions of a subspace."""
    found = train(subspace.reduced(problem), solver, key)
    lifted = OnSubspace(found.approximation, subspace)
    return dataclasses.replace(found, problem=problem, approximation=lifted)


def _report(
    progress: Progress | None, done: Iterator[int], stages: int, solver: AbstractSolver
) -> None:
    """Report the end of a stage of a selection, with the name of the solver or of its functions."""
    name = type(solver).__name__
    if isinstance(solver, GradientRegression):
        name = ", ".join(type(basis).__name__ for basis in solver.bases)
    if progress is not None:
        progress(next(done), stages, name)
