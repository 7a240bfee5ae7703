"""The report's numbers and page, from figures made by hand."""

import csv
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import date
from math import inf, nan

import numpy as np
import pytest

from pricing import Book, Measures, Revaluation, RiskResult, Scenario, ScenarioSet, TradeRisk
from pricing.market import Market
from pricing.portfolio.batching import currency_of
from pricing.reporting import (
    SurfaceFit,
    charts,
    ladders,
    positions_of,
    quote_risks,
    tables,
    write_positions,
    write_quote_risks,
    write_report,
)
from pricing.reporting.formats import (
    by_size,
    cell,
    counted,
    decimals_for,
    number,
    plain,
    significant,
)
from pricing.reporting.page import fit_section, write_fit_report
from pricing.reporting.stress import Stress, write_scenarios

MARKET = """{
 "asof": "2002-07-05", "currency": "EUR",
 "curves": {"EUR": {"zero_rate": 0.03}, "USD": {"dates": ["2002-12-17"], "zero_rates": [0.02]}},
 "equities": {
  "A/B": {"curve": "EUR", "spot": 200.0, "implied_vols": {
   "expiries": ["2002-12-17", "2003-06-15"], "strikes": [180, 220],
   "vols_by_expiry": [[0.3, 0.2], [0.28, 0.22]]}},
  "NY": {"curve": "USD", "spot": 50.0, "currency": "USD", "implied_vols": {
   "expiries": ["2002-12-17"], "strikes": [50], "vols_by_expiry": [[0.4]]}}
 },
 "swaption_vols": {"type": "normal", "expiries_years": [1], "tenors_years": [5],
  "vols_by_expiry": [[0.01]]}
}"""
BOOK = """id,type,underlying,quantity,option,strike,expiry,barrier,barrier_type,payout,amount
E1,european,A/B,10,call,210,2002-10-18,,,,
<b>,digital,A/B,-2,put,190,2003-12-19,,,cash,25
B1,barrier,A/B,4,put,200,2003-06-15,150,down-and-in,,
X1,european,A/B,1,call,zero,2003-06-15,,,,
"""
ERRORS = Measures(0.1)


def figures_on(name: str, **others) -> Measures:
    given = {"delta": {name: 0.5}, "gamma": {(name, name): 0.01}, "vega": 30.0, "theta": -8.0}
    return Measures(**{"value": 12.5, "rho": 20.0, **given, **others})


FIGURES, UNBIASED = figures_on("A/B"), figures_on("A/B", gamma={})


@pytest.fixture(scope="module")
def market():
    return Market.from_text(MARKET)


@pytest.fixture(scope="module")
def book():
    return Book.from_text(BOOK)


@pytest.fixture(scope="module")
def result(book, market):
    trades = (
        TradeRisk("E1", "european", 10.0, FIGURES, "ClosedForm", "ok", ERRORS),
        TradeRisk("<b>", "digital", -2.0, FIGURES, "ClosedForm", "ok", ERRORS),
        TradeRisk("B1", "barrier", 4.0, UNBIASED, "MonteCarlo", "ok", ERRORS),
        TradeRisk("X1", "european", 0.0, None, "", "failed: 'zero' is not a number"),
    )
    sensitivities = {quote: float(index) for index, (quote, _) in enumerate(market.flat_quotes())}
    return RiskResult(trades, 150.0, sensitivities, {}, book.errors, {"fit": 0.5})


@pytest.fixture(scope="module")
def fit():
    strikes = np.array([180.0, 220.0])
    vols = np.array([[0.3, 0.2], [0.28, 0.22]])
    return SurfaceFit(
        *("A/B", "Heston", 200.0, (date(2002, 12, 17), date(2003, 6, 15)), strikes, vols),
        residuals=np.array([[0.01, -0.02], [0.0, 0.005]]),
        curve_strikes=strikes,
        curve_vols=vols + 0.01,
        result="Converged.",
        parameters={"vol_of_vol": (3.2952, 0.16)},
        facts={"steps": "12"},
    )


