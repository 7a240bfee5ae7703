"""Options on pairs of currencies: from the quotes by delta in a market file to the total and its risk."""

import json
import re

import numpy as np
import pytest
import QuantLib as ql

from calibration import calibrate_market
from pricing import Book, Market, RiskEngine, Scenario, ScenarioSet, explain, revalue, risk
from pricing.market.moves import moved
from pricing.models.surface_models import black_scholes
from pricing.reporting import positions_of, write_report
from pricing.reporting.stress import Stress
from tests.helpers import double

DATES = {"expiries": ["2026-04-05", "2027-01-05"]}
EURUSD = {
    "at_the_money": [0.08, 0.09],
    "risk_reversals_25": [-0.006, -0.01],
    "butterflies_25": [0.002, 0.003],
    "risk_reversals_10": [-0.011, -0.018],
    "butterflies_10": [0.007, 0.01],
}
YEN = {
    "at_the_money": [0.1, 0.11],
    "risk_reversals_25": [-0.016, -0.02],
    "butterflies_25": [0.002, 0.003],
}
PILLARS = {"dates": ["2026-06-01", "2028-01-01"]}
DOCUMENT = {
    "asof": "2026-01-05",
    "currency": "EUR",
    "curves": {
        "EUR": {**PILLARS, "zero_rates": [0.02, 0.025]},
        "USD": {**PILLARS, "zero_rates": [0.04, 0.035]},
        "JPY": {**PILLARS, "zero_rates": [0.005, 0.005]},
    },
    "fx": {
        "EURUSD": {"spot": 1.08, "vols": {**DATES, **EURUSD}},
        "USDJPY": {"spot": 150.0},
        "EURJPY": {"vols": {**DATES, **YEN, "premium_adjusted": True, "delta": "forward"}},
    },
}
HEADER = "id,type,underlying,quantity,option,strike,expiry,barrier,barrier_type\n"
EUROPEANS = """a,european,EURUSD,1000000,call,1.1,2026-09-05,,
b,digital,EURUSD,-200000,put,1.05,2026-09-05,,
c,european,EURJPY,1000000,put,160,2026-09-05,,
"""


def market_of(**pairs) -> Market:
    curves = {**DOCUMENT["curves"], **({"STERLING": {"zero_rate": 0.03}} if pairs else {})}
    document = {**DOCUMENT, "curves": curves, "fx": {**DOCUMENT["fx"], **pairs}}
    return Market.from_text(json.dumps(document))


@pytest.fixture(scope="module")
def market():
    return market_of()


@pytest.fixture(scope="module")
def book():
    return Book.from_text(HEADER + EUROPEANS)


@double
def test_values_are_those_of_quantlib(market):
    """Garman and Kohlhagen on both curves, at the vol of the strike; the pair without a spot at its cross."""
    book = Book.from_text(HEADER + EUROPEANS).without("b")
    result = risk(book, market, black_scholes, greeks=False)
    found = {trade.id: trade.figures.value for trade in result.trades}
    t = 243 / 365
    for name, pair, strike, side in (("a", "EURUSD", 1.1, 1), ("c", "EURJPY", 160.0, -1)):
        spot = {"EURUSD": 1.08, "EURJPY": 162.0}[pair]
        discount = market.curves[pair[3:]].discount(t)
        forward = spot * market.curves["EUR"].discount(t) / discount
        vol = float(market.asset(pair).surface.vol(t, strike))
        option = ql.Option.Call if side > 0 else ql.Option.Put
        peer = ql.blackFormula(option, strike, float(forward), vol * t**0.5, float(discount))
        assert found[name] == pytest.approx(peer, rel=1e-12)


@double
@pytest.mark.slow
def test_exercise_and_barriers_are_priced_on_pairs(market):
    """Early exercise is worth a little, a barrier takes a little; both read the vol of the strike."""
    rows = "a,european,EURUSD,1,put,1.1,2026-09-05,,\nd,american,EURUSD,1,put,1.1,2026-09-05,,\n"
    rows += "e,barrier,EURUSD,1,put,1.1,2026-09-05,1.3,up-and-out\n"
    result = risk(Book.from_text(HEADER + rows), market, black_scholes)
    vanilla, american, barrier = (trade.figures.value for trade in result.trades)
    assert vanilla < american < 1.05 * vanilla and 0.95 * vanilla < barrier < vanilla


@pytest.mark.costly
@double
def test_risk_to_every_quote_is_that_of_bumped_markets(market, book):
    found = risk(book, market, black_scholes)
    engine = RiskEngine(black_scholes, greeks=False)
    total = lambda at: engine(book, at).value
    for quote, value in market.flat_quotes():
        step = 1e-5 * (value if quote.startswith("FX/") else 1.0)
        up, down = (total(market.with_quotes({quote: value + s})) for s in (step, -step))
        slope = found.sensitivities[quote]
        np.testing.assert_allclose(
            slope, (up - down) / (2 * step), rtol=1e-5, atol=1e-2, err_msg=quote
        )
    vegas = sum(
        found.fx_rates[c] * trade.position.vega
        for c, trade in zip(("USD", "USD", "JPY"), found.trades, strict=True)
    )
    quoted = sum(x for quote, x in found.sensitivities.items() if quote.endswith("/ATM"))
    assert vegas == pytest.approx(quoted, rel=1e-10)


