"""Swaptions exercised before their swap starts, or between coupons: values, rows of a book, what is refused."""

import dataclasses
import json
from datetime import date

import jax
import numpy as np
import pytest
from scipy.stats import norm

from pricing import (
    BermudanSwaption,
    Book,
    ClosedForm,
    HullWhite,
    Market,
    Quadrature,
    Swap,
    Swaption,
    greeks,
    price,
    risk,
)
from pricing.fbsde import NettingSet
from tests.helpers import double, first_difference

RATE, REVERSION, VOL = 0.03, 0.05, 0.01
MODEL = HullWhite(RATE, REVERSION, VOL)
LEG = [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]
DATES, STARTS, ACCRUED = [0.9, 1.6], [1.0, 1.7], [0.0, 0.7]
SHORT = BermudanSwaption(0.03, DATES, *LEG, notional=100.0, starts=STARTS, accrued=ACCRUED)


def by_integrals() -> float:
    """Two exercise dates, by the trapezoidal rule over both states of Hull-White.

    The numeraire is the bond of the last payment at T. Over it a bond to S is today's times
    exp(s x - s^2 var(x) / 2), with s = (exp(a (T - S)) - 1) / a.
    """
    end = 4.0
    carried = lambda t: np.exp(-2.0 * REVERSION * (end - t)) / (2.0 * REVERSION)
    variance = lambda t: VOL**2 * (carried(t) - carried(0.0))

    def swap(which: int, x: np.ndarray) -> np.ndarray:
        times = [STARTS[which], *(t for t in LEG[0] if t > STARTS[which])]
        coupons = -0.03 * np.ones(len(times))
        coupons[0], coupons[1] = 1.0, -0.03 * (1.0 - ACCRUED[which])
        coupons[-1] -= 1.0
        slopes = np.expm1(REVERSION * (end - np.array(times))) / REVERSION
        bonds = np.exp(-RATE * np.array(times) + RATE * end)
        moved = np.exp(np.multiply.outer(x, slopes) - 0.5 * slopes**2 * variance(DATES[which]))
        return 100.0 * moved @ (coupons * bonds)

    first, last = (variance(t) for t in DATES)
    z = np.linspace(-8.0, 8.0, 4001)
    x = np.sqrt(first) * z
    y = np.sqrt(last) * z
    later = np.maximum(swap(1, y), 0.0)
    step = np.sqrt(last - first)
    density = norm.pdf((y[None, :] - x[:, None]) / step) / step
    waiting = density @ later * (y[1] - y[0])
    best = np.maximum(swap(0, x), waiting)
    return np.exp(-RATE * end) * np.sum(norm.pdf(z) * best) * (z[1] - z[0])


@pytest.mark.costly
@double
def test_a_short_first_period_is_worth_what_integrals_find():
    assert price(SHORT, MODEL).value == pytest.approx(by_integrals(), abs=2e-6)


@double
def test_one_date_within_a_period_is_a_swaption_on_the_shorter_coupon():
    one = BermudanSwaption(0.03, [1.6], *LEG, starts=[1.7], accrued=[0.7], notional=100.0)
    left = Swaption(0.03, 1.6, [2.0, 3.0, 4.0], [0.3, 1.0, 1.0], notional=100.0, start=1.7)
    closed = price(left, MODEL, ClosedForm())
    assert price(one, MODEL).value == pytest.approx(float(closed.value), rel=1e-9)
    receiver = dataclasses.replace(left, side="receiver")
    swap = price(Swap(0.03, 1.7, [2.0, 3.0, 4.0], [0.3, 1.0, 1.0], notional=100.0), MODEL).value
    assert closed.value - price(receiver, MODEL).value == pytest.approx(float(swap), abs=1e-12)


@pytest.mark.costly
@double
def test_greeks_are_difference_quotients_and_padding_changes_no_digit():
    found = greeks(SHORT, MODEL, Quadrature())
    value = jax.jit(lambda rate, age: price(SHORT.rolled(age), MODEL.shifted(rate=rate)).value)
    np.testing.assert_allclose(
        found.delta, first_difference(lambda h: value(h, 0.0), 1e-3), rtol=1e-7
    )
    np.testing.assert_allclose(
        found.theta, first_difference(lambda h: value(0.0, h), 1e-3), rtol=1e-6
    )
    padded = price(SHORT.padded(4), MODEL).value
    np.testing.assert_allclose(padded, found.value, rtol=1e-12)


def test_in_single_precision():
    def value():
        terms = {"notional": 100.0, "starts": STARTS, "accrued": ACCRUED}
        product = BermudanSwaption(0.03, DATES, *LEG, **terms)
        return price(product, HullWhite(RATE, REVERSION, VOL)).value

    with jax.enable_x64(True):
        exact = float(value())
    with jax.enable_x64(False):
        found = value()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_what_is_no_swap_is_refused():
    with pytest.raises(ValueError, match="give starts that are not before the exercise dates"):
        Swaption(0.03, 1.0, *LEG, start=0.9)
    with pytest.raises(ValueError, match="give one for each"):
        BermudanSwaption(0.03, DATES, *LEG, starts=[1.0])
    with pytest.raises(ValueError, match="nothing would be left to exchange"):
        BermudanSwaption(0.03, DATES, *LEG, starts=[1.0, 4.0])
    with pytest.raises(ValueError, match="starts on the exercise date with a full period"):
        NettingSet([SHORT])


# --- rows of a book -----------------------------------------------------------------------------------

