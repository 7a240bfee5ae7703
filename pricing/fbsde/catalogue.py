"""The catalogue of published problems, with known figures and a suitable solver for each."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from . import problems
from .problem import Problem
from .solver import AbstractSolver
from .solvers.backward_dp import BackwardDP
from .solvers.bases import (
    Hermite,
    MeanPolynomials,
    PayoffBasis,
    SeparableBasis,
    SmoothMaximum,
)
from .solvers.deep_bsde import DeepBSDE
from .solvers.gradient_regression import GradientRegression
from .solvers.grid_quadrature import GridQuadrature
from .solvers.networks import Architecture
from .solvers.one_step_malliavin import OneStepMalliavin


@dataclass(frozen=True)
class Entry:
    """A problem, a suitable solver, and the known figures at t = 0, x0; None if unknown or zero.

    Attributes:
        problem: A function that returns the problem.
        solver: The solver, with settings for this problem.
        value: The value; None if unknown.
        delta: Each entry of the gradient, or the gradient as a function of x0.
        gamma: Each entry on the Hessian's diagonal.
        cross_gamma: Each entry off the Hessian's diagonal.
        bounded: Whether to compute bounds of early exercise as well.
    """

    problem: Callable[[], Problem]
    solver: AbstractSolver
    value: float | None
    delta: float | Callable[[np.ndarray], np.ndarray] | None = None
    gamma: float | None = None
    cross_gamma: float = 0.0
    bounded: bool = False

    def figures(self, problem: Problem) -> dict[str, np.ndarray]:
        """Return the known figures by name: value, gradient, Hessian, and off-diagonal Hessian."""
        if self.value is None:
            return {}
        known, x0 = {"value": np.asarray(self.value)}, np.asarray(problem.x0, float)
        if self.delta is not None:
            delta = self.delta(x0) if callable(self.delta) else self.delta
            known["delta"] = np.broadcast_to(delta, x0.shape)
        if self.gamma is not None:
            one = np.eye(problem.dim)
            known["gamma"] = self.gamma * one + self.cross_gamma * (1.0 - one)
        if self.cross_gamma:
            known["cross gamma"] = off_diagonal(known["gamma"])
        return known


def off_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return the entries off the diagonal."""
    return matrix[~np.eye(len(matrix), dtype=bool)]


_GROWTH = math.exp(0.21)  # u of the Black-Scholes-Barenblatt equation: exp(.21) |x|^2
_CURVED = OneStepMalliavin(gamma="diagonal", num_paths=32768)
_NETWORKS = BackwardDP(
    num_iterations=200,
    first_stages=10,
    num_paths=65536,
    architecture=Architecture(width=40, activation=jax.nn.tanh),
)


def _regression(*bases, num_paths: int = 65536, **options) -> GradientRegression:
    return GradientRegression(num_paths=num_paths, bases=bases, **options)


def _extremes(*sharpness: float) -> GradientRegression:
    """Return a solver for a payoff of the maximum or minimum of a hundred assets with equal initial values."""
    bases = Hermite(1), SmoothMaximum(sharpness=sharpness), PayoffBasis()
    return _regression(*bases, num_paths=8192, initial_dispersion=0.0)


def _bounded(dim: int, solver: AbstractSolver) -> Entry:
    """Return the entry of a problem whose value is exp(1 / 2) cos(sum x) at x = 1."""
    value, slope = (math.exp(0.5) * f(dim) for f in (math.cos, math.sin))
    return Entry(lambda: problems.bounded_example(dim), solver, value, -slope, -value, -value)


def _max_call(dim: int, solver: AbstractSolver, *known: float) -> Entry:
    return Entry(lambda: problems.max_call(dim), solver, *known, bounded=True)


def _geometric_call(dim: int, *known: float) -> Entry:
    solver = _regression(
        Hermite(1, logs=True), MeanPolynomials(12, logs=True), initial_dispersion=0.8
    )
    return Entry(lambda: problems.geometric_call(dim), solver, *known, bounded=False)


def _down_and_out(barrier: float, *known: float) -> Entry:
    return Entry(
        lambda: problems.down_and_out_call(barrier), GridQuadrature(), *known, bounded=False
    )


