"""Rows of forwards on equities and pairs of currencies."""

import datetime

import numpy as np
import pytest

from pricing import Book, RiskEngine, explain, risk
from pricing.models.surface_models import black_scholes
from tests.helpers import double
from tests.pricing.test_dividend_markets import PAYS
from tests.pricing.test_dividend_markets import market as equity_market
from tests.pricing.test_fx_options import market_of

ON_PAIRS = """id,type,underlying,quantity,option,strike,expiry
f,forward,EURUSD,1000000,,1.1,2026-09-05
paid,forward,EURUSD,1000000,,0,2026-09-05
cross,forward,EURJPY,-500000,,160,2026-09-05
call,european,EURUSD,1000000,call,1.1,2026-09-05
put,european,EURUSD,-1000000,put,1.1,2026-09-05
"""


@pytest.fixture(scope="module")
def on_pairs():
    market = market_of()
    return risk(Book.from_text(ON_PAIRS), market, black_scholes), market


@pytest.mark.costly
@double
def test_a_forward_on_a_pair_exchanges_two_discounted_amounts(on_pairs):
    result, market = on_pairs
    position = {trade.id: trade.position for trade in result.trades}
    found = {name: position.value for name, position in position.items()}
    t = 243 / 365
    euro, dollar, yen = (float(market.curves[name].discount(t)) for name in ("EUR", "USD", "JPY"))
    assert found["f"] == pytest.approx(1e6 * (1.08 * euro - 1.1 * dollar), rel=1e-10)
    assert found["paid"] == pytest.approx(1e6 * 1.08 * euro, rel=1e-12)
    assert found["cross"] == pytest.approx(-5e5 * (162.0 * euro - 160.0 * yen), rel=1e-10)
    assert position["f"].delta == pytest.approx({"EURUSD": 1e6 * euro}, rel=1e-12)
    assert position["f"].gamma == {("EURUSD", "EURUSD"): 0.0} and position["f"].vega == 0.0
    assert found["call"] + found["put"] == pytest.approx(found["f"], abs=1e-6)


@pytest.mark.costly
@double
def test_a_forward_on_an_equity_loses_the_dividends_before_its_expiry():
    market = equity_market(PAYS)
    lines = "id,type,underlying,strike,expiry,quantity\nf,forward,S,95,2003-04-01,10\n"
    book = Book.from_text(lines)
    result = risk(book, market, black_scholes)
    curve = market.curves["EUR"]
    time = lambda *day: (datetime.date(*day) - market.asof).days / 365
    end = time(2003, 4, 1)
    grown = np.exp(-0.01 * end)  # of the part that pays a yield
    owed = sum(
        cash * float(curve.discount(t)) * np.exp(-0.01 * (end - t))
        for t, cash in ((time(2002, 10, 3), 2.0), (time(2003, 3, 3), 1.5))
    )
    wanted = 10.0 * (100.0 * grown - owed - 95.0 * float(curve.discount(end)))
    assert result.trades[0].position.value == pytest.approx(wanted, rel=1e-9)
    engine = RiskEngine(black_scholes, greeks=False)
    for quote, value in market.flat_quotes():
        up, down = (engine(book, market.with_quotes({quote: value + h})) for h in (1e-4, -1e-4))
        slope = (up.value - down.value) / 2e-4
        np.testing.assert_allclose(result.sensitivities[quote], slope, rtol=1e-5, atol=1e-5)


@double
def test_a_forward_that_ends_pays_the_spot_less_the_strike():
    before, after = equity_market(), equity_market(asof="2002-07-08", spot=103.0)
    book = Book.from_text(
        "id,type,underlying,strike,expiry,quantity\nf,forward,S,95,2002-07-08,10\n"
    )
    found = explain(book, before, after, black_scholes)
    assert found.cash == pytest.approx(80.0) and found.residual == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("cell", ["-1", ""])
def test_a_forward_needs_a_strike_of_at_least_zero(cell):
    book = Book.from_text(f"id,type,underlying,strike,expiry\nf,forward,S,{cell},2027-01-01\n")
    assert not book.trades
    assert "column 'strike'" in str(book.errors[0]) and "strike >= 0" in str(book.errors[0])