def test_positions_are_scaled_by_quantity_and_shift(result, book, market):
    position = positions_of(result, book, market)[1].figures
    assert position["value"] == -25.0 and position["std_error"] == 0.2
    assert position["delta_1pct"] == pytest.approx(-2 * 0.5 * 200 * 0.01)
    assert position["gamma_1pct"] == pytest.approx(-2 * 0.01 * 200**2 * 0.01)
    assert position["vega_1volpt"] == pytest.approx(-0.6)
    assert position["theta_1day"] == pytest.approx(16 / 365)
    assert position["rho_1bp"] == pytest.approx(-4e-3)


def test_a_figure_that_is_not_there_is_an_empty_cell(tmp_path, result, book, market):
    write_positions(tmp_path / "npv.csv", positions_of(result, book, market))
    head, _, _, barrier, failed = (tmp_path / "npv.csv").read_text().splitlines()
    row = dict(zip(head.split(","), barrier.split(","), strict=True))
    assert row["gamma"] == row["gamma_1pct"] == "" and float(row["delta"]) == 2.0
    assert failed == "X1,european,,,,,,,,,failed: 'zero' is not a number,,,,,,,,,,EUR"


def test_standard_errors_are_those_of_positions(book, market):
    errors = Measures(0.1, {"A/B": 0.02}, {("A/B", "A/B"): 0.0}, vega=3.0)
    trade = TradeRisk("E1", "european", -10.0, FIGURES, "MonteCarlo", "ok", errors)
    others = tuple(TradeRisk(row.id, row.type, 0.0, None, "", "") for row in book.rows[1:])
    found = positions_of(RiskResult((trade, *others), 0.0, {}, {}, ()), book, market)[0].errors
    scaled = {"delta_1pct": 10 * 0.02 * 2.0, "vega_1volpt": 0.3, "value": 1.0, "vega": 30.0}
    assert found == pytest.approx({**scaled, "delta": 0.2})
    tile = tables.margin(found["vega_1volpt"]), tables.margin(0.0)
    assert tile == (" ± 0.30", "")


def test_every_quote_has_a_shift_and_a_unit(result, market):
    risks = {risk.quote_id: risk for risk in quote_risks(result, market)}
    assert list(risks) == [quote for quote, _ in market.flat_quotes()]
    expected = {
        "ZERO/RATE/EUR/2002-07-05": (1e-4, "EUR per 1 bp"),
        "ZERO/RATE/USD/2002-12-17": (1e-4, "USD per 1 bp"),
        "EQUITY/PRICE/A/B": (2.0, "EUR per 1 % of spot"),
        "EQUITY/PRICE/NY": (0.5, "USD per 1 % of spot"),
        "EQUITY_DIVIDEND/RATE/NY": (1e-4, "USD per 1 bp"),
        "EQUITY_OPTION/RATE_LNVOL/A/B/2002-12-17/180": (0.01, "EUR per 1 vol point"),
        "SWAPTION/RATE_NVOL/EUR/1Y/5Y": (1e-4, "EUR per 1 bp"),
    }
    for quote, (shift, unit) in expected.items():
        risk = risks[quote]
        assert risk.shift == pytest.approx(shift) and risk.unit == unit
        assert risk.scaled == pytest.approx(risk.derivative * shift)
    assert quote_risks(RiskResult((), 0.0, {}, {}, ()), market)[0].derivative == 0.0


