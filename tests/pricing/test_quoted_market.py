"""Markets whose curves are quoted by instruments: files, risk and explanations to every quote."""

import dataclasses
import datetime as dt
import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Book, HullWhite, Market, RiskEngine, ZeroCurve, explain, risk
from pricing.market import leg
from pricing.models.surface_models import black_scholes
from pricing.reporting import quote_risks, write_report
from tests.helpers import double

from .quoted_market import ASOF, DOCUMENT, QUOTED, TOO_HIGH, market, quotes

pytestmark = double

BOOK = (
    "id,type,underlying,quantity,side,fixed_rate,start,expiry,maturity,option,strike\n"
    "a,swap,EUR,1000,payer,0.027,2024-05-06,,2031-05-06,,\n"
    "b,swaption,EUR,-2000,receiver,0.026,,2025-02-03,2035-02-05,,\n"
    "c,european,S,10,,,,2025-06-20,,call,105\n"
    "d,european,S,-4,,,,2026-12-18,,put,95\n"
)


def fit(market):
    """Black-Scholes and Hull-White, without a search."""
    vol = market.swaption_vols.vols[0, 0]
    rates = HullWhite(market.curves["EUR"], 0.03, vol)
    return {**black_scholes(market), "EUR": rates}


# --- risk ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return risk(Book.from_text(BOOK), market(), fit)


@pytest.mark.costly
def test_risk_reaches_every_quote_as_a_bump_and_a_new_bootstrap_do(found):
    assert not found.failed and not found.errors
    engine, book = RiskEngine(fit, greeks=False), Book.from_text(BOOK)
    values = dict(market().flat_quotes())
    of_curve = [quote for quote in values if "RATE/EUR" in quote or "PRICE/EUR" in quote]
    assert len(of_curve) == 11
    scale = max(abs(found.sensitivities[quote]) for quote in of_curve if "FUTURE" not in quote)
    for quote in of_curve:
        step = 0.01 if "FUTURE" in quote else 1e-4

        def value(move, quote=quote):
            return engine(book, market(**{quote: values[quote] + move})).value

        quotients = [(value(h) - value(-h)) / (2.0 * h) for h in (step, 2.0 * step)]
        wanted = (4.0 * quotients[0] - quotients[1]) / 3.0
        size = scale / 100.0 if "FUTURE" in quote else scale
        assert found.sensitivities[quote] == pytest.approx(wanted, rel=1e-6, abs=1e-9 * size), quote
    assert found.sensitivities["MM_FUTURE/PRICE/EUR/2024-06-19"] != 0.0


@pytest.mark.costly
def test_rho_is_a_parallel_move_of_the_bootstrapped_zero_rates(found):
    curve = market().curves["EUR"].bootstrapped()
    in_rates = dataclasses.replace(market(), curves={"EUR": curve})
    other = risk(Book.from_text(BOOK), in_rates, fit)
    for one, two in zip(found.trades, other.trades, strict=True):
        assert one.figures.value == pytest.approx(two.figures.value, rel=1e-12)
        assert one.figures.rho == pytest.approx(two.figures.rho, rel=1e-12)
    up, down = (
        risk(
            Book.from_text(BOOK),
            dataclasses.replace(in_rates, curves={"EUR": curve.shifted(step)}),
            fit,
            greeks=False,
        ).value
        for step in (1e-5, -1e-5)
    )
    rho = sum(trade.position.rho for trade in found.trades)
    np.testing.assert_allclose(rho, (up - down) / 2e-5, rtol=1e-6)


def test_a_model_made_of_the_market_alone_has_the_bootstrapped_curve():
    model = HullWhite.from_market(market(), "EUR", mean_reversion=0.03, vol=0.01)
    assert isinstance(model.curve, ZeroCurve)
    raw = HullWhite(market().curves["EUR"], 0.03, 0.01)
    t = jnp.array(3.0)
    np.testing.assert_allclose(raw.discount(t), model.discount(t), rtol=1e-15)
    moved = [one.shifted(rate=0.01).discount(t) for one in (raw, model)]
    np.testing.assert_allclose(moved, np.exp(-0.03) * model.discount(t), rtol=1e-14)


