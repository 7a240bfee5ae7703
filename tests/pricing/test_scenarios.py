"""A book in scenarios: against each trade valued by hand under moved models, and the files of scenarios."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    BlackScholes,
    Book,
    ClosedForm,
    Heston,
    Market,
    MonteCarlo,
    Scenario,
    ScenarioSet,
    price,
    revalue,
)
from pricing.ingestion import UnreadableFile
from pricing.models.surface_models import black_scholes
from pricing.portfolio.batching import products_of
from pricing.portfolio.sweep.block_values import MAX_LEVELS
from pricing.valuation import mean_and_error
from tests.helpers import double

HEADER = "id,type,underlying,quantity,option,strike,expiry,payout,averaging_dates,average\n"
BOOK = HEADER + (
    "a,european,S,10,call,100,2026-12-01,,,\n"
    "b,european,S,-5,put,90,2027-06-01,,,\n"
    "c,digital,T,3,call,55,2027-06-01,asset,,\n"
    "x,european,S,1,call,100,2025-12-01,,,\n"
)
SIMULATED = HEADER + (
    "g,asian,S,4,call,100,,,2026-06-01|2026-12-01,arithmetic\n"
    "h,asian,S,-2,put,95,,,2026-06-01|2026-12-01,arithmetic\n"
)
MARKET = """{"asof": "2026-01-05", "currency": "EUR",
 "curves": {"C": {"dates": ["2026-06-01", "2028-01-01"], "zero_rates": [0.02, 0.03]}}, "equities": {
 "S": {"curve": "C", "spot": 100.0, "dividend_yield": 0.01, "implied_vols": {
  "expiries": ["2026-06-01", "2028-01-01"], "strikes": [80, 120],
  "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]]}},
 "T": {"curve": "C", "spot": 50.0, "implied_vols": {
  "expiries": ["2027-06-01"], "strikes": [50], "vols_by_expiry": [[0.3]]}}}}"""
CRASH = Scenario("crash", {"all": -0.2, "T": -0.25}, {"S": 0.1}, {"C": -0.005})
STILL = Scenario("still")


@pytest.fixture(scope="module")
def market():
    return Market.from_text(MARKET)


def by_hand(trade, market, scenario):
    """Return the value of one contract where every input of Black and Scholes is moved by hand."""
    equity, curve = market.equities[trade.underlying], market.curves["C"]
    model = BlackScholes(
        equity.spot * (1.0 + scenario.spot(trade.underlying)),
        type(curve)(curve.times, curve.zero_rates + scenario.rate("C")),
        type(equity.surface)(
            equity.surface.expiries,
            equity.surface.strikes,
            equity.surface.vols + scenario.vol(trade.underlying),
        ),
        equity.dividend_yield,
    )
    product = jax.tree.map(lambda x: jnp.asarray(x)[0], products_of([trade], market))
    return float(price(product, model, ClosedForm()).value)


@double
def test_closed_forms_are_those_of_models_moved_by_hand(market):
    book = Book.from_text(BOOK)
    scenarios = ScenarioSet(
        spots=(-0.1, 0.0, 0.1), vols=(-0.02, 0.0), rates=(0.0, 0.01), named=(CRASH,)
    )
    found = revalue(book, market, black_scholes, scenarios.scenarios)
    assert found.trades == ("a", "b", "c", "x") and np.isnan(found.pnl[:, 3]).all()
    assert found.pnl.shape == (9, 4) and not found.std_error[:, :3].any()
    for scenario, row in zip(found.scenarios, found.pnl, strict=True):
        for trade, pnl in zip(book.checked(market).trades, row, strict=False):
            value, now = by_hand(trade, market, scenario), by_hand(trade, market, STILL)
            assert pnl == pytest.approx(trade.quantity * (value - now), rel=1e-10, abs=1e-10)
    still = [each.name for each in found.scenarios].index("spots +0 %, vols +0 points")
    assert not found.pnl[still, :3].any()
    assert found.total(np.ones(4, bool)) == pytest.approx(np.nansum(found.pnl, axis=1))


FEW = MonteCarlo(64, num_steps=4, block=32)
HESTON = Heston(100.0, 0.02, 0.04, 1.5, 0.05, 0.4, -0.6)


def heston(market):
    """Return a model whose variance follows the first quoted vol: a fit without a search."""
    vol = market.equities["S"].surface.vols[0, 0]
    return {"S": Heston(100.0, 0.02, vol**2, 1.5, 0.05, 0.4, -0.6)}


@pytest.mark.costly
@double
def test_simulated_trades_have_the_paths_of_today_and_the_error_of_the_difference(market):
    """More spots than a pass has room for, and moved vols."""
    book, key, methods = Book.from_text(SIMULATED), jax.random.key(3), (FEW,)
    spots = tuple(np.linspace(-0.2, 0.2, MAX_LEVELS + 1).tolist())
    scenarios = [Scenario(f"{x}", {"S": x}) for x in spots] + [
        Scenario("vol", {"S": 0.05}, {"S": 0.1})
    ]
    found = revalue(book, market, heston, [STILL, *scenarios], key=key, methods=methods)
    assert not found.pnl[0].any() and not found.std_error[0].any()
    products = products_of(list(book.trades), market)
    method = FEW.prepared(products, HESTON)
    now = heston(market)["S"]

    samples = jax.jit(lambda product, model: method.samples(product, model, key=key))

    for place in (1, MAX_LEVELS + 1, MAX_LEVELS + 2):
        moved = found.scenarios[place]
        model = heston(moved.moved(market))["S"]
        model = model.shifted(underlying=100.0 * moved.spot("S"))
        for index, trade in enumerate(book.trades):
            product = jax.tree.map(lambda x, i=index: jnp.asarray(x)[i], products)
            difference = samples(product, model) - samples(product, now)
            mean, error = mean_and_error(difference, method)
            assert found.pnl[place, index] == pytest.approx(trade.quantity * float(mean), rel=1e-10)
            expected = abs(trade.quantity) * float(error)
            assert found.std_error[place, index] == pytest.approx(expected, rel=1e-9)
            assert expected > 0.0
    bound = found.total(np.ones(2, bool), errors=True)
    assert bound == pytest.approx(found.std_error.sum(axis=1))


@double
def test_no_program_is_compiled_for_a_scenario(market):
    book = Book.from_text(BOOK)
    few = [Scenario("a", {"all": 0.1}), Scenario("b", {"all": 0.1}, {"all": 0.01}, {"all": 0.01})]
    many = ScenarioSet().scenarios
    revalue(book, market, black_scholes, few)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    try:
        revalue(book, market, black_scholes, many)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not compiled


@double
def test_a_model_that_cannot_be_fitted_leaves_the_other_scenarios(market):
    def fit(moved):
        if float(moved.equities["S"].surface.vols[0, 0]) > 0.3:
            raise RuntimeError("The search stopped.")
        return black_scholes(moved)

    scenarios = Scenario("wild", vols={"all": 0.2}), Scenario("calm", {"all": 0.1})
    found = revalue(Book.from_text(BOOK), market, fit, scenarios)
    assert found.failures == {"wild": "The search stopped"}
    assert np.isnan(found.pnl[0]).all() and np.isfinite(found.pnl[1, :3]).all()
    assert np.isnan(found.total(np.ones(4, bool))).tolist() == [True, False]


def test_a_set_has_its_grid_ladder_and_named_scenarios(market):
    text = """{"grid": {"spots": [-0.1, 0.2], "vols": [0]}, "rates": [0.01],
     "scenarios": {"crash": {"spots": {"S": -0.3, "all": -0.1}, "vols": 0.1, "swaption_vols": 0}}}"""
    found = ScenarioSet.from_text(text).checked(market)
    assert not found.errors
    assert (found.spots, found.vols, found.rates) == ((-0.1, 0.0, 0.2), (0.0,), (0.0, 0.01))
    (crash,) = found.named
    assert (crash.spot("S"), crash.spot("T"), crash.vol("T"), crash.rate("C")) == (
        -0.3,
        -0.1,
        0.1,
        0.0,
    )
    assert len(found.scenarios) == 3 + 2 + 1 and found.scenarios[-1] is crash


@pytest.mark.parametrize(
    ("moves", "field", "message", "remedy"),
    [
        ('{"spots": {"Q": -0.1}}', "spots.Q", "'Q' is not an equity", "give all or one of S, T"),
        ('{"rates": {"S": 0.1}}', "rates.S", "'S' is not a curve", "give all or one of C"),
        ('{"spots": -1}', "spots.all", "-1 is not a number > -1", "give a move > -1 and <= 3"),
        ('{"spots": 5}', "spots.all", "5 is larger than 3", "give a move > -1 and <= 3"),
        ('{"fx": 5}', "fx.all", "5 is larger than 3", "give a move > -1 and <= 3"),
        ('{"vols": 1}', "vols.all", "1 is larger than 0.9", "1 % is 0.01"),
        ('{"rates": 0.25}', "rates.all", "0.25 is larger than 0.2", "1 % is 0.01"),
        ('{"vols": "up"}', "vols", "'up' is not an object", "give an object in braces"),
        ('{"vols": {"T": -0.3}}', "vols.T", "the smallest vol of T, 0.3, to 0", "above -0.3"),
        ('{"rates": {"C": 20}}', "rates.C", "20 is larger than 0.2", "1 % is 0.01"),
        ('{"swaption_vols": 0.1}', "swaption_vols", "has no swaption vols", "leave the move out"),
        ('{"spot": 1}', "spot", "is not a known field", "did you mean 'spots'?"),
        ("7", "", "7 is not an object", "give an object in braces"),
    ],
)
def test_a_bad_scenario_is_left_out_and_named(market, moves, field, message, remedy):
    text = f'{{"scenarios": {{"good": {{"spots": 0.1}},\n "bad": {moves}}}}}'
    found = ScenarioSet.from_text(text, "moves.json").checked(market)
    assert [scenario.name for scenario in found.named] == ["good"]
    (error,) = found.errors
    assert (error.file, error.line) == ("moves.json", 2)
    assert error.field == f"scenarios.bad.{field}".rstrip(".")
    assert message in error.message and remedy in error.remedy


@pytest.mark.parametrize("name", ["good ", "rates -100 bp", "spots +5 %, vols +0 points"])
def test_a_name_stands_for_one_scenario(name):
    text = f'{{"scenarios": {{"good": {{"spots": 0.1}}, "{name}": {{"spots": 0.2}}}}}}'
    found = ScenarioSet.from_text(text)
    assert [scenario.name for scenario in found.named] == ["good"]
    assert "is the name of another scenario; give it another name" in str(found.errors[0])


def test_a_move_of_a_ladder_that_the_market_cannot_make_is_left_out(market):
    found = ScenarioSet.from_text('{"grid": {"vols": [-0.5, -0.01]}}').checked(market)
    assert found.vols == (-0.01, 0.0)
    assert "field 'grid.vols': -0.5 takes the smallest vol of S" in str(found.errors[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "[] is not a set of scenarios"),
        ('{"grid": {"spots": [0.1, -0.1]}}', "-0.1 comes after 0.1; sort the moves"),
        ('{"rates": "low"}', "'rates': 'low' is not a number"),
        ('{"grids": 1}', "did you mean 'grid'?"),
        ('{"a": 1, "a": 2}', "appears twice"),
        (f'{{"rates": {[0.001 * i for i in range(60)]}}}', "there are 60 moves; give at most 40"),
    ],
)
def test_what_is_no_set_of_scenarios_says_why(text, message):
    with pytest.raises(UnreadableFile, match=r"^moves\.json") as raised:
        ScenarioSet.from_text(text, "moves.json")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (Scenario("x", {"SS": -0.2}), "x: spots.SS: 'SS' is not an equity of the market; did you mean 'S'"),
        (Scenario("x", {"all": -20.0}), "x: spots.all: -20.0 is not a number > -1"),
        (Scenario("x", {"all": 20.0}), "x: spots.all: 20.0 is larger than 3"),
        (Scenario("x", vols={"all": 5.0}), "x: vols.all: 5.0 is larger than 0.9"),
        (Scenario("x", rates={"C": 1.0}), "x: rates.C: 1.0 is larger than 0.2"),
        (Scenario("x", vols={"T": -0.5}), "x: vols.T: -0.5 takes the smallest vol of T, 0.3, to 0"),
        (Scenario("x", swaption_vols=0.1), "x: swaption_vols: the market has no swaption vols"),
    ],
)  # fmt: skip
def test_a_scenario_that_the_market_cannot_make_is_not_valued(market, scenario, said):
    """A misspelt name moved nothing, and its P&L was 0."""
    with pytest.raises(ValueError, match=re.escape(said)):
        revalue(Book.from_text(BOOK), market, black_scholes, [STILL, scenario])


@pytest.mark.parametrize(
    ("kind", "vol", "move"), [("normal", 0.006, 0.2), ("lognormal", 0.2, -0.19)]
)
def test_vols_of_rates_stay_in_their_unit(kind, vol, move):
    document = {
        "asof": "2026-03-10",
        "currency": "EUR",
        "curves": {"EUR": {"zero_rate": 0.02}},
        "equities": {},
        "swaption_vols": {
            "type": kind,
            "expiries_years": [1, 2],
            "tenors_years": [5],
            "vols_by_expiry": [[vol], [vol]],
        },
    }
    market = Market.from_text(json.dumps(document))
    assert not market.errors
    (issue,) = Scenario("x", swaption_vols=move).problems(market)
    assert issue.path == ("swaption_vols",) and "normal vol" in issue.message
    assert not list(Scenario("x", swaption_vols=0.001).problems(market))


def test_a_move_that_leaves_an_fx_pair_without_a_smile_is_named():
    vols = {
        "days": [90, 365],
        "at_the_money": [0.08, 0.09],
        "risk_reversals_25": [-0.02, -0.02],
        "butterflies_25": [0.001, 0.001],
    }
    document = {
        "asof": "2026-03-10",
        "currency": "EUR",
        "curves": {"EUR": {"zero_rate": 0.02}, "USD": {"zero_rate": 0.04}},
        "equities": {},
        "fx": {"EURUSD": {"spot": 1.08, "vols": vols}},
    }
    market = Market.from_text(json.dumps(document))
    assert not market.errors
    (issue,) = Scenario("x", vols={"EURUSD": -0.075}).problems(market)
    assert issue.path == ("vols", "EURUSD") and "EURUSD have no smile" in issue.message
    assert not list(Scenario("x", vols={"EURUSD": -0.02}).problems(market))
