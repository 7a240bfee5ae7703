"""Hull-White to swaption vols: a published calibration, swaptions of a known model, and risk to the quotes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import RESULTS, SwapLegs, SwaptionVolError, calibrate, fit
from pricing import Book, ClosedForm, Heston, HullWhite, Quadrature, Swaption, price, risk
from pricing.market import SwaptionVols
from pricing.numerics.black import black
from pricing.portfolio.batching import products_of
from tests.helpers import curve, double, first_difference, sample_market
from tests.references import HULL_WHITE as PUBLISHED

pytestmark = double

YEARS = np.arange(1.0, 6.0)
COTERMINAL = np.fliplr(np.eye(5))
START = HullWhite(PUBLISHED["rate"], 0.1, 0.01)
SPARSE = [0.5, 2.0, 7.0], [1.0, 1.5, 10.0]


def matrix(vols, kind="lognormal", expiries=YEARS, tenors=YEARS) -> SwaptionVols:
    return SwaptionVols(expiries, tenors, vols, kind)


def quoted() -> SwaptionVols:
    """The sample market's matrix, of 15 February 2002."""
    return matrix(sample_market().swaption_vols.vols)


def fitted(quotes, model=START, **settings):
    return calibrate(quotes, model, **settings)


@eqx.filter_jit
def vols_of(objective, model, quotes):
    return objective.vols(model, quotes)


@eqx.filter_jit
def residuals_of(objective, model, quotes):
    return objective.residuals(model, quotes)


# --- the published calibration ------------------------------------------------------------------------


def published_legs() -> SwapLegs:
    months = [12 * int(year) for year in YEARS]
    rules = {"months": PUBLISHED["months"], "day_count": PUBLISHED["day_count"]}
    return SwapLegs.on_calendar(PUBLISHED["settlement"], months, months, **rules)


@pytest.fixture(scope="module")
def published():
    """The problem of the published calibration, and its outcome."""
    legs = published_legs()
    days = (PUBLISHED["settlement"] - PUBLISHED["today"]).days
    quotes = matrix(quoted().vols, expiries=legs.exercise + days / 365.0)
    objective = SwaptionVolError(COTERMINAL, legs, error="relative price")
    return quotes, objective, fitted(quotes, objective=objective, num_starts=5)


def test_the_published_parameters_and_vols(published):
    quotes, objective, found = published
    assert found.result == RESULTS.converged
    assert abs(found.model.mean_reversion - PUBLISHED["mean_reversion"]) < 2e-6
    assert abs(found.model.vol - PUBLISHED["vol"]) < 5e-8
    vols = np.fliplr(vols_of(objective, found.model, quotes)).diagonal()
    np.testing.assert_allclose(vols, PUBLISHED["model_vols"], rtol=0.0, atol=1e-5)


def test_no_better_point_is_published(published):
    quotes, objective, found = published
    theirs = HullWhite(PUBLISHED["rate"], PUBLISHED["mean_reversion"], PUBLISHED["vol"])
    loss = 1e4 * jnp.sum(residuals_of(objective, theirs, quotes) ** 2)
    best = found.stats["sum_squared_vol_points"]
    assert best <= loss < best * (1.0 + 1e-6)


def test_the_five_quotes_hardly_identify_both_parameters(published):
    """Their vols tell mean reversion only by the shape of their small differences."""
    _, _, found = published
    assert found.stats["starts_at_optimum"] == 5
    assert 1e4 < found.stats["condition_number"] < 1e5
    residuals = np.asarray(found.residuals)
    assert residuals.shape == quoted().vols.shape
    assert np.all(residuals[COTERMINAL == 0.0] == 0.0)
    variance = np.sum(residuals**2) / (5 - 2)
    jacobian = _jacobian(published)
    np.testing.assert_allclose(
        found.stats["covariance"], variance * np.linalg.inv(jacobian.T @ jacobian), rtol=1e-6
    )


def _jacobian(published):
    quotes, objective, found = published

    def residuals(a, sigma):
        return objective.residuals(HullWhite(PUBLISHED["rate"], a, sigma), quotes).ravel()

    at = found.model.mean_reversion, found.model.vol
    return np.stack(jax.jit(jax.jacfwd(residuals, (0, 1)))(*at), axis=-1)


