"""Figures in several currencies are never added up: each currency has the totals of its own trades."""

import csv
import re
from math import isnan

import numpy as np
import pytest

from pricing import Book, Market, Scenario, ScenarioSet, revalue, risk
from pricing.models.surface_models import black_scholes
from pricing.reporting import positions_of, quote_risks, write_quote_risks, write_report
from pricing.reporting.stress import Stress, write_scenarios
from tests.helpers import double

HEADER = "id,type,underlying,quantity,option,strike,expiry\n"
EUROS = "e1,european,A,10,call,100,2026-12-01\ne2,european,A,-5,put,90,2027-06-01\n"
DOLLARS = "d1,european,B,3,call,50,2026-12-01\n"
VOLS = """"implied_vols": {"expiries": ["2026-06-01", "2028-01-01"], "strikes": [40, 120],
 "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]]}"""
MARKET = f"""{{"asof": "2026-01-05", "currency": "EUR", "curves": {{"EUR": {{"zero_rate": 0.02}}}},
 "equities": {{"A": {{"curve": "EUR", "spot": 100.0, {VOLS}}},
 "B": {{"curve": "EUR", "currency": "USD", "spot": 50.0, {VOLS}}}}}}}"""
RATE = "ZERO/RATE/EUR/2026-01-05"


@pytest.fixture(scope="module")
def market():
    return Market.from_text(MARKET)


@pytest.fixture(scope="module")
def parts():
    return {"EUR": Book.from_text(HEADER + EUROS), "USD": Book.from_text(HEADER + DOLLARS)}


@pytest.fixture(scope="module")
def both():
    return Book.from_text(HEADER + EUROS + DOLLARS)


@double
def test_each_currency_has_the_totals_of_its_own_book(market, parts, both):
    """Both equities are discounted on one curve, whose rate moves euros and dollars."""
    found = risk(both, market, black_scholes)
    assert isnan(found.value) and found.sensitivities == {} and found.gradient is None
    assert list(found.by_currency) == ["EUR", "USD"]
    for currency, book in parts.items():
        alone, part = risk(book, market, black_scholes), found.by_currency[currency]
        assert alone.by_currency == {currency: alone.by_currency[currency]}
        np.testing.assert_allclose(part.value, alone.value, rtol=1e-12)
        for quote, slope in alone.sensitivities.items():
            np.testing.assert_allclose(part.sensitivities[quote], slope, rtol=1e-12, atol=1e-12)
        assert part.sensitivities[RATE] != 0.0


@double
def test_a_quote_has_a_row_for_each_currency_that_it_moves(tmp_path, market, parts, both):
    rows = quote_risks(risk(both, market, black_scholes), market)
    assert [(row.currency, row.unit) for row in rows if row.quote_id == RATE] == [
        ("EUR", "EUR per 1 bp"),
        ("USD", "USD per 1 bp"),
    ]
    others = [row for row in rows if row.quote_id != RATE]
    assert {row.currency for row in others if "/A" in row.quote_id} == {"EUR"}
    assert {row.currency for row in others if "/B" in row.quote_id} == {"USD"}
    (alone,) = (
        row
        for row in quote_risks(risk(parts["USD"], market, black_scholes), market)
        if row.quote_id == RATE
    )
    assert alone.currency == "USD"  # of the trades, not of the curve
    write_quote_risks(tmp_path / "s.csv", rows)
    with (tmp_path / "s.csv").open(newline="") as file:
        assert [row["currency"] for row in csv.DictReader(file)] == [row.currency for row in rows]


@double
def test_scenarios_and_the_page_have_totals_by_currency(tmp_path, market, parts, both):
    moves = ScenarioSet(spots=(), vols=(), rates=(), named=(Scenario("up", {"all": 0.1}),))
    found = revalue(both, market, black_scholes, moves.scenarios)
    with pytest.raises(ValueError, match="in EUR and USD, which are not converted"):
        found.total(np.full(3, True))
    result = risk(both, market, black_scholes)
    stress = Stress(moves, found, positions_of(result, both, market))
    write_scenarios(tmp_path / "scenarios.csv", stress)
    with (tmp_path / "scenarios.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["group"] == "book"]
    pnl = {}
    for currency, book in parts.items():
        alone = revalue(book, market, black_scholes, moves.scenarios)
        pnl[currency] = alone.total(np.full(len(book.rows), True)).item()
    assert {row["currency"]: float(row["pnl"]) for row in rows} == pytest.approx(pnl, rel=1e-12)
    write_report(tmp_path / "report.html", result, both, market, [], {}, stress)
    page = (tmp_path / "report.html").read_text()
    tiles = re.findall(
        r"<dt>(.+?)</dt><dd[^>]*title=\"(.+?)\">.+?</dd><dd class=\"unit\">([^<]+)", page
    )
    values = {unit: float(text) for label, text, unit in tiles if label == "Value"}
    assert values == pytest.approx({name: part.value for name, part in result.by_currency.items()})
    worst = {unit[:3]: float(text) for label, text, unit in tiles if label == "Worst scenario"}
    assert worst == pytest.approx(pnl)
    assert "EUR/USD" not in page and "Nothing is converted" in page
    anchors = re.findall(r'id="([\w-]+)"', re.sub("<svg.*?</svg>", "", page, flags=re.DOTALL))
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r'href="#([\w-]+)"', page.split("<svg")[0])) <= set(anchors)


@double
def test_a_book_without_a_valued_trade_has_no_totals(tmp_path, market):
    """Dashes, not zeros, which would be figures."""
    book = Book.from_text(HEADER + "x,european,C,1,call,100,2026-12-01\n")
    result = risk(book, market, black_scholes)
    moves = ScenarioSet(spots=(), vols=(), rates=(), named=(Scenario("up", {"all": 0.1}),))
    found = revalue(book, market, black_scholes, moves.scenarios)
    stress = Stress(moves, found, positions_of(result, book, market))
    write_scenarios(tmp_path / "scenarios.csv", stress)
    with (tmp_path / "scenarios.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["pnl"], row["status"]) == ("", "failed: no trade has a value today")
    write_report(tmp_path / "report.html", result, book, market, [], {}, stress)
    page = (tmp_path / "report.html").read_text()
    assert set(re.findall(r"<dt>.+?</dt><dd>(.+?)</dd>", page)) == {"\N{EN DASH}"}
    (total,) = set(re.findall(r'<tr class="sum">\s*(.+?)\s*</tr>', page))
    assert re.findall(r"<td[^>]*>([^<]+)</td>", total)[3:] == ["\N{EN DASH}"] * 6
