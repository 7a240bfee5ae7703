"""Dividend yields as curves: in models, in every method that reads them, and in market files."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import QuantLib as ql

from pricing import (
    American,
    Barrier,
    BlackScholes,
    Book,
    ClosedForm,
    European,
    FiniteDifference,
    Heston,
    Market,
    Quadrature,
    ZeroCurve,
    price,
    risk,
)
from pricing.market.moves import moved
from pricing.models.baskets import joined
from pricing.models.surface_models import black_scholes

TIMES = [0.25, 1.0, 2.0]
RATES, YIELDS = ZeroCurve(TIMES, [0.03, 0.04, 0.02]), ZeroCurve(TIMES, [0.005, 0.03, 0.05])
SAME = ZeroCurve([0.5, 2.0], [0.02, 0.02])
QUADRATURE = Quadrature()
FEW = FiniteDifference(60, 20, 20)


def test_the_forward_grows_by_the_curve():
    model = BlackScholes(100.0, RATES, 0.2, YIELDS)
    for t in (0.1, 0.7, 3.0):
        expected = 100.0 * YIELDS.discount(t) / RATES.discount(t)
        assert np.isclose(model.forward(t), expected, rtol=1e-14)
    assert not model.is_constant


def test_a_call_is_a_put_with_rates_and_yields_exchanged():
    """McDonald and Schroder (1998): C(S, K, r, q) = P(K, S, q, r), also at any time, and for curves."""
    call = price(American(110.0, 1.5, "call"), BlackScholes(100.0, RATES, 0.25, YIELDS), QUADRATURE)
    put = price(American(100.0, 1.5, "put"), BlackScholes(110.0, YIELDS, 0.25, RATES), QUADRATURE)
    assert np.isclose(call.value, put.value, rtol=1e-6)


def test_quantlib_finds_the_same_american_option():
    today, count = ql.Date(5, 7, 2002), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    days = [0, 90, 365, 730]

    def handle(rates):
        dates = [today + day for day in days]
        curve = ql.ZeroCurve(dates, [rates[0], *rates], count)
        return ql.YieldTermStructureHandle(curve)

    rates, yields = [0.03, 0.04, 0.02], [0.005, 0.03, 0.05]
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    vol = ql.BlackVolTermStructureHandle(ql.BlackConstantVol(today, ql.NullCalendar(), 0.25, count))
    process = ql.BlackScholesMertonProcess(spot, handle(yields), handle(rates), vol)
    exercise = ql.AmericanExercise(today, today + 500)
    option = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, 105.0), exercise)
    option.setPricingEngine(ql.FdBlackScholesVanillaEngine(process, 800, 800))
    curves = [ZeroCurve(np.array(days[1:]) / 365.0, x) for x in (rates, yields)]
    model = BlackScholes(100.0, curves[0], 0.25, curves[1])
    ours = price(American(105.0, 500 / 365.0, "put"), model, QUADRATURE).value
    assert np.isclose(ours, option.NPV(), atol=2e-3)


@pytest.mark.costly
def test_heston_without_vol_of_vol_is_black_scholes():
    still = Heston(100.0, RATES, 0.0625, 1.0, 0.0625, 1e-3, 0.0, YIELDS)
    model = BlackScholes(100.0, RATES, 0.25, YIELDS)
    put = American(105.0, 1.5, "put")
    grid, exact = (price(put, m, method).value for m, method in ((still, FEW), (model, QUADRATURE)))
    assert np.isclose(grid, exact, rtol=3e-3)
    out = Barrier(100.0, 1.5, 80.0, "down-and-out", "call")
    grid = price(out, still, FEW).value
    assert np.isclose(grid, price(out, model, FiniteDifference()).value, rtol=3e-3)


@pytest.mark.costly
@pytest.mark.parametrize(
    "product",
    [Barrier(100.0, 1.5, 80.0, "down-and-out", "call"), American(105.0, 1.5, "put")],
    ids=["barrier", "american"],
)
def test_a_curve_of_equal_yields_is_a_number(product):
    curved = BlackScholes(100.0, 0.03, 0.25, SAME)
    flat = BlackScholes(100.0, 0.03, 0.25, 0.02)
    method = FiniteDifference() if isinstance(product, Barrier) else QUADRATURE
    one = BlackScholes(100.0, 0.03, 0.25, ZeroCurve([1.0], [0.02]))
    assert one.is_constant
    assert not curved.is_constant
    value = price(product, flat).value
    assert np.isclose(price(product, one).value, value, rtol=1e-12)
    by_curve, by_number = (price(product, model, method).value for model in (curved, flat))
    assert np.isclose(by_curve, by_number, rtol=1e-12)


def test_assets_with_curves_and_numbers_are_joined():
    models = [BlackScholes(100.0, RATES, 0.2, YIELDS), BlackScholes(50.0, RATES, 0.3, 0.01)]
    both = joined(models, jnp.eye(2))
    each = jnp.stack([model.forward(1.5) for model in models])
    np.testing.assert_allclose(both.forward(1.5), each, rtol=1e-14)
    assert not both.dividend_yield.is_flat
    shifted = both.dividend_yield.shifted(0.01)
    t = jnp.asarray(1.5)
    factors = jnp.exp(-0.01 * t) * both.dividend_yield.discount(t)
    np.testing.assert_allclose(shifted.discount(t), factors, rtol=1e-14)
    alone = joined(models[:1], jnp.eye(1)).alone
    assert np.isclose(alone.forward(1.5), each[0], rtol=1e-14)


def test_no_other_object_is_a_dividend_yield():
    with pytest.raises(TypeError, match="dividend_yield must be a finite number"):
        BlackScholes(100.0, 0.03, 0.2, "1%")  # pyright: ignore[reportArgumentType]


# --- in market files ------------------------------------------------------------------------------------------


def market(rates=(0.005, 0.03)) -> Market:
    yields = {"days": [90, 400], "rates": list(rates)}
    vols = {"days": [100, 500], "strikes": [80, 120], "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]]}
    equity = {"curve": "EUR", "spot": 100.0, "dividend_yield": yields, "implied_vols": vols}
    curve = {"days": [30, 700], "zero_rates": [0.03, 0.035]}
    document = {"asof": "2002-07-05", "currency": "EUR", "curves": {"EUR": curve}}
    return Market.from_text(json.dumps(document | {"equities": {"S": equity}}))


BOOK = Book.from_text(
    "id,type,underlying,option,strike,expiry\nE,european,S,call,100,2003-04-01\nA,american,S,put,105,2003-01-03\n"
)
PILLARS = ("EQUITY_DIVIDEND/RATE/S/2002-10-03", "EQUITY_DIVIDEND/RATE/S/2003-08-09")


@pytest.mark.costly
def test_each_pillar_is_a_quote_that_risk_reaches():
    now = market()
    assert now.errors == ()
    assert dict(now.flat_quotes())[PILLARS[1]] == 0.03
    key = jax.random.key(0)
    found = risk(BOOK, now, black_scholes, key=key).sensitivities
    step = 1e-5
    for pillar in PILLARS:
        value = dict(now.flat_quotes())[pillar]
        up, down = (
            risk(
                BOOK, moved(now, {pillar: value + h})[0], black_scholes, key=key, greeks=False
            ).value
            for h in (step, -step)
        )
        assert np.isclose(found[pillar], (up - down) / (2.0 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"days": [30], "rates": [0.01, 0.02]}, "dividend_yield.rates", "2 rates for 1 pillars"),
        ({"days": [30], "rates": [2.0]}, "dividend_yield.rates.0", "larger than 1"),
        (
            {"rate": 0.01, "days": [30], "rates": [0.1]},
            "dividend_yield",
            "either one rate or a list",
        ),
        ({"rats": [0.1]}, "dividend_yield.rats", "not a known field"),
        (1.5, "dividend_yield", "larger than 1"),
    ],
)
def test_wrong_yields_are_named(given, field, message):
    vols = {"days": [100], "strikes": [100], "vols_by_expiry": [[0.25]]}
    equity = {"curve": "EUR", "spot": 100.0, "dividend_yield": given, "implied_vols": vols}
    document = {"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}}
    errors = Market.from_text(json.dumps(document | {"equities": {"S": equity}})).errors
    assert errors[0].field == f"equities.S.{field}"
    assert message in errors[0].message


def test_a_european_option_reads_the_curve_at_its_expiry():
    model = BlackScholes(100.0, RATES, 0.2, YIELDS)
    flat = BlackScholes(100.0, float(RATES.zero_rate(0.7)), 0.2, float(YIELDS.zero_rate(0.7)))
    option = European(105.0, 0.7)
    values = [price(option, m, ClosedForm()).value for m in (model, flat)]
    assert np.isclose(*values, rtol=1e-13)
