"""FX rates: pairs in market files, crosses, and totals in one currency with their risk to the rates."""

import csv
import json
import re

import numpy as np
import pytest

from pricing import Book, Market, Scenario, ScenarioSet, revalue, risk
from pricing.market import MissingRate
from pricing.market.moves import moved
from pricing.models.surface_models import black_scholes
from pricing.reporting import positions_of, quote_risks, write_positions, write_report
from pricing.reporting.stress import Stress, write_scenarios
from tests.helpers import double

VOLS = {
    "expiries": ["2026-06-01", "2028-01-01"],
    "strikes": [40, 120],
    "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]],
}
SPOTS = {"EURUSD": 1.08, "USDJPY": 150.0, "GBPUSD": 1.25, "USDCHF": 0.9}
DOCUMENT = {
    "asof": "2026-01-05",
    "currency": "EUR",
    "curves": {"EUR": {"zero_rate": 0.02}, "USD": {"zero_rate": 0.04}, "JPY": {"zero_rate": 0.005}},
    "equities": {
        name: {"curve": currency, "currency": currency, "spot": spot, "implied_vols": VOLS}
        for name, currency, spot in (("A", "EUR", 100.0), ("B", "USD", 50.0), ("C", "JPY", 80.0))
    },
    "fx": {name: {"spot": spot} for name, spot in SPOTS.items()},
}
BOOK = """id,type,underlying,quantity,option,strike,expiry
e1,european,A,10,call,100,2026-12-01
d1,european,B,30,call,50,2026-12-01
d2,european,B,-20,put,55,2027-06-01
j1,european,C,1000,put,70,2027-06-01
"""


def market_of(**changes) -> Market:
    return Market.from_text(json.dumps({**DOCUMENT, **changes}))


@pytest.fixture(scope="module")
def market():
    return market_of()


@pytest.fixture(scope="module")
def book():
    return Book.from_text(BOOK)


@double
def test_crosses_are_products_of_the_quoted_rates(market):
    assert market.errors == ()
    assert float(market.fx_rate("EUR", "JPY")) == pytest.approx(1.08 * 150.0, rel=1e-15)
    assert float(market.fx_rate("JPY", "CHF")) == pytest.approx(0.9 / 150.0, rel=1e-15)
    assert float(market.fx_rate("CHF", "GBP")) == pytest.approx(1 / 0.9 / 1.25, rel=1e-15)
    assert float(market.fx_rate("EUR", "EUR")) == 1.0
    ids = dict(market.flat_quotes())
    assert {quote: x for quote, x in ids.items() if quote.startswith("FX/")} == pytest.approx(
        {f"FX/RATE/{name[:3]}/{name[3:]}": spot for name, spot in SPOTS.items()}
    )
    with pytest.raises(MissingRate, match="no FX rate from SEK to EUR: the market quotes EURUSD"):
        market.fx_rate("SEK", "EUR")
    with pytest.raises(MissingRate, match="quotes no pairs"):
        market_of(fx={}).fx_rate("USD", "EUR")


@pytest.mark.parametrize(
    ("fx", "place", "message"),
    [
        (
            {"EURUSD": {"spot": 1.0}, "USDEUR": {"spot": 1.0}},
            "USDEUR.spot",
            "give the rate 1, beside 1",
        ),
        (
            {"EURUSD": {"spot": 1.08}, "USDJPY": {"spot": 150}, "EURJPY": {"spot": 163}},
            "EURJPY.spot",
            "give the rate 162, beside 163; leave the spot out",
        ),
        ({"EUR/USD": {"spot": 1.08}}, "EUR/USD", "not a pair of currencies; give two ISO codes"),
        ({"EUREUR": {"spot": 1.08}}, "EUREUR", "not a pair of currencies"),
        ({"EURUSD": {"spot": 0}}, "EURUSD.spot", "give a spot > 0"),
        ({"EURUSD": {}}, "EURUSD.spot", "is missing; give it"),
        ({"EURUSD": {"spot": 1.08, "rate": 1}}, "EURUSD.rate", "not a known field"),
    ],
)
def test_pairs_that_are_wrong_are_left_out_with_their_place(fx, place, message):
    found = market_of(fx=fx)
    (error,) = found.errors
    assert error.field == f"fx.{place}" and message in str(error)
    assert len(found.fx) == len(fx) - 1


@pytest.mark.costly
@double
def test_the_total_and_its_sensitivities_are_those_of_bumped_markets(market, book):
    """Every quote at once, FX rates included: central differences of the total, one quote at a time."""
    found = risk(book, market, black_scholes)
    assert (
        found.currency == "EUR"
        and found.is_converted
        and list(found.by_currency)
        == [
            "EUR",
            "USD",
            "JPY",
        ]
    )
    rates = {name: float(market.fx_rate(name, "EUR")) for name in found.by_currency}
    assert found.fx_rates == pytest.approx(rates, rel=1e-15)
    parts = {name: part.value for name, part in found.by_currency.items()}
    assert found.value == pytest.approx(sum(rates[n] * parts[n] for n in rates), rel=1e-14)
    total = lambda at: risk(book, at, black_scholes, greeks=False).value
    for quote, value in market.flat_quotes():
        step = 1e-4 * (value or 1.0)
        up, down = (total(market.with_quotes({quote: value + s})) for s in (step, -step))
        slope = found.sensitivities[quote]
        np.testing.assert_allclose(
            slope, (up - down) / (2 * step), rtol=1e-6, atol=1e-6, err_msg=quote
        )
    # closed form: the rate of the pair is a factor of the dollars' and of the yen's value
    of_pair = -(rates["USD"] * parts["USD"] + rates["JPY"] * parts["JPY"]) / SPOTS["EURUSD"]
    assert found.sensitivities["FX/RATE/EUR/USD"] == pytest.approx(of_pair, rel=1e-14)
    assert found.sensitivities["FX/RATE/GBP/USD"] == 0.0