@pytest.mark.costly
def test_explain_says_what_each_quote_did():
    swap, deposit = "IR_SWAP/RATE/EUR/10Y", "MM/RATE/EUR/3M"
    values, mixed = dict(market().flat_quotes()), []
    for move in (1e-4, 5e-5):
        moved = market(**{swap: values[swap] + move, deposit: values[deposit] - move})
        found = explain(Book.from_text(BOOK), market(), moved, fit)
        assert set(found.by_quote) == {swap, deposit}
        assert found.rho == pytest.approx(sum(found.by_quote.values()), rel=1e-12)
        assert found.theta == 0.0
        mixed.append(found.mixed)
        assert abs(found.residual) < 0.01 * abs(found.mixed)
    assert abs(mixed[0]) < 0.01 * abs(found.rho)
    assert mixed[0] / mixed[1] == pytest.approx(4.0, rel=0.02)


@pytest.mark.costly
def test_a_day_moves_the_ends_of_futures_as_theta():
    """Deposits and swaps keep their tenors; futures come nearer."""
    later = DOCUMENT | {"asof": str(ASOF + dt.timedelta(7))}
    found = explain(Book.from_text(BOOK), market(), Market.from_text(json.dumps(later)), fit)
    assert found.rho == 0.0 and found.theta != 0.0
    assert abs(found.residual) < 0.1 * abs(found.change)


def test_the_report_has_a_row_for_each_quote(found, tmp_path):
    rows = {row.quote_id: row for row in quote_risks(found, market())}
    future = rows["MM_FUTURE/PRICE/EUR/2024-06-19"]
    assert (future.shift, future.unit) == (0.01, "EUR per 0.01 of price")
    assert rows["IR_SWAP/RATE/EUR/30Y"].unit == "EUR per 1 bp"
    write_report(tmp_path / "report.html", found, Book.from_text(BOOK), market(), (), {})
    assert "EUR quotes, value per 1 bp" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_book_on_no_curve_is_set_aside():
    found = risk(Book.from_text(BOOK), market(**TOO_HIGH), fit)
    assert len(found.failed) == 4
    assert all("not finite" in trade.status for trade in found.failed)


# --- files --------------------------------------------------------------------------------------------


def test_a_file_has_instruments_on_the_calendar():
    deposits, futures, swaps = quotes().instruments
    days = lambda times: [ASOF + dt.timedelta(round(365 * float(t))) for t in times]
    spot = dt.date(2024, 1, 9)
    assert days(deposits.start) == [spot] * 3
    assert days(deposits.end) == [dt.date(2024, 1, 10), dt.date(2024, 1, 16), dt.date(2024, 4, 9)]
    np.testing.assert_allclose(deposits.accruals, np.array([1.0, 7.0, 91.0]) / 360.0)
    assert days(futures.end) == [dt.date(2024, 6, 20), dt.date(2024, 9, 19), dt.date(2024, 12, 18)]
    own = leg(ASOF, spot, dt.date(2025, 7, 9), 6)
    np.testing.assert_allclose(swaps.payment_dates[0, -3:], own.payment_dates)
    np.testing.assert_allclose(swaps.accruals[0, -3:], own.accruals)
    assert np.all(swaps.accruals[0, :-3] == 0.0)


def test_every_quote_of_a_file_has_an_id():
    ids = [quote for quote, _ in market().flat_quotes() if "/EUR/" in quote][:-1]
    assert ids[:3] == ["MM/RATE/EUR/1D", "MM/RATE/EUR/1W", "MM/RATE/EUR/3M"]
    assert ids[3] == "MM_FUTURE/PRICE/EUR/2024-03-20"
    assert ids[-1] == "IR_SWAP/RATE/EUR/30Y" and len(ids) == 11
    assert market(**{ids[3]: 95.0}).curves["EUR"].instruments[1].prices[0] == 95.0


def test_the_example_of_the_documentation_is_read():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    text = re.search(r"### Curves of quotes\n\n```json\n(.*?)```", page, re.DOTALL)[1]
    found = Market.from_text(text)
    assert found.errors == ()
    assert found.curves["EUR"].times.shape == (9,)


def changed(section: str, **fields) -> dict:
    return QUOTED | {section: QUOTED[section] | fields}


FLAT = {"zero_rate": 0.03}

