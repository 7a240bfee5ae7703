"""Equities in another currency: quanto and compo, beside QuantLib, by bumps, by fixings, or refused by name."""

import json
import math
from datetime import date

import numpy as np
import pytest
import QuantLib as ql

from pricing import Book, European, Fixings, Market, Scenario, explain, price, revalue, risk
from pricing.market import Observed
from pricing.market.conversions import conversion_of
from pricing.models.surface_models import black_scholes, of_surface
from tests.helpers import double

ASOF = date(2026, 1, 5)
YEAR = "2027-01-05"
QUANTO, COMPO = "S quanto USD", "S compo USD"
SURFACE = {
    "expiries": ["2026-07-05", YEAR],
    "strikes": [80, 100, 120],
    "vols_by_expiry": [[0.25, 0.22, 0.2], [0.24, 0.21, 0.2]],
}
FLAT = {"expiries": [YEAR], "strikes": [100], "vols_by_expiry": [[0.2]]}
OF_PAIR = {
    "expiries": ["2026-07-05", YEAR],
    "at_the_money": [0.08, 0.09],
    "risk_reversals_25": [-0.01, -0.012],
    "butterflies_25": [0.003, 0.004],
}
FLAT_PAIR = {
    "expiries": [YEAR],
    "at_the_money": [0.1],
    "risk_reversals_25": [0.0],
    "butterflies_25": [0.0],
}


def market(surface=SURFACE, vols=OF_PAIR, pair="EURUSD", spot=1.08, rho=-0.3, **changes) -> Market:
    curve = lambda *rates: {"dates": ["2026-07-05", "2029-01-05"], "zero_rates": rates}
    equity = {"curve": "EUR", "currency": "EUR", "spot": 100.0, "dividend_yield": 0.01}
    document = {
        "asof": str(ASOF),
        "currency": "EUR",
        "curves": {"EUR": curve(0.02, 0.03), "USD": curve(0.04, 0.045)},
        "equities": {"S": equity | {"implied_vols": surface}},
        "fx": {pair: {"spot": spot, "vols": vols}},
        "correlations": {f"S|{pair}": rho},
    }
    found = Market.from_text(json.dumps(document | changes))
    assert not found.errors
    return found


def book(*rows: str) -> Book:
    head = "id,type,underlying,quantity,option,strike,expiry,exercise_dates"
    return Book.from_text("\n".join([head, *rows]))


TWO = book(f"Q,european,{QUANTO},2,call,105,{YEAR},", f"C,european,{COMPO},1,put,114,{YEAR},")


def test_names_are_an_equity_a_kind_and_a_currency():
    assert tuple(conversion_of("EURO STOXX quanto USD")) == ("EURO STOXX", "quanto", "USD")
    assert [conversion_of(name) for name in ("S", "quanto USD", "S dual USD", "EURUSD")] == [
        None
    ] * 4


