"""Dividends of known dates in market files: quotes, errors, risk, moves, and explanations across an ex-date."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import calibrate_market
from pricing import (
    BlackScholes,
    Book,
    ClosedForm,
    FiniteDifference,
    Heston,
    Market,
    WithDividends,
    explain,
    risk,
)
from pricing.market.moves import moved
from pricing.models.surface_models import black_scholes
from pricing.portfolio.scenarios import Scenario, ScenarioSet
from pricing.reporting.quotes import quote_risks

KEY = jax.random.key(0)
CASH = ("DIVIDEND/CASH/S/2002-10-03", "DIVIDEND/CASH/S/2003-03-03")
PAYS = {"dates": ["2002-10-03", "2003-03-03"], "cash": [2.0, 1.5]}
METHODS = (ClosedForm(), FiniteDifference(40, 4, 12))
BOOK = Book.from_text(
    "id,type,underlying,option,strike,expiry\nE,european,S,call,100,2003-04-01\n"
    "P,european,S,put,95,2002-12-01\n"
)


def market(dividends=None, asof="2002-07-05", spot=100.0, **others) -> Market:
    vols = {
        "expiries": ["2002-11-01", "2003-11-01"],
        "strikes": [80, 100, 120],
        "vols_by_expiry": [[0.27, 0.25, 0.24], [0.26, 0.25, 0.245]],
    }
    equity = {"curve": "EUR", "spot": spot, "dividend_yield": 0.01, "implied_vols": vols, **others}
    if dividends is not None:
        equity["dividends"] = dividends
    curve = {"dates": ["2002-11-01", "2004-08-01"], "zero_rates": [0.03, 0.035]}
    document = {"asof": asof, "currency": "EUR", "curves": {"EUR": curve}}
    return Market.from_text(json.dumps(document | {"equities": {"S": equity}}))


AMERICAN = Book.from_text(
    "id,type,underlying,option,strike,expiry\nA,american,S,put,105,2003-01-03\n"
)


@pytest.mark.costly
@pytest.mark.parametrize(
    "book", [BOOK, pytest.param(AMERICAN, marks=pytest.mark.slow)], ids=["european", "american"]
)
def test_each_dividend_is_a_quote_that_risk_reaches(book):
    now = market(PAYS | {"proportions": [0.0, 0.01]})
    assert now.errors == ()
    found = risk(book, now, black_scholes, methods=METHODS, key=KEY)
    assert all(trade.status == "ok" for trade in found.trades)
    name = "FiniteDifference" if book is AMERICAN else "ClosedForm"
    assert all(trade.method == name for trade in found.trades)
    quotes = dict(now.flat_quotes())
    shares = ("DIVIDEND/PROPORTION/S/2002-10-03", "DIVIDEND/PROPORTION/S/2003-03-03")
    for quote, step in (
        (CASH[0], 1e-5),
        (CASH[1], 1e-5),
        (shares[1], 1e-7),
        ("EQUITY/PRICE/S", 1e-5),
    ):
        up, down = (
            risk(
                book,
                moved(now, {quote: quotes[quote] + h})[0],
                black_scholes,
                methods=METHODS,
                key=KEY,
            ).value
            for h in (step, -step)
        )
        assert np.isclose(
            found.sensitivities[quote], (up - down) / (2.0 * step), rtol=1e-5, atol=1e-5
        )
    rows = {row.quote_id: row for row in quote_risks(found, now)}
    assert rows[CASH[0]].unit == "EUR per 0.1 of dividend"
    assert rows[shares[1]].currency == "EUR"


@pytest.mark.costly
def test_a_dividend_that_has_passed_moves_nothing():
    past = {"dates": ["2002-06-01"], "cash": [5.0]}
    book = Book.from_text(
        "id,type,underlying,option,strike,expiry\nE,european,S,call,100,2003-04-01\n"
    )
    with_past, without = (
        risk(book, market(x), black_scholes, methods=METHODS, key=KEY).value for x in (past, None)
    )
    assert np.isclose(with_past, without, rtol=1e-13)


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"dates": ["2002-10-03"]}, "dividends", "needs cash or proportions"),
        ({"cash": [1.0]}, "dividends", "needs dates or days"),
        ({"days": [90], "cash": [1.0, 2.0]}, "dividends.cash", "2 cash for 1 pillars"),
        ({"days": [90], "cash": [-1.0]}, "dividends.cash.0", "is not a number >= 0"),
        ({"days": [90], "proportions": [1.5]}, "dividends.proportions.0", "larger than 0.99"),
        ({"days": [90, 30], "cash": [1.0, 2.0]}, "dividends.days.1", "comes after"),
        (PAYS | {"amounts": []}, "dividends.amounts", "not a known field"),
        ({"days": [90], "cash": [150.0]}, "dividends.cash", "more than the spot"),
    ],
)
def test_wrong_dividends_are_named(given, field, message):
    errors = market(given).errors
    assert errors[0].field.startswith(f"equities.S.{field}")
    assert message in errors[0].message


def test_moves_of_dividends_are_checked():
    now = market(PAYS)
    after, errors = moved(now, {CASH[0]: 2.5})
    assert not errors
    assert float(after.equities["S"].dividends.cash[0]) == 2.5
    assert moved(now, {CASH[0]: -1.0})[1]
    assert moved(now, {CASH[0]: 9.0}, most=0.5)[1]
    assert not moved(now, {CASH[0]: 2.5}, most=0.5)[1]
    none = market(PAYS | {"cash": [0.0, 1.5]})
    assert not moved(none, {CASH[0]: 2.0}, most=0.5)[1]
    far = moved(none, {CASH[0]: 6.0}, most=0.5)[1]
    assert "is 6 % of the spot from 0" in far[0].message


@pytest.mark.parametrize("move", [{CASH[0]: 99.0}, {"EQUITY/PRICE/S": 3.0}], ids=["cash", "spot"])
def test_a_move_leaves_the_spot_above_its_dividends(move):
    after, errors = moved(market(PAYS), move, confirmed=True)
    assert "more than the spot" in errors[0].message
    assert float(after.equities["S"].spot) == 100.0


def test_a_scenario_leaves_the_spot_above_its_dividends():
    paid = market({"days": [90], "cash": [30.0]})
    found = ScenarioSet(named=(Scenario("crash", {"S": -0.75}), Scenario("dip", {"S": -0.6})))
    checked = found.checked(paid)
    assert [scenario.name for scenario in checked.named] == ["dip"]
    assert "takes the spot of S, 100, below its dividends" in checked.errors[0].message


@pytest.mark.costly
@pytest.mark.parametrize("keeps", [True, False], ids=["file-keeps-it", "file-drops-it"])
def test_nothing_is_unexplained_as_a_spot_falls_by_its_dividend(keeps):
    before = market(PAYS, asof="2002-10-02")
    later = PAYS if keeps else {"dates": PAYS["dates"][1:], "cash": PAYS["cash"][1:]}
    after = market(later, asof="2002-10-03", spot=98.0)
    found = explain(BOOK, before, after, black_scholes, methods=METHODS, key=KEY)
    moving = abs(found.delta)
    assert moving > 0.05
    assert abs(found.residual) < 0.01 * moving
    assert np.isclose(found.dividends, -found.delta, rtol=0.1)


@pytest.mark.costly
def test_a_file_may_drop_the_cash_of_the_past_with_its_column():
    both = {"dates": PAYS["dates"], "cash": [2.0, 0.0], "proportions": [0.0, 0.02]}
    before = market(both, asof="2002-10-02")
    later = {"dates": PAYS["dates"][1:], "proportions": [0.02]}
    after = market(later, asof="2002-10-03", spot=98.0)
    found = explain(BOOK, before, after, black_scholes, methods=METHODS, key=KEY)
    assert np.isclose(found.dividends, -found.delta, rtol=0.1)
    added = market({**later, "cash": [1.0]}, asof="2002-10-03", spot=98.0)
    with pytest.raises(ValueError, match="DIVIDEND/CASH/S/2003-03-03"):
        explain(BOOK, market(later), added, black_scholes, methods=METHODS, key=KEY)


@pytest.mark.costly
def test_ex_dates_that_come_nearer_are_counted_once():
    """What is left is of the third order in the days, since `mixed` has the second."""
    paid = {"dates": ["2002-10-23", "2003-03-03"], "cash": [8.0, 8.0]}
    left = {
        days: explain(
            BOOK,
            market(paid, asof="2002-09-02"),
            market(paid, asof=f"2002-09-{2 + days:02}"),
            black_scholes,
            methods=METHODS,
            key=KEY,
        ).residual
        for days in (6, 24)
    }
    assert left[24] / left[6] > 4.0**2.8
    assert left[24] / left[6] < 4.0**3.4


def test_black_scholes_reads_a_market_with_dividends():
    read = calibrate_market(market(PAYS), BOOK, model="black-scholes")
    assert not read.failed
    assert set(read.fit(read.market)) == {"S"}


def test_a_model_that_would_leave_dividends_out_is_refused():
    paid = market(PAYS)
    for kind in (BlackScholes, Heston):
        with pytest.raises(ValueError, match="S pays dividends on known dates"):
            kind.starting_on(paid, "S")
    held = WithDividends.from_market(paid, "S", vol=0.2)
    assert held.on_market(market(PAYS, spot=90.0), "S").spot == 90.0
    assert type(WithDividends.from_market(market(), "S", vol=0.2)) is BlackScholes


def test_a_basket_on_dividends_is_refused_by_name():
    one = market(PAYS)
    two = dataclasses.replace(
        one,
        equities={**one.equities, "T": market().equities["S"]},
        correlations={("S", "T"): jnp.asarray(0.5)},
    )
    basket = Book.from_text(
        "id,type,underlying,option,strike,expiry,weights\nB,basket,S|T,call,100,2003-04-01,0.5|0.5\n"
    )
    found = risk(basket, two, black_scholes, methods=METHODS, key=KEY)
    assert "baskets are not valued" in found.trades[0].status
