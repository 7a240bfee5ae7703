"""Which solver and which functions suit an equation? Its dimension says it, and pilots; a certificate tells."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..progress import Progress
from .bases import AbstractBasis, Additive, Hermite, Mean, Payoffs, SmoothMaximum
from .certificate import Certificate, certify
from .gradient_regression import GradientRegression
from .grid_quadrature import GridQuadrature
from .problem import Problem
from .simulation import simulate
from .solution import Solution
from .solver import AbstractSolver

_PILOT_PATHS, _PATHS = 8192, 65536  # of trainings
_PILOT_CERTIFICATE = 8192
_MOST_FUNCTIONS = 500  # of a date: their Gram matrix is inverted at each
_SIGNIFICANT = 3.0  # standard errors by which two numbers differ
_OUTSIDE = 0.00135  # chance of a figure above its error, and below: three standard errors
_ROUNDING = 1e-4  # of f, in single precision
_LOOK = 64  # paths on which the states are looked at


class Tolerance(NamedTuple):
    """What is asked of value, Delta and Gamma of today, relative to the size of each.

    A Delta that is small beside value over state is measured by that, a Gamma by Delta over state.

    Attributes:
        value: Of the largest value.
        delta: Of the largest entry of Delta.
        gamma: Of the largest entry of Gamma.

    Examples:
        >>> from pricing.fbsde import Tolerance
        >>> Tolerance(gamma=0.1).value
        0.002
    """

    value: float = 0.002
    delta: float = 0.01
    gamma: float = 0.05


ASKED = Tolerance()


class Tried(NamedTuple):
    """What a pilot of a solver found: the variance that its functions leave of the value, infinite if none."""

    solver: AbstractSolver
    noise: float


def candidates(problem: Problem, is_positive: bool) -> list[AbstractSolver]:
    """Return solvers that suit the dimension: a grid in one or two, in more regressions on some functions."""
    if problem.dim <= 2:
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
    """Return sets of functions and how many they are, the most first."""
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
    rtol: Tolerance,
    max_paths: int,
    progress: Progress | None = None,
) -> Solution:
    """Return the solution of the solver whose pilot did best, certified on as many paths as it takes.

    Args:
        problem: The equation.
        train: (solver, key=, problem=) -> solution; the problem is that given by default.
        key: Of all paths.
        rtol: What is asked.
        max_paths: Of the certificate, at most.
        progress: Called as each pilot ends, the training, and the certificate.

    Returns:
        The solution; a RuntimeError if no pilot is finite. In its `stats` are "certificate", "errors" (of
        value, Delta and Gamma, as multiples of their sizes), "solver", and what the pilots found, "tried".
        Where the driver bends or a step is not exact, also "checked_by", the certificate of another solution,
        on half of the dates if the contract's are among them.
    """
    keys = iter(jax.random.split(key, 64))
    is_positive = _is_positive(problem, key=next(keys))
    solvers = candidates(problem, is_positive)
    told = partial(errors, scale=_scale(problem) if is_positive else math.inf)
    needs_check = problem.step is None or not _is_affine(problem)
    stages = len(solvers) + 2 + needs_check
    say = partial(_say, progress, iter(range(1, stages + 1)), stages)
    tried = _tried(solvers, train, keys, say)
    best, runner_up = (_in_full(one.solver) for one in (tried[0], tried[:2][-1]))
    solution = train(best, key=next(keys))
    say(best)
    found = certify(solution, key=next(keys), num_paths=_PILOT_CERTIFICATE)
    wanted = _PILOT_CERTIFICATE * _most(told(found), rtol) ** 2
    count = min(max_paths, max(_PILOT_CERTIFICATE, 2 ** math.ceil(math.log2(1.2 * wanted + 1.0))))
    if count > _PILOT_CERTIFICATE:
        found = certify(solution, key=next(keys), num_paths=count)
    say(best)
    other = None
    if needs_check:
        fewer = _on_fewer_dates(problem)
        if fewer is problem and len(tried) == 1:
            runner_up = GradientRegression(num_paths=_PATHS, bases=(Hermite(6), Payoffs()))
        found_too = train(runner_up, key=next(keys), problem=fewer)
        other = certify(found_too, key=next(keys), num_paths=count)
        say(runner_up)
    more = {
        "certificate": found,
        "checked_by": other,
        # as arrays: numbers would make another program of everything that takes the solution
        "errors": jax.tree.map(jnp.asarray, told(found, other)),
        "solver": best,
        "tried": tried,
    }
    return eqx.tree_at(lambda s: s.stats, solution, solution.stats | more)


def _say(
    progress: Progress | None, done: Iterator[int], stages: int, solver: AbstractSolver
) -> None:
    if progress is not None:
        progress(next(done), stages, _words(solver))


def errors(
    found: Certificate, other: Certificate | None = None, *, scale: float = math.inf
) -> Tolerance:
    """Return the errors of value, Delta and Gamma, as multiples of the size of each.

    An error is three standard errors, of many entries more, so that all of them are within as often. Or it is
    by what another solution's certificate differs, beyond noise: where the driver bends both keep the square of
    their solution's error, and each has the error of its dates.
    """
    sizes = [float(np.max(np.abs(found.value.mean)))]
    for derivative in (found.delta, found.gamma):
        sizes.append(max(float(np.max(np.abs(derivative.mean))), sizes[-1] / scale))
    told = []
    for name, size in zip(Tolerance._fields, sizes, strict=True):
        one, noise = getattr(found, name), getattr(found, name).std_error
        error = _cover(noise.size) * float(np.max(noise))
        if other is not None:
            both = getattr(other, name)
            noise = np.sqrt(np.asarray(noise) ** 2 + np.asarray(both.std_error) ** 2)
            gap = np.abs(np.asarray(one.mean) - np.asarray(both.mean))
            error = max(error, float(np.max(np.where(gap > _SIGNIFICANT * noise, gap, 0.0))))
        told.append(error / size if size > 0.0 else math.inf)
    return Tolerance(*told)


def _cover(entries: int) -> float:
    """Return the standard errors within which all entries are in 997 of 1,000 cases, by Bonferroni's rule."""
    return NormalDist().inv_cdf(1.0 - _OUTSIDE / entries)


