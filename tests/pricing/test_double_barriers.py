"""Two barriers that are watched at all times: eigenfunctions, QuantLib, curves, and the rows of a book."""

from datetime import date

import jax
import numpy as np
import pytest
import QuantLib as ql

from pricing import (
    BlackScholes,
    Book,
    DoubleBarrier,
    DoubleTouch,
    Fixings,
    Heston,
    VolCurve,
    ZeroCurve,
    price,
)
from pricing.market.observed import Observed
from tests.helpers import double, sample_market

pytestmark = double

RATE, VOL, YIELD = 0.03, 0.2, 0.01
MODEL = BlackScholes(100.0, RATE, VOL, YIELD)
LOWER, UPPER = np.array([80.0, 95.0, 60.0]), np.array([125.0, 110.0, 130.0])


def eigenvalues(lower, upper):
    """Return the wave numbers k, the position of the spot, and (r - q - vol^2 / 2) / vol^2."""
    width = np.log(upper / lower)
    k = np.arange(1, 60) * np.pi / width
    return width, k, np.log(100.0 / lower), (RATE - YIELD - 0.5 * VOL**2) / VOL**2


def no_touch(lower, upper, t=1.0):
    """Return the value of 1 at t if neither barrier is touched, by eigenfunctions of the diffusion."""
    width, k, x, m = eigenvalues(lower, upper)
    signs = np.cos(k * width)
    of_one = k * (1.0 - signs * np.exp(m * width)) / (m**2 + k**2)
    decay = np.exp(-0.5 * VOL**2 * t * (k**2 + m**2) - RATE * t)
    return 2.0 / width * np.exp(-m * x) * np.sum(np.sin(k * x) * of_one * decay)


def at_hit(lower, upper, t=1.0):
    """Return the value of 1 at the hit: without an end, less what is left at t."""
    width, k, x, m = eigenvalues(lower, upper)
    d = np.sqrt(m**2 + 2.0 * RATE / VOL**2)
    forever = np.exp(-m * x) * np.sinh(d * (width - x)) + np.exp(m * (width - x)) * np.sinh(d * x)
    of_left = k / (k**2 + d**2) * (1.0 - np.cos(k * width) * np.exp(m * width))
    decay = np.exp(-0.5 * VOL**2 * t * (k**2 + d**2))
    left = 2.0 / width * np.exp(-m * x) * np.sum(np.sin(k * x) * of_left * decay)
    return forever / np.sinh(d * width) - left


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["no-touch", "one-touch-at-expiry", "one-touch"])
def test_touches_are_their_series(kind):
    wanted = [
        at_hit(*ends) if kind == "one-touch" else no_touch(*ends)
        for ends in zip(LOWER, UPPER, strict=True)
    ]
    if kind == "one-touch-at-expiry":
        wanted = np.exp(-RATE) - np.array(wanted)
    found = price(DoubleTouch(LOWER, UPPER, 1.0, [kind] * 3, amount=50.0), MODEL)
    np.testing.assert_allclose(found.value, 50.0 * np.array(wanted), atol=2e-6)


def peers_knock_out(strike, lower, upper, option):
    today = ql.Date(2, 1, 2025)
    ql.Settings.instance().evaluationDate = today
    curve = lambda rate: ql.YieldTermStructureHandle(
        ql.FlatForward(today, rate, ql.Actual365Fixed())
    )
    vol = ql.BlackConstantVol(today, ql.NullCalendar(), VOL, ql.Actual365Fixed())
    process = ql.BlackScholesMertonProcess(
        ql.QuoteHandle(ql.SimpleQuote(100.0)),
        curve(YIELD),
        curve(RATE),
        ql.BlackVolTermStructureHandle(vol),
    )
    payoff = ql.PlainVanillaPayoff(getattr(ql.Option, option.capitalize()), strike)
    kind, exercise = ql.DoubleBarrier.KnockOut, ql.EuropeanExercise(today + 365)
    made = ql.DoubleBarrierOption(kind, lower, upper, 0.0, payoff, exercise)
    made.setPricingEngine(ql.AnalyticDoubleBarrierEngine(process, 20))
    return made.NPV()