def test_legs_on_a_calendar_are_those_of_the_published_swaps():
    """Of 4x2: exercised on 20 February 2006, entered two business days later, paid on 22s and 21s."""
    legs = published_legs()
    assert legs.payment_dates.shape == (5, 5, 10)
    day = lambda t: (365.0 * t).round().astype(int).tolist()
    assert (day(legs.exercise[3]), day(legs.start[3])) == (1462, 1464)
    assert day(legs.payment_dates[3, 1]) == [1464] * 6 + [1645, 1829, 2010, 2194]
    accruals = np.array([0, 0, 0, 0, 0, 0, 181, 184, 181, 184]) / 360.0
    np.testing.assert_allclose(legs.accruals[3, 1], accruals, rtol=1e-12)


# --- the objective ------------------------------------------------------------------------------------

_SOME = HullWhite(curve(), 0.07, 0.012)


@jax.jit
def swaptions(vols):
    """Of each tenor of SPARSE, at the money: values, and what the formulas of both kinds say of the vols."""
    found, expiries = [], jnp.asarray(SPARSE[0])
    for tenor, column in zip(SPARSE[1], vols.T, strict=True):
        dates = expiries[:, None] + np.arange(0.5, tenor + 0.1, 0.5)[None, :]
        bonds, accruals = _SOME.discount(dates), np.full(dates.shape, 0.5)
        annuity = 0.5 * jnp.sum(bonds, axis=1)
        forward = (_SOME.discount(expiries) - bonds[:, -1]) / annuity
        value = price(Swaption(forward, expiries, dates, accruals), _SOME, ClosedForm()).value
        std = column * jnp.sqrt(expiries)
        lognormal = annuity * black(forward, forward, std, jnp.ones_like(std))
        normal = annuity * std / jnp.sqrt(2.0 * jnp.pi)
        found.append({"value": value, "lognormal": lognormal, "normal": normal})
    return found


@pytest.mark.parametrize("kind", ["lognormal", "normal"])
def test_residuals_are_those_of_swaptions_priced_one_by_one(kind):
    """At the money by the closed form for products; back from the vols by Black's and Bachelier's formulas."""
    quotes = matrix(np.full((3, 3), 0.1), kind, *SPARSE)
    vols = quotes.vols + residuals_of(SwaptionVolError(months=6), _SOME, quotes)
    for found in swaptions(vols):
        np.testing.assert_allclose(found["value"], found[kind], rtol=1e-12)


def test_a_period_that_does_not_fit_the_tenor_comes_first():
    legs = SwapLegs.plain(matrix(np.full((3, 3), 0.1), "lognormal", *SPARSE), months=12)
    np.testing.assert_allclose(legs.payment_dates[1, 1, -3:], [2.0, 2.5, 3.5], rtol=1e-12)
    np.testing.assert_allclose(legs.accruals[1, 1, -3:], [0.0, 0.5, 1.0], rtol=1e-12)


def test_a_swap_of_too_many_payments_is_refused():
    quotes = matrix([[0.1]], expiries=[1.0], tenors=[31.0])
    with pytest.raises(RuntimeError, match=r"more than 60 payments: give SwaptionVolError\(legs="):
        SwaptionVolError(months=6).residuals(START, quotes)


def test_a_relative_price_error_of_normal_vols_is_that_of_the_vols():
    quotes = matrix(np.full((3, 3), 0.01), "normal", *SPARSE)
    errors = residuals_of(SwaptionVolError(error="relative price"), _SOME, quotes)
    expected = vols_of(SwaptionVolError(), _SOME, quotes) / quotes.vols - 1.0
    np.testing.assert_allclose(errors, expected, rtol=1e-10)


def test_an_unknown_error_is_named():
    with pytest.raises(
        ValueError, match=r"error must be one of 'vol', .*'relative price', got 'x'"
    ):
        SwaptionVolError(error="x")


# --- the default calibration --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mean_reversion"), [("lognormal", 0.08), ("normal", 0.08), ("lognormal", -0.03)]
)
def test_a_models_own_vols_give_it_back(kind, mean_reversion):
    """Mean reversion may have either sign."""
    truth = HullWhite(curve(), mean_reversion, 0.009)
    blank = matrix(np.full((3, 3), 0.1), kind, *SPARSE)
    quotes = matrix(vols_of(SwaptionVolError(), truth, blank), kind, *SPARSE)
    found = fitted(quotes, HullWhite(curve(), 0.02, 0.02))
    np.testing.assert_allclose(found.model.mean_reversion, mean_reversion, rtol=1e-6)
    np.testing.assert_allclose(found.model.vol, 0.009, rtol=1e-6)
    assert found.residuals.shape == (3, 3)