CATALOGUE: dict[str, Entry] = {
    "allen-cahn": Entry(problems.allen_cahn, DeepBSDE(num_iterations=1500), 0.0527813),
    "hjb": Entry(problems.hjb, DeepBSDE(num_iterations=1500), 4.59016172),
    "default-risk": Entry(problems.default_risk, _extremes(-1.0, -2.0, -4.0), 57.300),
    "different-rates": Entry(problems.different_rates, _extremes(1.0, 2.0, 4.0), 21.174),
    "burgers": Entry(  # polynomials of higher degree amplify themselves far out
        problems.burgers,
        _regression(Hermite(1), MeanPolynomials(4), PayoffBasis(), initial_dispersion=0.2),
        0.5,
        0.005,
    ),
    "reaction-diffusion": Entry(
        problems.reaction_diffusion,
        _regression(Hermite(1), MeanPolynomials(8), num_paths=16384, order=1),
        1.6,
    ),
    "black-scholes-barenblatt": Entry(
        problems.black_scholes_barenblatt, DeepBSDE(num_iterations=1500), 77.1049
    ),
    "allen-cahn-gamma": Entry(problems.allen_cahn, _CURVED, 0.0527813, None, -1.61812e-3),
    "hjb-gamma": Entry(problems.hjb, _CURVED, 4.59016172, None, 9.948198e-3),
    "hjb-riccati-gamma": Entry(problems.hjb_riccati, _CURVED, 50.0 * math.log(5.0), None, 0.4),
    "black-scholes-barenblatt-gamma": Entry(
        partial(problems.black_scholes_barenblatt, num_steps=20),
        _CURVED,
        62.5 * _GROWTH,
        lambda x: 2.0 * _GROWTH * x,
        2.0 * _GROWTH,
    ),
    "bounded-5": _bounded(5, _regression(Hermite(1), MeanPolynomials(8), initial_dispersion=0.2)),
    "bounded-10": _bounded(10, _regression(Hermite(1), MeanPolynomials(8), initial_dispersion=0.2)),
    "bounded-5-networks": _bounded(5, _NETWORKS),
    "bounded-10-networks": _bounded(10, _NETWORKS),
    "different-rates-call": Entry(
        problems.different_rates_call,
        _regression(Hermite(8), PayoffBasis(), num_paths=262144),
        7.15589606,
        0.61135129,
        0.02710337,
    ),
    "max-call-2": _max_call(
        2,
        _regression(Hermite(6), PayoffBasis(), num_paths=131072),
        *(13.90178, 0.334414, 0.012817, -0.004654),
    ),
    "max-call-5": _max_call(5, _regression(Hermite(2), SmoothMaximum(), PayoffBasis()), 26.159),
    "max-call-10": _max_call(10, _regression(Hermite(1), SmoothMaximum(), PayoffBasis()), 38.337),
    "max-call-20": _max_call(20, _regression(Hermite(1), SmoothMaximum(), PayoffBasis()), 51.668),
    "geometric-call-7": _geometric_call(7, 10.24629, 0.0721295, -3.367e-4, 3.846e-4),
    "geometric-call-20": _geometric_call(20, 10.01952, 0.0251181, -2.034e-4, 4.777e-5),
    "gaussian-swaption": Entry(
        problems.gaussian_swaption,
        _regression(Hermite(8), PayoffBasis()),
        *(0.0488693, 2.56580, 121.08),
        bounded=True,
    ),
    "down-and-out-90": _down_and_out(90.0, 6.098196, 0.632810, 0.020572),
    "uncertain-volatility": Entry(
        problems.uncertain_volatility, GridQuadrature(), 11.20456, 0.511498, 0.00189993
    ),
    "barenblatt": Entry(
        problems.barenblatt,
        _regression(SeparableBasis(2), num_paths=32768),
        62.5 * _GROWTH,
        lambda x: 2.0 * _GROWTH * x,
        2.0 * _GROWTH,
    ),
    "merton-put": Entry(problems.merton_put, GridQuadrature(), 8.811624, -0.346834, 0.0135717),
    "merton-bermudan": Entry(
        partial(problems.merton_put, 20, 10), GridQuadrature(), 9.332796, -0.373468
    ),
    "down-and-out-95": _down_and_out(95.0, 4.906789, 0.797814, 0.000681),
}
"""Published problems by their names in `jaxtape solve`.

Sources of the values. Default risk: E, Han, Jentzen (2017). Different rates: three ways that agree
(`benchmarks/two_rates.py`); the published 21.299 is .6 % higher. Best of five, ten and twenty assets: point
estimates in the literature following Andersen, Broadie (2004). Burgers, reaction-diffusion, Barenblatt,
Riccati, the bounded example, the call at two rates and Merton's put: closed forms. The others: this project's
grids and quadratures.
"""