@double
@pytest.mark.parametrize("strike", [90.0, 105.0])
def test_values_are_those_of_quantlib(strike):
    """Of flat vols, where the strike at which they are read does not count."""
    found = market(FLAT, FLAT_PAIR)
    option = European(strike, 1.0)
    own, paid = (float(found.curves[name].discount(1.0)) for name in ("EUR", "USD"))
    today = ql.Date(5, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    days = ql.Actual365Fixed()
    flat = lambda df: ql.YieldTermStructureHandle(ql.FlatForward(today, -math.log(df), days))
    vol = lambda v: ql.BlackVolTermStructureHandle(
        ql.BlackConstantVol(today, ql.NullCalendar(), v, days)
    )
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    process = ql.BlackScholesMertonProcess(spot, flat(math.exp(-0.01)), flat(paid), vol(0.2))
    payoff = ql.PlainVanillaPayoff(ql.Option.Call, strike)
    quanto = ql.QuantoVanillaOption(payoff, ql.EuropeanExercise(today + 365))
    rho = ql.QuoteHandle(ql.SimpleQuote(-0.3))
    quanto.setPricingEngine(ql.QuantoEuropeanEngine(process, flat(own), vol(0.1), rho))
    of_quanto = price(option, of_surface(found, QUANTO)).value
    np.testing.assert_allclose(of_quanto, quanto.NPV(), rtol=1e-10)
    std = math.sqrt(0.2**2 - 2.0 * 0.3 * 0.2 * 0.1 + 0.1**2)
    forward = 108.0 * math.exp(-0.01) / paid
    wanted = ql.blackFormula(ql.Option.Call, strike, forward, std, paid)
    of_compo = price(option, of_surface(found, COMPO)).value
    np.testing.assert_allclose(of_compo, wanted, rtol=1e-10)


@double
@pytest.mark.parametrize("name", [QUANTO, COMPO])
def test_a_pair_may_be_quoted_in_either_direction(name):
    """With the other sign of its correlation; vols at the money forward are the same."""
    one = market(vols=FLAT_PAIR)
    other = market(vols=FLAT_PAIR, pair="USDEUR", spot=1.0 / 1.08, rho=0.3)
    values = [price(European(104.0, 0.8), of_surface(m, name)).value for m in (one, other)]
    np.testing.assert_allclose(*values, rtol=1e-10)
    assert one.curve_of(name) == other.curve_of(name) == "USD"


@pytest.mark.costly
@double
def test_the_risk_to_every_quote_is_that_of_a_bump():
    found, base = risk(TWO, market(), black_scholes), market()
    slopes = found.by_currency["USD"].sensitivities
    assert abs(slopes["CORRELATION/S/EURUSD"]) > 1.0
    assert abs(slopes["FX_OPTION/RATE_LNVOL/EUR/USD/2027-01-05/ATM"]) > 1.0
    value = lambda m: risk(TWO, m, black_scholes, greeks=False).by_currency["USD"].value
    for quote, level in base.flat_quotes():
        step = 1e-4 * max(abs(level), 0.1)
        up, down = (value(base.with_quotes({quote: level + h})) for h in (step, -step))
        bump = (up - down) / (2.0 * step)
        assert slopes.get(quote, 0.0) == pytest.approx(bump, rel=1e-5, abs=1e-6), quote


@pytest.mark.costly
@double
def test_a_right_that_nobody_uses_early_is_the_european():
    """A quanto's drift is in the yield, so that other contracts and methods have it, too."""
    rows = (
        f"A,european,{QUANTO},1,put,105,{YEAR},",
        f"B,bermudan,{QUANTO},1,put,105,,2026-01-06|{YEAR}",
    )
    european, bermudan = risk(book(*rows), market(), black_scholes, greeks=False).trades
    values = [trade.figures.value for trade in (bermudan, european)]  # pyright: ignore
    np.testing.assert_allclose(*values, rtol=1e-10)


@pytest.mark.costly
@double
def test_explain_leaves_next_to_nothing():
    moves = {"EQUITY/PRICE/S": 101.5, "FX/RATE/EUR/USD": 1.07, "CORRELATION/S/EURUSD": -0.25}
    later = market(asof="2026-01-06").with_quotes(moves)
    found = explain(TWO, market(), later, black_scholes)
    assert abs(found.change) > 0.3
    assert abs(found.residual) < 0.01 * abs(found.change)
    assert abs(found.correlation) > 0.05


def test_payments_read_the_fixings_of_the_equity_and_of_the_pair():
    past = "name,date,value\nS,2026-01-02,110\nEURUSD,2026-01-02,1.2\n"
    observed = Observed(ASOF, market().with_fixings(Fixings.from_text(past)))
    day = date(2026, 1, 2)
    assert observed.spot(QUANTO, day) == 110.0
    assert observed.spot(COMPO, day) == pytest.approx(132.0)
    assert observed.spot(COMPO, ASOF) == pytest.approx(108.0)
    assert observed.days(COMPO) == (day, ASOF)


@double
def test_scenarios_move_the_equity_and_a_compo_with_the_rate():
    moves = Scenario("both", spots={"S": -0.1}, fx={"EURUSD": 0.05})
    found = market()
    assert moves.spot_move(found, QUANTO) == pytest.approx(-0.1)
    assert moves.spot_move(found, COMPO) == pytest.approx(0.9 * 1.05 - 1.0)
    (change,) = revalue(TWO, found, black_scholes, [moves]).pnl
    options = European(105.0, 1.0), European(114.0, 1.0, "put")
    for place, name in enumerate((QUANTO, COMPO)):
        model, option = of_surface(found, name), options[place]
        moved = model.shifted(underlying=(-0.1, -0.055)[place] * model.spot)
        wanted = (2, 1)[place] * (price(option, moved).value - price(option, model).value)
        np.testing.assert_allclose(change[place], wanted, rtol=1e-9)


REFUSED = {
    "has no vols of a pair of EUR and GBP": ("S quanto GBP", {}),
    "S is in EUR already": ("S compo EUR", {}),
    "no correlation of S and EURUSD": (QUANTO, {"correlations": {}}),
    "is not an underlying of the market": ("T quanto USD", {}),
    "dividends on known dates": (QUANTO, {"dividends": {"dates": ["2026-03-02"], "cash": [1.0]}}),
    "another currency than its equity": ("S|S quanto USD", {}),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_valued_is_refused_by_name(reason):
    name, changes = REFUSED[reason]
    found = market(**{k: v for k, v in changes.items() if k != "dividends"})
    if "dividends" in changes:
        document = {"curve": "EUR", "currency": "EUR", "spot": 100.0, "dividend_yield": 0.01}
        found = market(equities={"S": document | {"implied_vols": SURFACE} | changes})
    kind = "basket" if "|" in name else "european"
    head = "id,type,underlying,option,strike,expiry,average"
    row = f"Q,{kind},{name},call,105,{YEAR},{'max' if kind == 'basket' else ''}"
    (error,) = Book.from_text(f"{head}\n{row}").checked(found).errors
    assert reason in str(error)


def test_a_row_that_expects_another_currency_is_refused():
    rows = [
        f"{name},european,{underlying},call,100,{YEAR},{currency}"
        for name, underlying, currency in (
            ("a", "S", "USD"),
            ("b", "S", "eur"),
            ("c", "S quanto USD", "USD"),
            ("d", "S quanto USD", "EUR"),
            ("e", "S", ""),
        )
    ]
    head = "id,type,underlying,option,strike,expiry,currency"
    trades, errors = Book.from_text("\n".join([head, *rows])).check(market())
    assert [trade.id for trade in trades] == ["b", "c", "e"]
    assert [error.field for error in errors] == ["currency", "currency"]
    assert "a trade on S is valued in EUR, not in USD" in errors[0].message