def test_the_whole_matrix_by_default():
    found = fitted(quoted())
    residuals = vols_of(SwaptionVolError(), found.model, quoted()) - quoted().vols
    np.testing.assert_allclose(found.residuals, residuals, atol=1e-14)
    np.testing.assert_allclose(
        found.stats["sum_squared_vol_points"], 1e4 * np.sum(residuals**2), rtol=1e-10
    )
    assert 1.0 < found.stats["condition_number"] < 100.0


# --- through the optimum ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def market():
    return dataclasses.replace(sample_market(), equities={}, correlations={})


(
    HEADER,
    *TRADES,
) = """id,type,underlying,quantity,side,fixed_rate,notional,start,expiry,exercise_dates,maturity
S,swap,EUR,2,payer,0.04,100,2002-10-05,,,2005-10-05
O,swaption,EUR,-3,receiver,0.045,1000,,2003-07-05,,2006-07-05
B,bermudan_swaption,EUR,1,payer,0.04,500,,,2003-07-05|2004-07-05,2006-07-05
""".splitlines()


@eqx.filter_jit
def value_of(products, quantities, model):
    methods = (ClosedForm(), ClosedForm(), Quadrature(64))
    pairs = zip(products, methods, strict=False)
    values = [price(product, model, method).value[0] for product, method in pairs]
    return quantities @ jnp.stack(values)


@pytest.mark.costly
@pytest.mark.parametrize(("count", "stride"), [(2, 3), pytest.param(3, 1, marks=pytest.mark.slow)])
def test_risk_to_every_quote_is_that_of_bump_and_recalibrate(market, count, stride):
    """Of two trades to every third quote, or of all to all, to 1e-6; floor 1e-7 of the largest.

    A quote of weight 0 moves nothing.
    """
    weights = np.ones((5, 5))
    weights[:, 4] = 0.5
    weights[2] = 0.0
    model_of, book = (
        fit(START, objective=SwaptionVolError(weights)),
        Book.from_text("\n".join([HEADER, *TRADES[:count]])),
    )
    result = risk(book, market, model_of)
    assert not result.failed
    found = result.sensitivities
    assert len(found) == 25 + 9
    products = [products_of([trade], market) for trade in book.trades]
    quantities = jnp.asarray([trade.quantity for trade in book.trades])
    value = lambda market: value_of(products, quantities, model_of(market)["EUR"])
    np.testing.assert_allclose(result.value, value(market), rtol=1e-9)
    bumped = []
    for quote, level in market.flat_quotes()[::stride]:
        bump = lambda h, q=quote, x=level: value(market.with_quotes({q: x + h}))
        bumped.append(first_difference(bump, 4e-4))
    floor = 1e-7 * np.max(np.abs(bumped))
    np.testing.assert_allclose(list(found.values())[::stride], bumped, rtol=1e-6, atol=floor)
    moving = {quote for quote in found if found[quote] != 0.0}
    ids = market.quote_ids().swaption_vols.vols
    assert moving.isdisjoint(ids[2])
    assert moving.issuperset(np.delete(ids, 2, axis=0).ravel())
    vega = sum(trade.position.vega for trade in result.trades)
    np.testing.assert_allclose(vega, sum(found[quote] for quote in ids.flat), rtol=1e-9)


def test_an_objective_is_that_of_one_model():
    heston = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
    with pytest.raises(ValueError, match="for Heston, HullWhite: give each model its own fit"):
        fit(heston, START, objective=SwaptionVolError())


@pytest.mark.costly
def test_a_fit_of_rates_is_of_the_curve_that_the_vols_belong_to(market):
    assert list(fit(START)(market)) == ["EUR"]
    elsewhere = dataclasses.replace(market.swaption_vols, curve="USD")
    assert fit(START)(dataclasses.replace(market, swaption_vols=elsewhere)) == {}
    assert fit(START)(dataclasses.replace(market, swaption_vols=None)) == {}
