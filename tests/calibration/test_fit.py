"""Risk to quotes through the calibration, against bumping a quote and calibrating again."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import calibration.calibration
from calibration import ImpliedVolError, calibrate, fit
from calibration.calibration import solved
from calibration.least_squares_problem import LeastSquaresProblem
from calibration.market_fit import fit_again
from calibration.parameters import FreeParameters
from pricing import Book, Heston, price, risk
from pricing.portfolio.batching import products_of
from tests.helpers import dax, dax_book, double
from tests.references import dax_heston

pytestmark = double

KINDS = {"european": 8, "digital": 8, "barrier": 5}
OBJECTIVE = ImpliedVolError()
STEPS = {"EQUITY_OPTION": 2e-4, "ZERO": 2e-4, "EQUITY": 0.2, "EQUITY_DIVIDEND": 1e-4}


@pytest.fixture(
    scope="module",
    params=[2, pytest.param(3, marks=pytest.mark.slow)],
    ids=["claims", "and barriers"],
)
def sub_book(request) -> Book:
    """Every other of the first trades of each kind of the sample book."""
    rows = []
    for kind, count in list(KINDS.items())[: request.param]:
        rows += [row for row in dax_book().rows if row.type == kind][: 2 * count : 2]
    return dataclasses.replace(dax_book(), rows=tuple(rows))


@pytest.fixture(scope="module")
def fitted():
    return fit(dax_heston(), objective=OBJECTIVE)


@pytest.fixture(scope="module")
def found(sub_book, fitted):
    return risk(sub_book, dax(), fitted)


@pytest.fixture(scope="module")
def recalibrated(sub_book):
    """Market -> value of the sub-book at the zero of the gradient, by Newton's method from the old optimum.

    No optimizer of the library has a part in it, and it ends at the rounding of the gradient, where a method
    that compares losses ends at the root of that.
    """
    kinds = dict.fromkeys(row.type for row in sub_book.rows)
    trades = [[row.trade for row in sub_book.rows if row.type == kind] for kind in kinds]
    products = [products_of(kind, dax()) for kind in trades]
    quantities = [jnp.asarray([trade.quantity for trade in kind]) for kind in trades]

    def value(market):
        model = dax_heston().on_market(market, "DAX")
        parameters = FreeParameters.of(model)
        problem = LeastSquaresProblem(market.equities["DAX"].surface, model, OBJECTIVE, parameters)

        def gradient(free):
            residual, jacobian = problem.linearized(free)
            return residual @ jacobian

        def newton(_, free):
            return free - jnp.linalg.solve(jax.jacfwd(gradient)(free), gradient(free))

        model = problem.model(jax.lax.fori_loop(0, 6, newton, parameters.free(model)))
        pairs = zip(products, quantities, strict=True)
        return sum(jnp.sum(quantity * price(product, model).value) for product, quantity in pairs)

    return eqx.filter_jit(value)


@pytest.mark.costly
def test_the_value_is_that_of_the_contracts(found, recalibrated):
    assert len(found.trades) in (16, 21)
    assert not found.failed
    assert abs(found.value - recalibrated(dax())) < 1e-9 * abs(found.value)


@pytest.mark.costly
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_risk_to_all_115_quotes_is_that_of_bump_and_recalibrate(found, recalibrated, stride):
    """Every fifth of them, or all, to 1e-4.

    Floor 1e-3 per 1.00 of a quote, 1e-9 of the largest: the rate at today moves nothing.
    """
    quotes = dict(dax().flat_quotes())
    assert list(found.sensitivities) == list(quotes)
    assert len(quotes) == 115
    bumped = []
    for quote, level in list(quotes.items())[::stride]:
        step = STEPS[quote.split("/")[0]]
        up, down = (recalibrated(dax().with_quotes({quote: level + s})) for s in (step, -step))
        bumped.append((up - down) / (2.0 * step))
    sensitivities = list(found.sensitivities.values())[::stride]
    np.testing.assert_allclose(sensitivities, bumped, rtol=1e-4, atol=1e-3)


@pytest.mark.costly
def test_vega_and_rho_of_the_trades_add_up_to_the_quotes(found):
    for measure, family in (("vega", "EQUITY_OPTION/"), ("rho", "ZERO/")):
        trades = sum(getattr(trade.position, measure) for trade in found.trades)
        quotes = sum(x for quote, x in found.sensitivities.items() if quote.startswith(family))
        np.testing.assert_allclose(trades, quotes, rtol=1e-9)


@pytest.mark.costly
def test_delta_holds_the_parameters_and_the_spot_quote_does_not(found):
    delta = sum(trade.position.delta["DAX"] for trade in found.trades)
    assert abs(delta - found.sensitivities["EQUITY/PRICE/DAX"]) > 1.0


def test_a_fit_is_differentiable_both_ways(fitted):
    """Forward and reverse give one Jacobian, and do not go through the optimizer's steps."""
    parameters = lambda model: jnp.stack([model.vol_of_vol, model.correlation])
    free = lambda market: parameters(fitted(market)["DAX"])
    _, push = jax.linearize(free, dax())
    tangent = jax.tree.map(jnp.ones_like, dax())
    weights = jnp.asarray([1.0, -2.0])
    (pulled,) = jax.linear_transpose(push, dax())(weights)
    along = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(pulled))
    np.testing.assert_allclose(weights @ push(tangent), along, rtol=1e-9)


