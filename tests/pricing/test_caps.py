"""Caps and floors beyond the values of `jaxtape validate`: parity, rates without a law, what is refused."""

import dataclasses
import itertools
import json
from datetime import date

import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Book,
    Cap,
    FloatingPayments,
    ForwardRates,
    HullWhite,
    Market,
    RateCurves,
    greeks,
    price,
    risk,
)
from pricing.products import AbstractProduct
from pricing.results import RESULTS
from tests.helpers import double, sample_market

PERIODS = [0.3, 0.8, 1.3], [0.8, 1.3, 1.8], [0.5, 0.51, 0.49]
MODELS = {
    "lognormal": ForwardRates(0.025, 0.25, 0.03),
    "shifted": ForwardRates(0.025, 0.2, -0.004, shift=0.03),
    "normal": ForwardRates(0.025, 0.0085, -0.004, law="normal"),
    "Hull-White": HullWhite(0.03, 0.05, 0.01),
}


def swap(strike) -> AbstractProduct:
    """Return the payer's side of a swap on the periods, as payments."""
    starts, ends, accruals = PERIODS
    fixed = -strike * 100.0 * np.array(accruals)
    return FloatingPayments(ends, fixed, starts, ends, ends, [100.0] * 3)


@double
@pytest.mark.parametrize("name", MODELS)
def test_a_cap_less_a_floor_is_a_swap(name):
    strike = 0.02
    cap, floor = (
        price(Cap(strike, *PERIODS, option, 100.0), MODELS[name]).value
        for option in ("cap", "floor")
    )
    worth = price(swap(strike), MODELS[name]).value
    assert cap > 0.0 and floor > 0.0
    np.testing.assert_allclose(cap - floor, worth, atol=1e-12)


@double
def test_a_period_that_starts_today_is_worth_its_intrinsic_value():
    model = ForwardRates(0.03, 0.25)
    cap = Cap(0.02, [0.0], [0.5], [0.5], notional=100.0)
    rate = np.expm1(0.015) / 0.5
    assert price(cap, model).value == pytest.approx(50.0 * (rate - 0.02) * np.exp(-0.015))


@double
@pytest.mark.parametrize("name", ["lognormal", "Hull-White"])
def test_padding_changes_no_figure(name):
    cap = Cap(0.02, *PERIODS, notional=100.0)
    one, two = (greeks(product, MODELS[name]) for product in (cap, cap.padded(6)))
    for figure in ("value", "delta", "gamma", "vega", "theta"):
        np.testing.assert_allclose(getattr(one, figure), getattr(two, figure), rtol=1e-12)


@pytest.mark.parametrize("strike", [0.02, -0.05])
def test_a_rate_below_the_shift_has_no_value(strike):
    """The logarithm of both would be of a positive ratio, and the number that follows wrong."""
    model = ForwardRates(0.025, 0.2, -0.04, shift=0.03)
    found = price(Cap(strike, *PERIODS), model, throw=False)
    assert jnp.isnan(found.value) and found.result != RESULTS.successful


def test_what_would_change_nothing_is_refused():
    with pytest.raises(ValueError, match="normal law with the shift"):
        ForwardRates(0.03, 0.01, shift=0.02, law="normal")
    with pytest.raises(TypeError, match="law of forward rates"):
        price(Cap(0.02, *PERIODS), RateCurves(0.03, 0.035))
    with pytest.raises(ValueError, match="one of each for each period"):
        Cap(0.02, [0.5], [1.0, 1.5], [0.5])


# --- rows of a book -----------------------------------------------------------------------------------

HEADER = "id,type,underlying,quantity,strike,notional,start,maturity,frequency,forward_curve"
CAP = "C,cap,EUR,2,0.045,1000,2002-10-07,2004-10-07,semiannual,"
FLOOR = "F,floor,EUR,1,0.045,1000,2002-01-07,2004-01-07,semiannual,"


def hull_white(market):
    """A fit that reads the curve, and takes a part of the mean swaption vol for a parameter."""
    return {"EUR": HullWhite(market.curve("EUR"), 0.05, 0.05 * jnp.mean(market.swaption_vols.vols))}


def book(*rows) -> Book:
    return Book.from_text("\n".join([HEADER, *rows]))


@pytest.mark.costly
@double
def test_rows_are_valued_under_hull_white_and_risk_is_that_of_bumping():
    fixed = {("EUR 6M", day): 0.033 for day in (date(2002, 1, 7),)}
    market = dataclasses.replace(sample_market(), fixings=fixed)
    found = risk(book(CAP, FLOOR), market, hull_white)
    assert [trade.status for trade in found.trades] == ["ok", "ok"]
    model, cap = hull_white(market)["EUR"], book(CAP).trades[0]
    starts, ends = ([market.time(day) for day in days] for days in (cap.days[:-1], cap.days[1:]))
    accruals = [(b - a).days / 360 for a, b in itertools.pairwise(cap.days)]
    own = float(price(Cap(0.045, starts, ends, accruals, "cap", 1000.0), model).value)
    assert found.trades[0].figures.value == pytest.approx(own, rel=1e-12)
    quotes = [q for q, x in found.sensitivities.items() if abs(x) > 1.0]
    assert len(quotes) > 5
    known = dict(market.flat_quotes())
    for quote in quotes[:: len(quotes) // 4]:
        up, down = (
            risk(
                book(CAP, FLOOR),
                market.with_quotes({quote: known[quote] + h}),
                hull_white,
                greeks=False,
            ).value
            for h in (1e-5, -1e-5)
        )
        np.testing.assert_allclose(found.sensitivities[quote], (up - down) / 2e-5, rtol=1e-5)


@double
def test_the_floor_that_has_begun_pays_what_is_fixed():
    """Its first rate, of 3.3 %, is 1.2 % below the strike; that payment is due on 8 July 2002."""
    fixed = {("EUR 6M", date(2002, 1, 7)): 0.033}
    market = dataclasses.replace(sample_market(), fixings=fixed)
    (left,) = book(FLOOR).checked(market).trades
    paid = 1000 * 0.012 * (left.period_ends[0] - date(2002, 1, 7)).days / 360
    assert left.amounts == (pytest.approx(paid), 0.0, 0.0, 0.0)
    assert left.accruals[0] == 0.0 and left.num_dates == 4
    (error,) = book(FLOOR).checked(sample_market()).errors
    assert "there is no fixing of EUR 6M on 2002-01-07" in str(error)


def test_a_cap_on_a_curve_without_a_law_is_refused():
    curve = {"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}
    (trade,) = risk(book(CAP), Market.from_text(json.dumps(curve)), lambda _: {}).trades
    assert "there is no model of EUR" in trade.status
