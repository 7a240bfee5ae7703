"""Value, Delta and Gamma of the backward equation beside those of `pricing`, wherever it has a sharp method."""

import jax
import numpy as np
import pytest

from pricing import (
    American,
    Barrier,
    Basket,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    ClosedForm,
    European,
    Fourier,
    Heston,
    HullWhite,
    Quadrature,
    Swaption,
)
from pricing.fbsde import GradientRegression, Hermite, PayoffBasis, from_product, solve
from tests.cases import others_later

from .backward_problems import apart, figures_of_pricing

ONE = BlackScholes(100.0, 0.05, 0.2, 0.01)
TWO = BlackScholes(
    [100.0, 90.0], 0.05, [0.2, 0.3], [0.0, 0.02], asset_correlation=[[1.0, 0.4], [0.4, 1.0]]
)
RANDOM = Heston(100.0, 0.03, 0.04, 1.5, 0.05, 0.4, -0.6)
# without mean reversion the state moves the zero rates in parallel, as Delta of `pricing` does
RATES = HullWhite(0.03, 0.0, 0.01)
YEARS = np.arange(1.0, 7.0)
QUARTERS = np.arange(1, 5) / 4.0

SMOOTH = (Hermite(8), PayoffBasis())
TIGHT = (2e-3, 5e-3, 3e-2)

# product, model, method, steps, bases, relative errors of value, Delta and Gamma, paths
CASES = {
    "calls": (European([90.0, 100.0, 110.0], 1.0), ONE, ClosedForm(), 8, SMOOTH, TIGHT),
    "put": (European(105.0, 1.0, "put"), ONE, ClosedForm(), 8, SMOOTH, TIGHT),
    "Bermudan put": (
        Bermudan(European(105.0, 1.0, "put"), QUARTERS),
        *(ONE, Quadrature(), 8, SMOOTH, TIGHT),
    ),
    "down-and-out": (
        Barrier(100.0, 1.0, 85.0, "down-and-out", rebate=2.0, dates=QUARTERS),
        *(ONE, Quadrature(), 8, SMOOTH, TIGHT),
    ),
    "geometric basket": (
        Basket(95.0, 1.0, "call", "geometric"),
        *(TWO, ClosedForm(), 8, (Hermite(4), PayoffBasis()), TIGHT, 65536),
    ),
    "receiver swaption": (
        Swaption(0.032, 2.0, YEARS[2:], np.ones(4), "receiver"),
        *(RATES, ClosedForm(), 8, SMOOTH, TIGHT),
    ),
    "Bermudan swaption": (
        BermudanSwaption(0.03, YEARS[:3], YEARS, np.ones(6)),
        *(RATES, Quadrature(), 12, SMOOTH, TIGHT),
    ),
}


def agrees(product, model, method, num_steps, bases, tolerances, num_paths=32768) -> None:
    problem, known = (
        from_product(product, model, num_steps),
        figures_of_pricing(product, model, method),
    )
    solution = solve(problem, GradientRegression(num_paths, bases), key=jax.random.key(0))
    spots = model.underlying.size
    figures = (
        solution.value(0.0, problem.x0),
        solution.delta(0.0, problem.x0)[..., :spots],
        solution.gamma(0.0, problem.x0)[..., :spots, :spots],
    )
    for found, truth, tolerance in zip(figures, known, tolerances, strict=True):
        assert apart(found, np.reshape(truth, found.shape)) < tolerance


# shown by others: a single contract by many, a barrier by test_gradient_regression.py, and early exercise
# under rates by puts and by a swaption
REPEATED = "put", "down-and-out", "Bermudan swaption"


@pytest.mark.costly
@pytest.mark.parametrize("name", others_later(CASES, ["calls"], CASES.keys() - REPEATED))
def test_figures_are_those_of_pricing(name):
    agrees(*CASES[name])


@pytest.mark.slow
def test_an_american_option_agrees_on_many_dates():
    """Exercised on 50 dates alone."""
    agrees(American(100.0, 1.0, "put"), ONE, Quadrature(), 50, SMOOTH, (3e-3, 1e-2, 3e-2))


@pytest.mark.slow
def test_a_random_variance_agrees_with_fourier():
    call, bases = European(100.0, 1.0), (Hermite(5), PayoffBasis())
    agrees(call, RANDOM, Fourier(), 16, bases, TIGHT)