def _most(told: Tolerance, asked: Tolerance) -> float:
    """Return the largest error as a multiple of what is asked."""
    return max(error / most for error, most in zip(told, asked, strict=True))


def shortcomings(solution: Solution, rtol: Tolerance) -> str:
    """Return which figures are not known to what is asked, in words; empty if all are."""
    trios = zip(Tolerance._fields, solution.stats["errors"], rtol, strict=True)
    return ", ".join(
        f"{name} is known to {100 * error:.2g} % of its size ({100 * asked:g} % is asked)"
        for name, error, asked in trios
        if not error <= asked
    )


def _tried(
    solvers: list[AbstractSolver],
    train: Callable[..., Solution],
    keys: Iterator[PRNGKeyArray],
    say: Callable[[AbstractSolver], None],
) -> list[Tried]:
    """Return what the pilots found, the best first; one alone needs no pilot.

    Raises:
        RuntimeError: None is finite.
    """
    if len(solvers) == 1:
        say(solvers[0])
        return [Tried(solvers[0], 0.0)]
    tried = []
    for solver in solvers:
        tried.append(_pilot(solver, train, key=next(keys)))
        say(solver)
    tried.sort(key=lambda one: one.noise)
    if not math.isfinite(tried[0].noise):
        raise RuntimeError("no functions suit the equation: no regression on them is finite")
    return tried


def _pilot(solver: AbstractSolver, train: Callable[..., Solution], key: PRNGKeyArray) -> Tried:
    """Return what a regression's functions leave of the value's variance, over all dates."""
    try:
        return Tried(solver, float(train(solver, key=key).stats["losses"][-1, -1]))
    except RuntimeError:  # it is not finite
        return Tried(solver, math.inf)


def _in_full(solver: AbstractSolver) -> AbstractSolver:
    """Return the solver on as many paths as a solution is made of."""
    return replace(solver, num_paths=_PATHS) if isinstance(solver, GradientRegression) else solver


def _on_fewer_dates(problem: Problem) -> Problem:
    """Return the problem on half of its dates; as it is where the contract needs the others."""
    try:
        return problem.with_num_steps(max(1, problem.num_steps // 2))
    except ValueError:
        return problem


def _scale(problem: Problem) -> float:
    """Return the sum of the coordinates of x0, which are prices.

    A Delta of every coordinate that makes up the value, linear in the state, is the value over this.
    """
    return float(jnp.sum(problem.x0))


def _is_positive(problem: Problem, *, key: PRNGKeyArray) -> bool:
    """Return whether all states are above 0, as prices are, by a look at some paths."""
    return bool(jnp.all(simulate(problem, _LOOK, key=key).states > 0.0))


def _words(solver: AbstractSolver) -> str:
    if not isinstance(solver, GradientRegression):
        return type(solver).__name__
    return ", ".join(type(basis).__name__ for basis in solver.bases)


def _is_affine(problem: Problem) -> bool:
    """Return whether f is affine in y and z, by a look at some of them today."""
    shape, dim, t, x0 = problem.contracts, problem.dim, problem.times[0], problem.x0
    numbers = jax.random.normal(jax.random.key(0), (_LOOK, math.prod(shape), dim + 1), x0.dtype)
    scale = jnp.max(jnp.abs(problem.terminal(x0))) + 1.0

    def bend(numbers):
        y, z = scale * numbers[:, 0], scale * numbers[:, 1:]
        at = lambda k: problem.flat_driver(t, x0, k * y, k * z)  # noqa: E731
        return jnp.max(jnp.abs(at(1.0) + at(-1.0) - 2.0 * at(0.0))), jnp.max(jnp.abs(at(1.0)))

    bends, sizes = jax.vmap(bend)(numbers)
    return bool(jnp.max(bends) <= _ROUNDING * jnp.max(sizes))