def test_ladders_keep_the_total(result, book, market):
    valued = [p for p in positions_of(result, book, market) if p.figures]
    pillars = market.dates(market.equities["A/B"].surface.expiries)
    assert pillars == (date(2002, 12, 17), date(2003, 6, 15))
    for figure in ("delta_1pct", "gamma_1pct"):
        total = tables.total(valued, figure)
        by_strike = ladders.by_strike(valued, figure)
        by_expiry = ladders.by_expiry(valued, figure, pillars)
        assert by_strike.totals.sum() == pytest.approx(total)
        assert by_expiry.totals.sum() == pytest.approx(total)
        assert by_strike.edges.size == by_strike.totals.size + 1
        assert by_expiry.labels == ("to 17 Dec 2002", "to 15 Jun 2003", "later")
    assert by_expiry.totals == pytest.approx([40.0, 0.0, -8.0])


def test_a_strike_on_an_edge_goes_up(result, book, market):
    one = [p for p in positions_of(result, book, market) if p.id == "B1"]
    ladder = ladders.by_strike(one, "value")
    assert ladder.totals == pytest.approx([50.0])
    assert ladder.edges[0] <= 200.0 < ladder.edges[1]


def test_one_strike_has_a_bar_that_is_seen(result, book, market):
    """Its bucket is about a hundredth of the strike, so that the bar is seen with the spot beside it."""
    one = next(p for p in positions_of(result, book, market) if p.id == "E1")
    ladder = ladders.by_strike([one, one], "value")
    assert ladder.totals.tolist() == [250.0]
    width = ladder.edges[1] - ladder.edges[0]
    assert ladder.edges[0] <= 210.0 < ladder.edges[1] and 1.0 <= width <= 5.0
    picture = charts.ladders([("Value", ladder)], 200.0)
    (width,) = re.findall(r'<rect[^>]* width="([\d.]+)"[^>]*><title>', picture)
    assert float(width) > 10.0  # points


def test_a_figure_that_no_trade_has_is_no_picture_of_zeros(tmp_path, market):
    book = Book.from_text("\n".join(BOOK.splitlines()[::3][:2]))
    trades = (TradeRisk("B1", "barrier", 4.0, UNBIASED, "MonteCarlo", "ok", ERRORS),)
    write_report(tmp_path / "page.html", RiskResult(trades, 50.0, {}, {}, ()), book, market, [], {})
    page = (tmp_path / "page.html").read_text()
    assert "Delta, EUR per 1 % of spot, by strike" in page
    assert "Gamma, EUR per 1 % of spot" not in page
    found = dict(re.findall(r"<dt>(.+?)</dt><dd.*?>(.+?)</dd>", page))
    assert found["Gamma, equities"] == "\N{EN DASH}"


@pytest.mark.parametrize("count", [8, 200, 5000])
def test_every_surface_is_in_the_histogram(count):
    """What lies far out is in the outermost bin, whose edge is where half a per cent begins."""
    values = np.append(np.linspace(0.0, 1.0, count - 1), 1e3)
    counts, edges = charts.binned(np.append(values, np.nan))
    assert counts.sum() == count
    assert edges[-1] == (1e3 if count <= 200 else pytest.approx(0.995, abs=1e-3))
    assert charts.binned(np.full(3, np.nan))[0].sum() == 0


@pytest.mark.parametrize("strikes", [(3.0, 7.2), (58.0, 62.25), (10.0, 11.1), (1.15, 1.35)])
def test_a_least_strike_below_a_rounded_edge_is_in_the_first_bucket(result, book, market, strikes):
    one = next(p for p in positions_of(result, book, market) if p.id == "E1")
    both = [
        replace(one, trade=one.trade.model_copy(update={"strike": strike})) for strike in strikes
    ]
    ladder = ladders.by_strike(both, "value")
    assert ladder.totals.sum() == pytest.approx(2.0 * one.figures["value"])
    assert ladder.edges[0] <= strikes[0] < ladder.edges[1]