DOCUMENT = {
    "asof": "2026-03-10",
    "currency": "EUR",
    "curves": {"EUR": {"days": [365, 1825, 3650], "zero_rates": [0.021, 0.024, 0.028]}},
    "swaption_vols": {
        "type": "normal",
        "expiries_years": [1, 2],
        "tenors_years": [2, 5],
        "vols_by_expiry": [[0.0085, 0.0082], [0.0083, 0.008]],
    },
    "equities": {},
}
HEADER = (
    "id,type,underlying,side,fixed_rate,notional,expiry,exercise_dates,maturity,exercise_lag,"
    "between_coupons,exercised"
)
EUROPEAN = "O,swaption,EUR,payer,0.025,1000,2027-03-05,,2031-03-12,5,,"
WHOLE = "B,bermudan_swaption,EUR,payer,0.025,1000,,2027-03-05|2028-03-06,2031-03-12,5,,"
NEXT = "N,bermudan_swaption,EUR,payer,0.025,1000,,2026-12-01|2027-12-01,2031-03-12,5,next-period,"
BROKEN = (
    "S,bermudan_swaption,EUR,payer,0.025,1000,,2026-12-01|2027-12-01,2031-03-12,5,short-period,"
)


def market(**changes) -> Market:
    return Market.from_text(json.dumps(DOCUMENT | changes))


def book(*rows) -> Book:
    return Book.from_text("\n".join([HEADER, *rows]))


def hull_white(m: Market) -> dict:
    """A fit that reads the curve, and takes a part of the mean swaption vol for a parameter."""
    return {"EUR": HullWhite(m.curve("EUR"), 0.05, 1.2 * m.swaption_vols.vols.mean())}


def test_a_row_says_when_its_swap_starts():
    european, whole, later, broken = book(EUROPEAN, WHOLE, NEXT, BROKEN).trades
    assert european.exercise_day == date(2027, 3, 5)
    assert european.swap_dates[:2] == (date(2027, 3, 12), date(2028, 3, 13))
    assert whole.starts == (date(2027, 3, 12), date(2028, 3, 13)) and whole.accrued is None
    assert later.starts == whole.starts and later.payment_dates == whole.payment_dates
    assert broken.starts == (date(2026, 12, 8), date(2027, 12, 8))
    assert broken.swap_dates[:2] == (date(2026, 3, 12), date(2027, 3, 12))
    assert broken.accrued == pytest.approx((1.0 - 94 / 360, 361 / 360 - 95 / 360))


@pytest.mark.costly
@double
def test_rows_are_valued_and_risk_to_each_quote_is_that_of_bumping():
    rows, own = book(EUROPEAN, BROKEN), market()
    found = risk(rows, own, hull_white)
    assert [trade.status for trade in found.trades] == ["ok"] * 2
    european, broken = (trade.figures.value for trade in found.trades)
    assert european < broken
    model, trade = hull_white(own)["EUR"], rows.trades[1]
    times = lambda days: [own.time(day) for day in days]
    product = BermudanSwaption(
        *(0.025, times(trade.exercise_days), times(trade.payment_dates), trade.accruals),
        *("payer", 1000.0, times(trade.starts), trade.accrued),
    )
    assert broken == pytest.approx(float(price(product, model).value), rel=1e-9)
    for quote, level in own.flat_quotes():
        up, down = (
            risk(rows, own.with_quotes({quote: level + h}), hull_white, greeks=False).value
            for h in (1e-5, -1e-5)
        )
        slope = (up - down) / 2e-5
        np.testing.assert_allclose(found.sensitivities[quote], slope, rtol=1e-5, atol=1e-4)


@double
@pytest.mark.parametrize(
    ("row", "exercised", "start"),
    [
        (EUROPEAN, "2027-03-05", date(2027, 3, 12)),
        (NEXT, "2026-12-01", date(2027, 3, 12)),
        (BROKEN, "2026-12-01", date(2026, 12, 8)),
    ],
)
def test_exercised_the_swap_is_left_that_starts_later(row, exercised, start):
    (left,) = book(row + exercised).checked(market(asof="2027-03-09")).rows
    fixing = {"fixings": {"EUR 12M": {str(start): 0.02}}} if start < date(2027, 3, 9) else {}
    if fixing:
        (left,) = book(row + exercised).checked(market(asof="2027-03-09", **fixing)).rows
    assert left.history.event == "exercised" and str(left.history.day) == exercised
    assert left.trade.start == start


@double
def test_a_last_day_pays_the_swap_that_starts_later():
    own, written = market(asof="2027-03-05"), EUROPEAN.replace("0.025", "0.015")
    (row,) = book(written).checked(own).rows
    trade, curve = book(written).trades[0], own.curve("EUR")
    p = lambda day: float(curve.discount(own.time(day)))
    fixed = sum(a * p(day) for a, day in zip(trade.accruals, trade.payment_dates, strict=True))
    paid = 1000.0 * (p(trade.swap_start) - p(trade.payment_dates[-1]) - 0.015 * fixed)
    assert row.history.event == "expired" and row.history.cash == pytest.approx(paid)


@pytest.mark.parametrize(
    ("row", "old", "new", "column", "remedy"),
    [
        (EUROPEAN, ",5,", ",2.5,", "exercise_lag", "such as 5"),
        (EUROPEAN, ",5,", ",90,", "exercise_lag", "60"),
        (WHOLE, "2028-03-06", "2028-04-06", "exercise_dates", "next-period"),
        (NEXT, "2027-12-01", "2030-12-01", "exercise_dates", "earlier last date"),
        (NEXT, "next-period", "later", "between_coupons", "next-period, short-period"),
    ],
)
def test_a_bad_cell_is_reported_in_its_place(row, old, new, column, remedy):
    (error,) = book(row.replace(old, new)).errors
    assert error.field == column and remedy in str(error)
