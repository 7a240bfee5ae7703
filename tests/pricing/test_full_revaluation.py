"""A change of value step by step: the quotes move group after group on the earlier day, then time passes."""

import functools
import json
from collections import Counter
from datetime import date

import numpy as np
import pytest

from pricing import Book, Market, explain_by_currency, explain_total, risk
from pricing.market.quote_kinds import KINDS
from pricing.models.surface_models import black_scholes
from pricing.portfolio.ex_dates import with_passed_dividends
from pricing.portfolio.step_revaluation import STEPS, step_markets
from pricing.reporting.explanations import STEPS as NAMES
from tests.helpers import double

HEADER = "id,type,underlying,quantity,option,strike,expiry\n"
LASTING = "a,european,S,10,call,100,2026-12-01\nb,european,S,-5,put,90,2027-06-01\n"
SHORT = "c,european,S,1000,call,100,2026-01-08\n"
ENDS = "d,european,S,3,put,130,2026-01-07\n"
IN_DOLLARS = "e,european,T,4,put,100,2026-12-01\n"
EQUITY = {
    "curve": "C",
    "currency": "EUR",
    "spot": 98.0,
    "dividend_yield": 0.01,
    "implied_vols": {
        "expiries": ["2026-06-01", "2028-01-01"],
        "strikes": [80, 120],
        "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]],
    },
}
DOCUMENT = {
    "currency": "EUR",
    "curves": {"C": {"dates": ["2026-06-01", "2028-01-01"], "zero_rates": [0.02, 0.03]}},
    "equities": {"S": EQUITY, "T": EQUITY | {"currency": "USD"}},
    "fx": {"EURUSD": {"spot": 1.1}},
}
MOVES = {
    "EQUITY/PRICE/S": 102.0,
    "EQUITY_OPTION/RATE_LNVOL/S/2026-06-01/80": 0.26,
    "ZERO/RATE/C/2028-01-01": 0.031,
}
OTHERS = {"EQUITY/PRICE/T": 97.0, "FX/RATE/EUR/USD": 1.2}


def market_on(day: int, **parts) -> Market:
    found = Market.from_text(json.dumps(DOCUMENT | {"asof": f"2026-01-{day:02d}"} | parts))
    assert not found.errors
    return found


@functools.cache
def explained(full: bool):
    book = Book.from_text(HEADER + LASTING + SHORT + ENDS + IN_DOLLARS)
    before, after = market_on(5), market_on(7).with_quotes(MOVES | OTHERS)
    settings = {"full_revaluation": full}
    each = explain_by_currency(book, before, after, black_scholes, **settings)
    return each, explain_total(each, before, after)


@double
def test_the_steps_are_values_on_the_earlier_day_and_time_is_the_last():
    """Of the trades in euros that did not end."""
    found, plain = (explained(full)[0]["EUR"] for full in (True, False))
    book, moved = Book.from_text(HEADER + LASTING + SHORT), market_on(5)
    markets = [moved]
    for quote, number in MOVES.items():
        markets.append(moved := moved.with_quotes({quote: number}))
    markets.append(market_on(7).with_quotes(MOVES))
    worth = [risk(book, market, black_scholes, greeks=False).value for market in markets]
    assert list(found.steps) == ["spots", "vols", "rates", "time"]
    np.testing.assert_allclose([*found.steps.values()], np.diff(worth), rtol=1e-9)
    assert found.change == pytest.approx(sum(found.steps.values()) + found.events, rel=1e-12)
    assert found.higher_order == pytest.approx(plain.residual, rel=1e-9)
    assert plain.steps == {} and "higher_order" not in plain.parts


@double
def test_each_market_is_fitted_once_even_if_a_trade_fails_on_one_day():
    """The trade in dollars has no model on the later day; the others are explained as without it."""
    fitted = Counter()

    def fit(market: Market):
        fitted[market.asof.day] += 1
        models = black_scholes(market)
        return {"S": models["S"]} if market.asof.day == 7 else models

    days = market_on(5), market_on(7).with_quotes(MOVES | OTHERS)
    book = Book.from_text(HEADER + LASTING + SHORT + ENDS + IN_DOLLARS)
    each = explain_by_currency(book, *days, fit, full_revaluation=True)
    assert fitted == {5: 1 + len(each["EUR"].steps) - len(["time"]), 7: 1}
    assert list(each) == ["EUR"] and each["EUR"].skipped == ("e",)
    rest = explain_by_currency(book.without("e"), *days, fit, full_revaluation=True)["EUR"]
    assert each["EUR"].parts == pytest.approx(rest.parts, rel=1e-10, abs=1e-10)
    assert each["EUR"].steps == pytest.approx(rest.steps, rel=1e-12)


@double
def test_an_option_that_passes_its_strike_near_its_end_is_explained():
    """Second orders on either day say little of it; what they miss is unexplained without a revaluation."""
    found, plain = (explained(full)[0]["EUR"] for full in (True, False))
    assert abs(plain.residual) > 0.05 * plain.change
    assert abs(found.residual) < 1e-9
    assert found.explained + found.residual == pytest.approx(found.change, rel=1e-12)


@double
def test_steps_of_two_currencies_add_up_in_one():
    each, total = explained(True)
    spots = each["EUR"].steps["spots"] + each["USD"].steps["spots"] / 1.1
    assert total.steps["spots"] == pytest.approx(spots, rel=1e-12)
    of_steps = sum(total.steps.values()) + total.events + total.fx
    assert of_steps == pytest.approx(total.change, rel=1e-12)
    assert abs(total.residual) < 1e-9


@double
def test_a_spot_that_falls_by_its_dividend_does_not_move():
    """The fall is a step of time; a spot that falls by more moves by the rest, before the dividend."""
    paid = {"dividends": {"dates": ["2026-01-06"], "cash": [5.0]}}
    before = market_on(5, equities={"S": EQUITY | paid})
    for spot, wanted in ((93.0, []), (92.0, [("spots", 97.0)])):
        after = with_passed_dividends(before, market_on(6, equities={"S": EQUITY | {"spot": spot}}))
        found = [(step, float(market.spot("S"))) for step, market in step_markets(before, after)]
        assert found == wanted


@double
def test_no_spot_that_has_moved_knocks_a_trade():
    """A touch of which the market has no fixing: the spot before is that of its day, which is over."""
    ((step, moved),) = step_markets(
        market_on(5), market_on(5).with_quotes({"EQUITY/PRICE/S": 102.0})
    )
    assert step == "spots" and float(moved.spot("S")) == 102.0
    assert dict(moved.fixings)["S", date(2026, 1, 5)] == 98.0
    head = "id,type,underlying,quantity,expiry,barrier,touch_kind,touched_from,amount,start\n"
    text = head + "t,touch,S,1,2026-01-05,101,one-touch,below,10,2026-01-02\n"
    (found,) = Book.from_text(text).checked(moved).rows
    assert found.history is not None and found.history.event == "expired"


def test_every_kind_of_quote_is_in_one_step():
    for kind in KINDS:
        quote = f"{kind}/X"
        assert sum(quote.startswith(words) for words in STEPS.values()) == 1, kind
    assert [*STEPS, "time"] == list(NAMES)