def test_figures_are_in_the_currency_of_their_underlying(market):
    lines = "id,type,underlying,option,strike,expiry", "1,european,NY,call,50,2002-12-17"
    (option,) = Book.from_text("\n".join(lines)).trades
    (swap, _) = Book.from_text("\n".join(SWAPS.splitlines()[:3])).trades
    in_francs = Market.from_text(
        MARKET.replace('"EUR": {"zero_rate"', '"EUR": {"currency": "CHF", "zero_rate"')
    )
    assert currency_of(option, market) == "USD"
    assert [currency_of(swap, each) for each in (market, in_francs)] == ["EUR", "CHF"]
    of_dollars = swap.model_copy(update={"underlying": "USD"})
    assert currency_of(of_dollars, market) == "USD"  # the curve's name is that of a currency
    text = MARKET.replace('"USD": {', '"OTHER": {').replace('"curve": "USD"', '"curve": "OTHER"')
    other = Market.from_text(text)
    assert currency_of(swap.model_copy(update={"underlying": "OTHER"}), other) == "EUR"


def stressed(result, book, market, pnl):
    """Two scenarios, up and down, of the four trades of the book."""
    moves = ScenarioSet(
        spots=(),
        vols=(),
        rates=(),
        named=(Scenario("up", {"all": 0.1}), Scenario("down", {"all": -0.1})),
    )
    ids = tuple(row.id for row in book.rows)
    found = Revaluation(moves.scenarios, ids, np.array(pnl), np.zeros((2, 4)))
    return Stress(moves, found, positions_of(result, book, market))


def test_totals_of_scenarios_say_which_trades_they_leave_out(tmp_path, result, book, market):
    """X1 has no figures today, so no total holds it; B1 has none in a scenario, and it is told."""
    nan = np.nan
    stress = stressed(result, book, market, [[1.0, 2.0, nan, 1e6], [nan, nan, nan, 1e6]])
    assert [stress.pnl(each)[0] for each in stress.scenarios.scenarios[:1]] == [3.0]
    assert [each.name for each in stress.ordered] == ["up"]
    assert stress.found.lost(np.array([True, True, True, False])) == {
        "up": "1 of 3 trades that have a value today have none here",
        "down": "3 of 3 trades that have a value today have none here",
    }
    write_scenarios(tmp_path / "scenarios.csv", stress)
    with (tmp_path / "scenarios.csv").open(newline="") as file:
        rows = {(row["scenario"], row["name"]): row for row in csv.DictReader(file)}
    assert rows["up", "book"]["trades"] == "3" and rows["up", "book"]["pnl"] == "3.0"
    assert rows["up", "book"]["status"].startswith("in part: 1 of 3 trades")
    assert rows["up", "european"]["status"] == "ok"
    assert rows["down", "book"]["pnl"] == "" and rows["down", "book"]["status"].startswith(
        "in part"
    )
    ((_, told, table),) = [found for found in stress.movers() if found[0] == "up"]
    assert told == "3" and {row[0] for row in table.rows} == {"E1", "<b>"}
    assert [row[0] for row in stress.unvalued().rows] == ["up", "down"]


def test_a_scenario_is_called_as_it_was_named_and_a_move_of_the_grid_in_words(result, book, market):
    named = (Scenario("year-end -1", {"all": -0.01}),)
    moves = ScenarioSet(spots=(-0.2, 0.0), vols=(-0.05, 0.0), rates=(-0.01, 0.0), named=named)
    ids, pnl = tuple(row.id for row in book.rows), np.arange(28.0).reshape(7, 4)
    found = Revaluation(moves.scenarios, ids, pnl, 0.0 * pnl)
    stress = Stress(moves, found, positions_of(result, book, market))
    assert [stress.title(each) for each in moves.scenarios[::4]] == [
        "spots \N{MINUS SIGN}20 %, vols \N{MINUS SIGN}5 points",
        "rates \N{MINUS SIGN}100 bp",
    ]
    assert [told for told, *_ in stress.movers()] == [
        stress.title(stress.ordered[0]),
        named[0].name,
    ]
    assert counted(1, "trade") == "1 trade" and counted(2096, "trade") == "2,096 trades"


