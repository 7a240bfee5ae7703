"""Published problems, what is known of them, and a solver that suits each."""

from collections.abc import Callable
from dataclasses import dataclass

from . import problems
from .bases import Hermite, Payoffs, SmoothMaximum
from .deep_bsde import DeepBSDE
from .gradient_regression import GradientRegression
from .problem import Problem
from .solver import AbstractSolver


@dataclass(frozen=True)
class Entry:
    """At t = 0, x0: the value; the means of the gradient's entries, of the Hessian's diagonal, and of the rest.

    interval: published bounds of the value, where it is known no better.
    """

    problem: Callable[[], Problem]
    solver: AbstractSolver
    value: float
    delta: float | None = None
    gamma: float | None = None
    cross_gamma: float | None = None
    bounded: bool = False


def _regression(*bases, num_paths: int = 65536, **options) -> GradientRegression:
    return GradientRegression(num_paths, bases, **options)


def _of_extremes(*sharpness: float) -> GradientRegression:
    """For a payoff of the largest or smallest of a hundred assets that start equal."""
    bases = Hermite(1), SmoothMaximum(sharpness), Payoffs()
    return _regression(*bases, num_paths=8192, scatter=0.0)


def _max_call(dim: int, solver: AbstractSolver, *known: float) -> Entry:
    return Entry(lambda: problems.max_call(dim), solver, *known, bounded=True)


CATALOGUE: dict[str, Entry] = {
    "allen-cahn": Entry(problems.allen_cahn, DeepBSDE(1500), 0.0527813),
    "hjb": Entry(problems.hjb, DeepBSDE(1500), 4.59016172),
    "default-risk": Entry(problems.default_risk, _of_extremes(-1.0, -2.0, -4.0), 57.300),
    "different-rates": Entry(problems.different_rates, _of_extremes(1.0, 2.0, 4.0), 21.174),
    "burgers": Entry(problems.burgers, DeepBSDE(3000), 0.5),
    "reaction-diffusion": Entry(
        problems.reaction_diffusion, _regression(Hermite(1, 8), num_paths=16384, order=1), 1.6
    ),
    "black-scholes-barenblatt": Entry(problems.black_scholes_barenblatt, DeepBSDE(1500), 77.1049),
    "different-rates-call": Entry(
        problems.different_rates_call,
        _regression(Hermite(8), Payoffs(), num_paths=262144),
        7.15589606,
        0.61135129,
        0.02710337,
    ),
    "max-call-2": _max_call(
        2,
        _regression(Hermite(6), Payoffs(), num_paths=131072),
        *(13.90178, 0.334414, 0.012817, -0.004654),
    ),
    "max-call-5": _max_call(5, _regression(Hermite(2), SmoothMaximum(), Payoffs()), 26.159),
    "max-call-10": _max_call(10, _regression(Hermite(1), SmoothMaximum(), Payoffs()), 38.337),
    "max-call-20": _max_call(20, _regression(Hermite(1), SmoothMaximum(), Payoffs()), 51.668),
    "geometric-call-7": Entry(
        lambda: problems.geometric_call(7),
        _regression(Hermite(1, 8, logs=True)),
        *(10.24629, 0.0721295, -3.367e-4, 3.846e-4),
    ),
    "geometric-call-20": Entry(
        lambda: problems.geometric_call(20),
        _regression(Hermite(1, 8, logs=True)),
        *(10.01952, 0.0251181, -2.034e-4, 4.777e-5),
    ),
    "gaussian-swaption": Entry(
        problems.gaussian_swaption,
        _regression(Hermite(8), Payoffs()),
        *(0.0488693, 2.56580, 121.08),
        bounded=True,
    ),
    "down-and-out-90": Entry(
        lambda: problems.down_and_out_call(90.0),
        _regression(Hermite(10), Payoffs(), scatter=0.01),
        *(6.098196, 0.632810, 0.020572),
    ),
    "down-and-out-95": Entry(
        lambda: problems.down_and_out_call(95.0),
        _regression(Hermite(10), Payoffs(), scatter=0.01),
        *(4.906789, 0.797814, 0.000681),
    ),
}
"""Values. Default risk: E, Han, Jentzen (2017). Different rates: three ways that agree
(`benchmarks/two_rates.py`); the published 21.299 is .6 % higher. Best of five, ten and twenty assets: point
estimates in the literature after Andersen, Broadie (2004). Burgers, reaction-diffusion, Barenblatt and the call
at two rates: closed forms. The others: grids and quadratures of this project."""