def test_a_derivative_of_a_fit_runs_the_program_of_the_fit(monkeypatch):
    """The search is compiled once: no derivative makes a tracer of a number that the search takes."""
    again = fit_again(calibrate(dax().equities["DAX"].surface, dax_heston()))
    traced = []

    def search(*args):
        traced.append(any(isinstance(x, Tracer) for x in jax.tree.leaves(args)))
        return solved(*args)

    monkeypatch.setattr(calibration.calibration, "solved", search)
    eqx.filter_vjp(lambda market: again(market, "DAX").vol_of_vol, dax())
    assert traced == [False]


@pytest.mark.costly
@pytest.mark.parametrize("quote", ["2002-07-18/5000", "2003-06-15/4400", "2004-06-07/4500"])
def test_differences_of_the_fit_itself_are_its_derivative(fitted, quote):
    """To 1e-6 at bumps of 1e-3 and of 1e-5: the fit ends at the rounding of the gradient, not of the loss."""
    quote = f"EQUITY_OPTION/RATE_LNVOL/DAX/{quote}"
    level = dict(dax().flat_quotes())[quote]
    reversion = lambda market: fitted(market)["DAX"].mean_reversion
    derivative = dax().by_quote(jax.grad(reversion)(dax()))[quote]
    for step in (1e-3, 1e-5):
        up, down = (reversion(dax().with_quotes({quote: level + s})) for s in (step, -step))
        np.testing.assert_allclose((up - down) / (2.0 * step), derivative, rtol=1e-6)


@pytest.mark.costly
def test_a_fit_that_does_not_end_at_a_minimum_says_so():
    start = eqx.tree_at(lambda model: model.mean_reversion, dax_heston(), jnp.asarray(1.0))
    with pytest.raises(RuntimeError, match="max_steps"):
        fit(start, max_steps=2)(dax())
    unfinished = fit(start, max_steps=2, throw=False)(dax())["DAX"]
    assert np.isnan(unfinished.vol_of_vol)


def test_where_quotes_tell_nothing_a_weak_prior_gives_a_minimum():
    """Flat quotes of a flat Heston: neither speed nor vol of vol moves a residual."""
    flat = Heston(100.0, 0.0, 0.04, 1.0, 0.04, 1e-9, 0.0)
    quoted = dax().equities["DAX"]
    surface = eqx.tree_at(lambda s: s.vols, quoted.surface, jnp.full_like(quoted.surface.vols, 0.2))
    equity = dataclasses.replace(quoted, surface=surface)
    market = dataclasses.replace(dax(), equities={"DAX": equity})
    model = fit(flat)(market)["DAX"]
    np.testing.assert_allclose([model.initial_variance, model.long_run_variance], 0.04, rtol=1e-3)
    np.testing.assert_allclose(model.mean_reversion, 1.0, rtol=1e-3)