def test_numbers_are_sorted_by_size_and_what_is_none_comes_last():
    assert sorted([3.0, np.nan, -5.0, 1.0], key=by_size)[:3] == [-5.0, 3.0, 1.0]


def test_tables(result, book, market):
    positions = positions_of(result, book, market)
    products = tables.by_product(positions)
    assert [row[:3] for row in products.rows] == [
        ("european", "2", "1"),
        ("digital", "1", "0"),
        ("barrier", "1", "0"),
        ("total", "4", "1"),
    ]
    assert products.rows[-1][3] == "150.0"
    assert [row[3].value for row in products.rows] == [125.0, -25.0, 50.0, 150.0]
    assert [row[:3] for row in tables.by_underlying(positions).rows] == [
        ("A/B", "3", "0"),
        ("unknown", "1", "1"),
        ("total", "4", "1"),
    ]
    assert [row[:2] for row in tables.by_expiry(positions, date(2002, 7, 5)).rows] == [
        ("to 6 months", "1"),
        ("to 1 year", "1"),
        ("to 2 years", "1"),
        ("unknown", "1"),
        ("total", "4"),
    ]
    risks = tables.largest_risks(positions, 1)
    assert [row[:2] for row in risks.rows][:2] == [
        ("Delta, equities, 1 % of spot", "E1"),
        ("Gamma, equities, 1 % of spot", "E1"),
    ]
    largest = tables.largest(positions, 2)
    assert largest.left_out == 1
    assert largest.rows[0][:4] == ("E1", "european", "A/B, call 210, 18 Oct 2002", "10")
    assert largest.rows[1][2] == "A/B, put 200, down-and-in 150, 15 Jun 2003"
    assert tables.terms(book.trades[1]) == "A/B, put 190, pays 25 cash, 19 Dec 2003"
    assert tables.failed(positions, 9).rows == (("5", "X1", "european", "'zero' is not a number"),)


SWAPS = """id,type,underlying,side,fixed_rate,notional,start,maturity,option,strike,expiry
S1,swap,EUR,payer,0.045,1000,2002-10-05,2005-10-05,,,
S2,swap,EUR,payer,0.045,1000,2002-10-05,2005-10-05,,,
E1,european,A/B,,,,,,call,210,2002-10-18
X1,european,A/B,,,,,,call,zero,2002-10-18
"""
VEGA, NORMAL_VEGA = "Vega, equities: EUR per 1 vol point", "Vega, rates: EUR per 1 bp of vol"
THETA_AND_RHO = ["Theta: EUR per 1 day", "Rho: EUR per 1 bp of rates"]
OF_SPOT = [f"{name}, equities: EUR per 1 % of spot" for name in ("Delta", "Gamma")]
OF_RATES = [f"{name}, rates: EUR per 1 bp of rates" for name in ("Delta", "Gamma")]