CASES = [(100.0, 80.0, 125.0, "call"), (100.0, 80.0, 125.0, "put"), (90.0, 70.0, 200.0, "call")]
CASES += [(105.0, 10.0, 1000.0, "put"), (100.0, 98.0, 1000.0, "call")]  # one barrier near, or none


def knock_outs(**terms):
    strikes, lower, upper, options = zip(*CASES, strict=True)
    return DoubleBarrier(strikes, lower, upper, None, options, until=1.0, **terms)


@pytest.mark.costly
def test_knock_outs_are_quantlibs_and_those_of_curves_that_are_flat():
    wanted = [peers_knock_out(*case) for case in CASES]
    np.testing.assert_allclose(price(knock_outs(), MODEL).value, wanted, atol=2e-6)
    curves = BlackScholes(
        100.0, ZeroCurve([0.3, 1.0], [RATE] * 2), VolCurve([0.5, 1.0], [VOL] * 2), YIELD
    )
    np.testing.assert_allclose(price(knock_outs(), curves).value, wanted, atol=2e-6)


@pytest.mark.costly
def test_derivatives_to_the_barriers_are_differences():
    of = lambda ends: (
        price(DoubleBarrier(100.0, ends[0], ends[1], rebate=2.0, until=1.0), MODEL).value
    )
    ends = np.array([80.0, 125.0])
    found = jax.grad(of)(ends)
    for i in range(2):
        up, down = (of(ends + step * np.eye(2)[i]) for step in (1e-3, -1e-3))
        np.testing.assert_allclose(found[i], (up - down) / 2e-3, rtol=1e-5)


@pytest.mark.parametrize("spot", [80.0, 130.0])
def test_a_spot_outside_has_touched(spot):
    model = BlackScholes(spot, RATE, VOL, YIELD)
    kinds = ["one-touch", "one-touch-at-expiry", "no-touch"]
    found = price(DoubleTouch(80.0, 125.0, 1.0, kinds), model).value
    np.testing.assert_allclose(found, [1.0, np.exp(-RATE), 0.0], rtol=1e-12)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"there is no expiry: give dates, or until=1\.0"):
        DoubleBarrier(100.0, 80.0, 125.0)
    with pytest.raises(ValueError, match="the last of the dates must be the expiry"):
        DoubleBarrier(100.0, 80.0, 125.0, [0.5, 1.0], until=0.7)
    with pytest.raises(ValueError, match="lower must be below upper"):
        DoubleTouch(125.0, 80.0, 1.0)
    with pytest.raises(TypeError, match="no method prices DoubleBarrier under Heston"):
        price(knock_outs(), Heston(100.0, RATE, 0.04, 2.0, 0.04, 0.5, -0.7))


ROWS = """id,type,underlying,option,strike,expiry,lower,upper,touch_kind,start
K,double_knock_out,DAX,call,4400,2003-03-18,3000,6000,,2002-07-01
T,double_touch,DAX,,,2003-03-18,3000,6000,no-touch,2002-07-01
B,double_knock_out,DAX,call,4400,,3000,6000,,
U,double_touch,DAX,,,2003-03-18,6000,3000,no-touch,
"""


def test_rows_of_a_book_age():
    book = Book.from_text(ROWS)
    missing, crossed = map(str, book.errors)
    assert "neither an expiry nor a list of monitoring_dates" in missing
    assert "the upper barrier, 3000, is not above the lower one, 6000" in crossed
    market = sample_market()
    assert [trade.id for trade in book.check(market)[0]] == ["K", "T"]
    day = date(2002, 7, 3)
    seen = market.with_fixings(Fixings({("DAX", day): 2900.0}))
    knocked = [trade.aged(Observed(day, seen)) for trade in book.trades]
    assert [(left.cash, left.trade, left.event, left.day) for left in knocked] == [
        (0.0, None, "knocked out", day)
    ] * 2