# curve, path in it, pieces of the message and of the remedy
CASES = {
    "quotes beside a rate": (QUOTED | FLAT, "", "either", "or quotes of deposits, fras"),
    "quotes with pillars": (
        *(QUOTED | {"dates": ["2025-01-05"]}, ".dates", "curve of quotes", "leave out dates"),
    ),
    "a misspelt kind": (
        {"deposit": {}, **FLAT},
        ".deposit",
        "not a known field",
        "mean 'deposits'",
    ),
    "a list for a kind": ({"swaps": [0.03]}, ".swaps", "not an object", "braces"),
    "no tenors": ({"swaps": {"rates": [0.03]}}, ".swaps.tenors", "missing", "such as 18M, 5Y"),
    "empty tenors": (changed("swaps", tenors=[], rates=[]), ".swaps.tenors", "empty", "at least"),
    "a tenor in words": (
        *(changed("deposits", tenors=["1D", "week", "3M"]), ".deposits.tenors.1"),
        *("'week' is not a tenor", "such as 3M"),
    ),
    "a swap of weeks": (
        *(changed("swaps", tenors=["2W", "2Y", "5Y", "10Y", "30Y"]), ".swaps.tenors.0"),
        *("whole months", "such as 5Y"),
    ),
    "a swap without end": (
        *(changed("swaps", tenors=["18M", "2Y", "5Y", "10Y", "99Y"]), ".swaps.tenors.4"),
        *("longer than 60 years", "at most 60"),
    ),
    "a rate too few": (
        *(changed("deposits", rates=[0.03, 0.03]), ".deposits.rates", "2 rates for 3 tenors"),
        "one quote for each of tenors",
    ),
    "a rate in percent": (
        *(changed("deposits", rates=[0.03, 3.9, 0.04]), ".deposits.rates.1", "larger than 1"),
        "1 % is 0.01",
    ),
    "a price of nothing": (
        *(changed("futures", prices=[96.0, 0.0, 97.0]), ".futures.prices.1"),
        *("not a positive number", "price > 0"),
    ),
    "a future of the past": (
        *(changed("futures", starts=["2023-12-20", "2024-06-19", "2024-09-18"]),),
        *(".futures.starts.0", "before asof", "starts on or after asof"),
    ),
    "convexity too short": (
        *(changed("futures", convexity=[0.0]), ".futures.convexity", "1 convexity for 3"),
        "for each future",
    ),
    "another calendar": (
        changed("swaps", calendar="MOON"),
        *(".swaps.calendar", "not a known calendar", "XECB"),
    ),
    "another day count": (changed("swaps", day_count="5/7"), ".swaps.day_count", "5/7", "30E/360"),
    "half a day of lag": (changed("deposits", lag=0.5), ".deposits.lag", "0.5", "from 0 to 10"),
    "an unsorted tenor": (
        *(changed("swaps", tenors=["18M", "5Y", "2Y", "10Y", "30Y"]), ".swaps.tenors.2"),
        *(
            "the swap 2Y ends on 2026-01-09, not after the swap 5Y, which ends on 2029-01-09",
            "sort",
        ),
    ),
    "a future that overlaps a deposit": (
        *(changed("deposits", tenors=["1D", "1W", "9M"]), ".futures.starts.0"),
        *("the future 2024-03-20 ends on 2024-06-20, not after the deposit 9M", "overlap"),
    ),
    "a swap at no rate": (
        *(changed("swaps", rates=[0.031, 0.05, 0.11, 0.3, 0.3]), ".swaps.tenors.3"),
        *("no zero rate reprices the swap 10Y", "correct its quote"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_curve_is_named_and_left_out(case):
    curve, path, message, remedy = CASES[case]
    text = json.dumps(DOCUMENT | {"curves": {"EUR": curve, "CHF": FLAT}, "equities": {}}, indent=1)
    found = Market.from_text(text, "market.json")
    error = found.errors[0]
    assert error.field == f"curves.EUR{path}"
    assert message in error.message and remedy in error.remedy
    at = text.index('"EUR": {')
    fields = path.split(".")[1:]
    for field in fields:
        at = max(
            at, text.find(f'"{field}"', at)
        )  # what is missing is reported where it would stand
    line = text[:at].count("\n") + 1
    assert error.line == line + (1 + int(fields[-1]) if path[-1:].isdigit() else 0)
    assert list(found.curves) == ["CHF"]