@pytest.mark.parametrize(
    ("kind", "column", "scale"),
    [("normal", "vega_1bp", 1e-4), ("lognormal", "vega_rates_1volpt", 0.01)],
)
def test_vegas_of_equities_and_of_rates_are_columns_of_their_own(kind, column, scale):
    market = Market.from_text(MARKET.replace('"normal"', f'"{kind}"'))
    book = Book.from_text("\n".join(SWAPS.splitlines()[:4]))
    trades = tuple(
        TradeRisk(row.id, row.type, 2.0, figures_on(row.trade.underlying), "", "ok", ERRORS)
        for row in book.rows
    )
    found = positions_of(RiskResult(trades, 0.0, {}, {}, ()), book, market)
    vegas = [{n: x for n, x in p.figures.items() if n.startswith("vega_")} for p in found]
    in_rates = {column: pytest.approx(60.0 * scale)}
    assert vegas == [in_rates, in_rates, {"vega_1volpt": pytest.approx(0.6)}]
    (*_, total) = tables.by_product(found).rows
    headers = [h.replace("\N{NO-BREAK SPACE}", " ") for h in tables.by_product(found).headers]
    sums = {head: text.value for head, text in zip(headers, total, strict=True) if "Vega" in head}
    assert sorted(sums.values()) == pytest.approx(sorted([0.6, 120.0 * scale])) and len(sums) == 2


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["E1"], ["Value: EUR", *OF_SPOT, VEGA, *THETA_AND_RHO]),
        (["S1", "S2"], ["Value: EUR", *THETA_AND_RHO, *OF_RATES, NORMAL_VEGA]),
        (
            ["E1", "S1"],
            ["Value: EUR", *OF_SPOT, VEGA, *THETA_AND_RHO, *OF_RATES, NORMAL_VEGA],
        ),
        (["X1"], ["Value: EUR", *OF_SPOT, VEGA, *THETA_AND_RHO]),
    ],
    ids=["equities", "rates", "both", "none valued"],
)
def test_key_figures_say_of_what_they_are_and_fill_their_grid(tmp_path, market, ids, expected):
    """Rows of as many columns as the page has, or of two where it is narrow."""
    head, *rows = SWAPS.splitlines()
    book = Book.from_text("\n".join([head, *(row for row in rows if row[:2] in ids)]))
    trades = tuple(
        TradeRisk(
            row.id, row.type, 1.0, figures_on(row.trade.underlying), "ClosedForm", "ok", ERRORS
        )
        if row.trade
        else TradeRisk(row.id, row.type, 1.0, None, "", "")
        for row in book.rows
    )
    write_report(tmp_path / "page.html", RiskResult(trades, 1.0, {}, {}, ()), book, market, [], {})
    page = (tmp_path / "page.html").read_text()
    tiles = re.findall(r"<dt>(.+?)</dt><dd.*?>.+?</dd><dd class=\"unit\">([^<]+)", page)
    assert [": ".join(tile) for tile in tiles] == expected
    (columns,) = map(int, re.findall(r"--columns: (\d+)", page))
    cells = page.count('<div class="tile">')
    assert cells % columns == cells % 2 == 0 and 3 <= columns <= 5 and cells - len(tiles) < 2
    headers = page.split("<tbody>")[0].replace("\N{NO-BREAK SPACE}", " ")
    assert ("Delta, 1 % of spot</th>" in headers) == (OF_SPOT[0] in expected)
    assert ("Delta, 1 bp of rates</th>" in headers) == (OF_RATES[0] in expected)
    anchors = set(re.findall(r'href="#(\w+)"', page.split("<svg")[0]))
    assert anchors <= set(re.findall(r'id="(\w+)"', page))


def test_a_key_figure_has_the_decimals_that_it_needs(tmp_path, result, book, market):
    write_report(tmp_path / "page.html", result, book, market, [], {})
    page = (tmp_path / "page.html").read_text()
    found = dict(re.findall(r"<dt>(.+?)</dt><dd.*?>(.+?)</dd>", page))
    assert (found["Value"], found["Delta, equities"]) == ("150.0", "12.00")
    units = dict(re.findall(r"<dt>(.+?)</dt><dd.*?>.+?</dd><dd class=\"unit\">([^<]+)", page))
    assert units["Gamma, equities"] == "EUR per 1 % of spot, 2 of 3 trades"  # B1 has none
    assert units["Delta, equities"] == "EUR per 1 % of spot"


