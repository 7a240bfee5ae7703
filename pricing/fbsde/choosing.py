"""Which functions suit an equation? Pilots say it, by the standard errors of their certificates."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..progress import Progress
from .bases import AbstractBasis, Hermite, Mean, Payoffs, SmoothMaximum
from .certificate import Certificate, certify
from .gradient_regression import GradientRegression
from .problem import Problem
from .simulation import simulate
from .solution import Solution

_PILOT_PATHS, _PATHS = 8192, 65536  # of trainings
_PILOT_CERTIFICATE = 8192
_PILOTS = 3
_MOST_FUNCTIONS = 500  # of a date: their Gram matrix is inverted at each
_SIGNIFICANT = 3.0  # standard errors by which two numbers differ
_COVER = 2.0  # standard errors that are to lie within a tolerance
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
    """What a pilot of a solver found: its certificate, and why it was not finite, if so."""

    solver: GradientRegression
    certificate: Certificate | None
    failure: str = ""


def candidates(problem: Problem, *, key: PRNGKeyArray) -> list[GradientRegression]:
    """Return regressions on functions that suit the dimension, the fewest first."""
    dim = problem.dim
    polynomials = lambda degree: math.comb(dim + degree, degree)  # noqa: E731
    sets: list[tuple[int, tuple[AbstractBasis, ...]]] = [
        (polynomials(degree), (Hermite(degree),)) for degree in (6, 4, 3)
    ]
    if dim > 1:
        sets.append((polynomials(2) + 3, (Hermite(2), Mean(5, above=2))))
        sets.append((polynomials(1) + 7, (Hermite(1), Mean(8, above=1))))
    if dim > 1 and _is_positive(problem, key):
        sets.append((polynomials(1) + 19, (Hermite(1), SmoothMaximum())))
    by_size = sorted(sets, key=lambda pair: pair[0])
    chosen = [bases for size, bases in by_size if size <= _MOST_FUNCTIONS][-_PILOTS:]
    return [
        GradientRegression(num_paths=_PILOT_PATHS, bases=(*bases, Payoffs())) for bases in chosen
    ]


def choose(
    problem: Problem,
    train: Callable[..., Solution],
    *,
    key: PRNGKeyArray,
    rtol: Tolerance,
    max_paths: int,
    progress: Progress | None = None,
) -> Solution:
    """Return the solution of the functions whose pilot did best, certified on as many paths as it takes.

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
    solvers = candidates(problem, key=next(keys))
    stages = len(solvers) + 2
    say = progress or (lambda done, total, message: None)
    tried = []
    for solver in solvers:
        tried.append(_pilot(problem, solver, train, next(keys), next(keys)))
        say(len(tried), stages, _words(solver))
    best = _best(problem, tried, rtol)
    solver = GradientRegression(num_paths=_PATHS, bases=best.solver.bases)
    solution = train(solver, key=next(keys))
    say(stages - 1, stages, _words(solver))
    found = certify(solution, key=next(keys), num_paths=_PILOT_CERTIFICATE)
    wanted = _PILOT_CERTIFICATE * _most(errors(problem, found), rtol) ** 2
    count = min(max_paths, max(_PILOT_CERTIFICATE, 2 ** math.ceil(math.log2(1.2 * wanted + 1.0))))
    found, other = certify(solution, key=next(keys), num_paths=count), None
    others = [one for one in tried if one is not best]
    if problem.step is None or not _is_affine(problem):
        runner_up = _best(problem, others or [best], rtol).solver
        runner_up = GradientRegression(num_paths=_PATHS, bases=runner_up.bases)
        found_too = train(runner_up, key=next(keys), problem=_on_fewer_dates(problem))
        other = certify(found_too, key=next(keys), num_paths=count)
    say(stages, stages, "")
    more = {
        "certificate": found,
        "checked_by": other,
        # as arrays: numbers would make another program of everything that takes the solution
        "errors": jax.tree.map(jnp.asarray, errors(problem, found, other)),
        "solver": solver,
        "tried": tried,
    }
    return eqx.tree_at(lambda s: s.stats, solution, solution.stats | more)


def errors(problem: Problem, found: Certificate, other: Certificate | None = None) -> Tolerance:
    """Return the errors of value, Delta and Gamma, as multiples of the size of each.

    An error is two standard errors, or by what another solution's certificate differs, beyond noise: where the
    driver bends both keep the square of their solution's error, and each has the error of its dates.
    """
    sizes = [float(np.max(np.abs(found.value.mean)))]
    for derivative in (found.delta, found.gamma):
        sizes.append(max(float(np.max(np.abs(derivative.mean))), sizes[-1] / _scale(problem)))
    told = []
    for name, size in zip(Tolerance._fields, sizes, strict=True):
        one, noise = getattr(found, name), getattr(found, name).std_error
        error = _COVER * float(np.max(noise))
        if other is not None:
            both = getattr(other, name)
            noise = np.sqrt(np.asarray(noise) ** 2 + np.asarray(both.std_error) ** 2)
            gap = np.abs(np.asarray(one.mean) - np.asarray(both.mean))
            error = max(error, float(np.max(np.where(gap > _SIGNIFICANT * noise, gap, 0.0))))
        told.append(error / size if size > 0.0 else math.inf)
    return Tolerance(*told)


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


def _pilot(problem: Problem, solver, train, key: PRNGKeyArray, fresh: PRNGKeyArray) -> Tried:
    try:
        solution = train(solver, key=key)
        return Tried(solver, certify(solution, key=fresh, num_paths=_PILOT_CERTIFICATE))
    except RuntimeError as error:  # it is not finite
        return Tried(solver, None, str(error))


def _best(problem: Problem, tried: list[Tried], rtol: Tolerance) -> Tried:
    """Return the pilot of the smallest error; of rights to exercise first those that are not worth less.

    Raises:
        RuntimeError: None is finite.
    """
    sound = [one for one in tried if one.certificate is not None]
    if not sound:
        raise RuntimeError(f"no functions suit the equation: {tried[0].failure}")
    if problem.exercise_value is not None:
        sound = [one for one in sound if not any(_is_worth_more(x, one) for x in sound)]
    return min(sound, key=lambda one: _most(errors(problem, _of(one)), rtol))


def _of(one: Tried) -> Certificate:
    assert one.certificate is not None  # those without are left out
    return one.certificate


def _is_worth_more(one: Tried, other: Tried) -> bool:
    """Return whether a rule of exercise earns more than another, beyond what noise explains."""
    a, b = _of(one).value, _of(other).value
    gap, noise = a.mean - b.mean, jnp.sqrt(a.std_error**2 + b.std_error**2)
    return bool(jnp.all(gap > _SIGNIFICANT * noise))


def _on_fewer_dates(problem: Problem) -> Problem:
    """Return the problem on half of its dates; as it is where the contract needs the others."""
    try:
        return problem.with_num_steps(max(1, problem.num_steps // 2))
    except ValueError:
        return problem


def _scale(problem: Problem) -> float:
    """Return the size of the state: of x0, or infinite where that is 0 and has no size."""
    size = float(jnp.max(jnp.abs(problem.x0)))
    return size if size > 0.0 else math.inf


def _is_positive(problem: Problem, key: PRNGKeyArray) -> bool:
    """Return whether all states are above 0, as prices are, by a look at some paths."""
    return bool(jnp.all(simulate(problem, _LOOK, key=key).states > 0.0))


def _words(solver: GradientRegression) -> str:
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