@pytest.mark.costly
@double
def test_a_scenario_moves_pairs_and_their_vols(tmp_path, market, book):
    moves = Scenario("x", fx={"EURUSD": 0.02}, vols={"EURUSD": 0.01, "all": 0.05})
    scenarios = ScenarioSet(spots=(), vols=(), rates=(), named=(moves,))
    revalued = revalue(book, market, black_scholes, scenarios.scenarios)
    models = black_scholes(moves.moved(market))
    held = {
        name: model.shifted(underlying=moves.spot_move(market, name) * model.spot)
        for name, model in models.items()
    }
    assert float(held["EURJPY"].spot) == pytest.approx(1.02 * 162.0)
    before, after = (
        risk(book, market, lambda _, m=m: m, greeks=False) for m in (black_scholes(market), held)
    )
    pnl = [
        b.position.value - a.position.value
        for a, b in zip(before.trades, after.trades, strict=True)
    ]
    np.testing.assert_allclose(revalued.pnl[0], pnl, rtol=1e-9)
    result = risk(book, market, black_scholes)
    stress = Stress.in_total(
        scenarios, revalued, positions_of(result, book, market), result, market
    )
    write_report(tmp_path / "report.html", result, book, market, [], {}, stress)
    page = (tmp_path / "report.html").read_text()
    assert all(word in page for word in ("EURJPY", "25 RR", "10 BF", "EUR per vol point"))


@pytest.mark.costly
@double
def test_a_day_is_explained(market, book):
    """By Delta, Gamma, vega, rates and time of the pair; the rest is of third order."""
    after = json.dumps({**DOCUMENT, "asof": "2026-01-06"})
    moves = {"FX/RATE/EUR/USD": 1.083, "FX_OPTION/RATE_LNVOL/EUR/USD/2027-01-05/ATM": 0.0905}
    after = Market.from_text(after).with_quotes(moves)
    before = market.with_quotes({"FX/RATE/EUR/USD": 1.08})
    found = explain(book.without("b", "c"), before, after, black_scholes)
    assert found.delta > 1000.0 and found.gamma > 0.0 and found.vega > 0.0 and found.theta < 0.0
    assert abs(found.residual) < 0.01 * abs(found.change)


@double
def test_the_market_models_keep_the_pairs_of_the_book(market, book):
    models = calibrate_market(market, book.without("c"))
    assert set(models.fit(models.market)) == {"EURUSD"} and not models.calibrations
    assert models.market.fx["EURJPY"].vols is None and not models.failed


@pytest.mark.costly
@pytest.mark.parametrize(
    ("pair", "place", "message"),
    [
        (
            {"vols": {**DATES, **YEN}},
            "GBPUSD.spot",
            "is missing; give it: the pairs before do not give",
        ),
        (
            {"spot": 1.2, "vols": {**DATES, **YEN}},
            "GBPUSD.foreign_curve",
            "there is no curve 'GBP'",
        ),
        (
            {
                "spot": 1.2,
                "foreign_curve": "STERLING",
                "vols": {**DATES, **YEN, "butterflies_25": [-0.05, 0.0]},
            },
            "GBPUSD.vols",
            "the quotes of 2026-04-05 have no smile",
        ),
        (
            {"spot": 1.2, "vols": {**DATES, **YEN, "butterflies_10": [0.01, 0.01]}},
            "GBPUSD.vols.risk_reversals_10",
            "give both 10-delta quotes",
        ),
        (
            {"spot": 1.2, "vols": {**DATES, **YEN, "butterflies_25": [0.01]}},
            "GBPUSD.vols.butterflies_25",
            "1 butterflies_25 for 2 pillars",
        ),
        (
            {"spot": 1.2, "vols": {**DATES, **YEN, "at_the_money": [2.0, 3.0]}},
            "GBPUSD.vols.at_the_money",
            "give vols as decimals",
        ),
        (
            {"spot": 1.2, "vols": {**DATES, **YEN, "delta": "pips"}},
            "GBPUSD.vols.delta",
            "give one of spot, forward",
        ),
    ],
)
def test_quotes_that_are_wrong_have_their_place(pair, place, message):
    (error,) = market_of(GBPUSD=pair).errors
    assert error.field.startswith(f"fx.{place}") and message in str(error)


def test_a_book_names_what_a_pair_lacks(market):
    rows = "a,european,USDJPY,1,call,150,2026-09-05,,\nb,european,USDCHF,1,call,1,2026-09-05,,\n"
    rows += "c,european,EURUSD,1,call,120,2026-09-05,,\n"
    checked = Book.from_text(HEADER + rows).checked(market)
    reasons = [str(error) for error in checked.errors]
    assert "the market has no vols of USDJPY; give them, under fx.USDJPY.vols" in reasons[0]
    assert "'USDCHF' is not an underlying" in reasons[1] and "far from the spot 1.08" in reasons[2]


def test_moved_quotes_keep_a_smile(market):
    quote = "FX_OPTION/BUTTERFLY/EUR/USD/2026-04-05/25"
    after, errors = moved(market, {quote: 0.003})
    assert not errors and float(after.fx["EURUSD"].vols.butterflies[0, 0]) == pytest.approx(0.003)
    _, (error,) = moved(market, {quote: -0.1}, confirmed=True)
    assert error.field == "FX_OPTION/RATE_LNVOL/EUR/USD/2026-04-05/ATM" and re.search(
        "no smile", str(error)
    )