HEADER = (
    "id,type,underlying,option,strike,expiry,exercise_dates,averaging_dates,monitoring_dates,"
    "lower,upper,barrier,coupons,protection,initial_spot,average,weights"
)
DATES = "2002-12-17|2003-06-15"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("bermudan,A/B,put,190,,{},,,,,,,,,,", "A/B, put 190, 2 dates to 15 Jun 2003"),
        ("asian,A/B,call,210,,,{},,,,,,,,,", "A/B, arithmetic, call 210, 2 dates to 15 Jun 2003"),
        (
            "double_knock_out,A/B,call,210,,,,{},150,250,,,,,,",
            "A/B, call 210, above 150, below 250, 2 dates to 15 Jun 2003",
        ),
        (
            "autocallable,A/B,,,,{},,,,,205,0.02|0.04,150,200,,",
            "A/B, call level 205, protection 150, 2 dates to 15 Jun 2003",
        ),
        (
            "basket,A/B|NY,call,120,2003-06-15,,,,,,,,,,max,",
            "A/B and NY, max, call 120, 15 Jun 2003",
        ),
    ],
)
def test_terms_of_what_has_dates_or_assets(row, words):
    (trade,) = Book.from_text(f"{HEADER}\nT1,{row.format(DATES)}\n").trades
    assert tables.terms(trade) == words


def test_a_basket_moves_with_all_its_spots_and_with_each(tmp_path, market):
    """Spots 200 and 50; delta_1pct of the basket is the sum of those of its assets."""
    book = Book.from_text(f"{HEADER}\nK1,basket,A/B|NY,call,120,2003-06-15,,,,,,,,,,arithmetic,\n")
    pairs = ("A/B", "A/B"), ("A/B", "NY"), ("NY", "A/B"), ("NY", "NY")
    gammas = dict(zip(pairs, (0.01, 0.02, 0.02, 0.03), strict=True))
    given = Measures(9.0, {"A/B": 0.5, "NY": 0.4}, gammas, vega=30.0, theta=-8.0, rho=20.0)
    trade = TradeRisk("K1", "basket", 1.0, given, "MonteCarlo", "ok", ERRORS)
    positions = positions_of(RiskResult((trade,), 9.0, {}, {}, ()), book, market)
    together, one, other = (positions[0], *(positions[0].on(name) for name in ("A/B", "NY")))
    parts = [part.figures["delta_1pct"] for part in (one, other)]
    assert parts == pytest.approx([1.0, 0.2])
    assert together.figures["delta_1pct"] == pytest.approx(sum(parts))
    weighted = 0.01 * 200**2 + 2 * 0.02 * 200 * 50 + 0.03 * 50**2
    assert together.figures["gamma_1pct"] == pytest.approx(0.01 * weighted)
    write_positions(tmp_path / "npv.csv", positions)
    head = (tmp_path / "npv.csv").read_text().splitlines()[0].split(",")
    assert head[-5:] == ["delta:A/B", "delta:NY", "gamma:A/B:A/B", "gamma:A/B:NY", "gamma:NY:NY"]


def test_a_map_sums_rows_and_columns():
    heat = tables.heat_map(
        ["a", "b"], ["x", "y"], np.array([[1000.0, -2000.0], [0.0, 500.0]]), True
    )
    assert heat.totals == ("−1,000", "500")  # noqa: RUF001
    assert heat.column_totals == ("1,000", "−1,500", "−500")  # noqa: RUF001
    assert heat.cells[0][1].color == "down" and heat.cells[0][1].strength == 1.0
    assert heat.cells[1][0].strength == 0.0


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (number(-1234567.6), "−1,234,568"),  # noqa: RUF001
        (number(-0.001, 2), "0.00"),
        (number(7), "7"),
        (number(nan), "–"),  # noqa: RUF001
        (plain(4400.0), "4,400"),
        (plain(0.25), "0.25"),
        (plain(0), "0"),
        (significant(0.0745871, 5), "0.074587"),
        (significant(15.56, 2), "16"),
        (significant(0.0), "0"),
    ],
)
def test_numbers(text, wanted):
    assert text == wanted


def test_decimals():
    found = [decimals_for(values) for values in ([], [0.0, nan], [12345.0], [-1.5], [0.02], [inf])]
    assert found == [0, 0, 0, 3, 5, 0]