@double
def test_another_reporting_currency_is_a_factor(market, book):
    euros, dollars = (risk(book, market, black_scholes, currency=name) for name in ("EUR", "USD"))
    assert dollars.value == pytest.approx(1.08 * euros.value, rel=1e-14)
    quote = "EQUITY/PRICE/C"
    assert dollars.sensitivities[quote] == pytest.approx(1.08 * euros.sensitivities[quote])
    assert dollars.by_currency["JPY"].value == euros.by_currency["JPY"].value
    with pytest.raises(MissingRate, match="to SEK: the market quotes"):
        risk(book, market, black_scholes, currency="SEK")


@double
def test_without_rates_there_is_no_total_and_a_note_says_so(market, book):
    found = risk(book, market_of(fx={"EURUSD": {"spot": 1.08}}), black_scholes)
    assert np.isnan(found.value) and found.currency == "" and found.sensitivities == {}
    assert "the book has no total: there is no FX rate from JPY to EUR" in found.notes[-1]
    alone = risk(book.without("e1", "d1", "d2"), market_of(fx={}), black_scholes)
    assert alone.currency == "JPY" and alone.value == alone.by_currency["JPY"].value
    assert not alone.is_converted and alone.notes == found.notes[:-1]


@double
def test_files_and_page_are_in_the_reporting_currency(tmp_path, market, book):
    result = risk(book, market, black_scholes)
    positions = positions_of(result, book, market)
    write_positions(tmp_path / "npv.csv", positions)
    with (tmp_path / "npv.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["currency"] for row in rows] == ["EUR", "USD", "USD", "JPY"]
    in_total = [float(row["value:EUR"]) for row in rows]
    assert sum(in_total) == pytest.approx(result.value)
    assert in_total[3] == pytest.approx(float(rows[3]["value"]) / 162.0)
    found = {row.quote_id: row for row in quote_risks(result, market)}
    assert len(found) == len(market.flat_quotes())
    assert {row.currency for row in found.values()} == {"EUR"}
    pair = found["FX/RATE/EUR/USD"]
    assert (pair.unit, pair.shift) == ("EUR per 1 % of the rate", pytest.approx(0.0108))

    moves = ScenarioSet(
        spots=(), vols=(), rates=(), named=(Scenario("up", {"all": 0.1}, fx={"EURUSD": 0.1}),)
    )
    revalued = revalue(book, market, black_scholes, moves.scenarios)
    stress = Stress.in_total(moves, revalued, positions, result, market)
    write_scenarios(tmp_path / "scenarios.csv", stress)
    with (tmp_path / "scenarios.csv").open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["group"] == "book")
    bumped = {f"EQUITY/PRICE/{n}": 1.1 * float(e.spot) for n, e in market.equities.items()}
    after = risk(book, market.with_quotes({**bumped, "FX/RATE/EUR/USD": 1.1 * 1.08}), black_scholes)
    assert (row["currency"], row["fx"]) == ("EUR", "EURUSD=0.1")
    assert float(row["pnl"]) == pytest.approx(after.value - result.value, rel=1e-12)

    write_report(tmp_path / "report.html", result, book, market, [], {}, stress)
    page = (tmp_path / "report.html").read_text()
    tiles = re.findall(r"<dt>Value</dt><dd[^>]*title=\"(.+?)\">.+?<dd class=\"unit\">([^<]+)", page)
    assert [(pytest.approx(float(text)), unit) for text, unit in tiles] == [(result.value, "EUR")]
    assert 'id="currencies"' in page and "Nothing is converted" not in page
    assert "EURUSD rate +10 %" in page and "USD per" not in page


@pytest.mark.parametrize(
    ("moves", "message"),
    [({"EURSEK": 0.1}, "'EURSEK' is not a pair of currencies"), ({"EURUSD": -1.0}, "> -1")],
)
def test_scenarios_move_pairs_of_the_market(moves, message, market):
    text = json.dumps({"scenarios": {"x": {"fx": moves}}})
    (error,) = ScenarioSet.from_text(text).checked(market).errors
    assert message in str(error)


@pytest.mark.parametrize(
    ("value", "message"), [(1.2, ""), (0.0, "give a spot > 0"), (2.0, "at most 50 %")]
)
def test_rates_move_within_the_bounds_of_a_spot(value, message, market):
    after, errors = moved(market, {"FX/RATE/EUR/USD": value}, most=0.5)
    assert (message in str(errors)) if message else not errors
    assert float(after.fx["EURUSD"].spot) == pytest.approx(1.08 if message else value)