def test_pictures_are_svg_in_the_colors_of_the_page(fit):
    ladder = ladders.Ladder(np.array([3.0, -1.0]), labels=("to 1 & 2", "later"))
    for picture in (charts.smiles(fit), charts.ladders([("Delta & <Gamma>", ladder)])):
        root = ET.fromstring(picture)
        assert root.tag.endswith("svg") and root.get("role") == "img"
        assert "var(--ink)" in picture and "var(--up)" in picture
        assert not re.search("#[0-9a-f]{6}", picture)
    assert picture == charts.ladders([("Delta & <Gamma>", ladder)])


@pytest.mark.parametrize(
    "name", [r"$\frac$", "$x$", "#1c2430", "中文", "[/red]", "a & <b>", "n" * 999]
)
def test_a_name_in_a_picture_is_that_name(name):
    ladder = ladders.Ladder(np.array([3.0, -1.0]), labels=("to 1", "later"))
    root = ET.fromstring(charts.ladders([(f"{name} zero rates", ladder)]))
    assert root.get("aria-label") == f"{name} zero rates"
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert (f"{name} zero rates" if len(name) < 80 else "n" * 79 + "…") in texts


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "'"])
def test_a_cell_is_no_formula_and_can_be_had_back(sign):
    assert cell(f"{sign}1+1") == f"'{sign}1+1"
    assert cell(f"a{sign}") == f"a{sign}"
    assert cell("") == ""


def test_tables_of_csv_hold_names_as_texts(tmp_path, market, result):
    """A failed row, whose id no check has passed, among them; numbers below 0 stay numbers."""
    book = Book.from_text(BOOK.replace("X1,", "=X1,").replace("E1,", "-E1,"))
    trades = (replace(result.trades[0], id="-E1"), *result.trades[1:3])
    trades = (*trades, replace(result.trades[3], id=book.rows[3].id))
    positions = positions_of(replace(result, trades=trades), book, market)
    write_positions(tmp_path / "npv.csv", positions)
    lines = (tmp_path / "npv.csv").read_text().splitlines()
    assert lines[1].startswith("'-E1,european,125.0,") and lines[4].startswith("'=X1,european,")
    assert lines[2].startswith("<b>,digital,-25.0,")
    other = Market.from_text(MARKET.replace('"currency": "EUR"', '"currency": "@EUR"'))
    write_quote_risks(tmp_path / "s.csv", quote_risks(RiskResult((), 0.0, {}, {}, ()), other))
    rows = (tmp_path / "s.csv").read_text().splitlines()
    assert any(row.endswith(",'@EUR per 1 bp,'@EUR") for row in rows)


def test_the_page_is_self_contained_and_escapes_what_users_wrote(
    tmp_path, result, book, market, fit
):
    path = tmp_path / "report.html"
    write_report(path, result, book, market, [fit], {"read": 0.1})
    page = path.read_text()
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)|<script[^>]|@import""", page)
    assert "1 of 4 trades have no figures" in page
    for text in ("3.2952", "Converged.", "&#39;zero&#39; is not a number", "vol of vol"):
        assert text in page
    anchors = set(re.findall(r'href="#(\w+)"', page.split("<svg")[0]))
    assert anchors <= set(re.findall(r'id="(\w+)"', page))


def test_a_book_without_a_valued_trade_still_has_a_page(tmp_path, market):
    book = Book.from_text("\n".join(BOOK.splitlines()[::4]))
    trades = (TradeRisk("X1", "european", 0.0, None, "", "failed: bad"),)
    result = RiskResult(trades, 0.0, {}, {}, book.errors)
    write_report(tmp_path / "report.html", result, book, market, [], {})
    assert "Failed trades" in (tmp_path / "report.html").read_text()


def test_the_page_of_a_fit(tmp_path, market, fit):
    write_fit_report(tmp_path / "report.html", market, [fit_section(fit)], {"calibrate": 1.0})
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Heston on A/B</h1>" in page and "Residuals" in page
    assert "By product" not in page
