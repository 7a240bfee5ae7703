"""The change of a book's value from one market to the next, explained."""

from datetime import timedelta

import jax
import numpy as np
import pytest

from pricing import Book, Market
from pricing.explain import explain
from pricing.models.surface_models import black_scholes
from tests.helpers import double

HEADER = "id,type,underlying,quantity,option,strike,expiry,payout\n"
BOOK = HEADER + (
    "a,european,S,10,call,100,2026-12-01,\n"
    "b,european,S,-5,put,90,2027-06-01,\n"
    "c,digital,S,3,call,105,2027-06-01,asset\n"
)
MARKET = """{"asof": "2026-01-05", "curves": {"C": {"dates": ["2026-06-01", "2028-01-01"],
 "zero_rates": [0.02, 0.03]}}, "equities": {"S": {"curve": "C", "spot": 100.0, "dividend_yield": 0.01,
 "implied_vols": {"expiries": ["2026-06-01", "2028-01-01"], "strikes": [80, 120],
 "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]]}}}}"""


def _market(days: int = 0, **quotes: float) -> Market:
    text = MARKET.replace("2026-01-05", str(_asof() + timedelta(days)))
    return Market.from_text(text).with_quotes(quotes)


def _asof():
    return Market.from_text(MARKET).asof


SPOT, DIVIDEND = "EQUITY/PRICE/S", "EQUITY_DIVIDEND/RATE/S"
ZERO = "ZERO/RATE/C/2026-06-01", "ZERO/RATE/C/2028-01-01"


def _explained(after: Market, book: str = BOOK):
    return explain(Book.from_text(book), _market(), after, black_scholes)


@double
def test_the_parts_are_those_of_a_taylor_expansion():
    """A move of the spot alone leaves the third order: halve the move, and an eighth of it is left."""
    residuals = []
    for move in (1.0, 0.5):
        found = _explained(_market(**{SPOT: 100.0 + move}))
        assert found.theta == found.vega == found.rho == found.dividends == 0.0
        assert found.gamma != 0.0 and list(found.by_quote) == [SPOT]
        residuals.append(abs(found.residual))
        assert abs(found.residual) < 0.02 * abs(found.gamma)
    assert 6.0 < residuals[0] / residuals[1] < 10.0


@double
@pytest.mark.parametrize(
    ("part", "quotes"),
    [("rho", {ZERO[0]: 0.021, ZERO[1]: 0.0295}), ("dividends", {DIVIDEND: 0.0105})],
)
def test_first_order_parts_leave_the_second_order(part, quotes):
    base = dict(_market().flat_quotes())
    half = {quote: 0.5 * (base[quote] + new) for quote, new in quotes.items()}
    whole, halved = (_explained(_market(**moved)) for moved in (quotes, half))
    assert getattr(whole, part) == pytest.approx(2.0 * getattr(halved, part), rel=1e-12)
    assert abs(whole.residual) < 0.05 * abs(whole.change)
    assert 3.5 < whole.residual / halved.residual < 4.5


@double
def test_a_day_is_theta_and_nearer_pillars():
    """Quotes stand at their dates while the day passes; the residual is of the second order in time."""
    one, two = (_explained(_market(days)) for days in (1, 2))
    assert one.delta == one.gamma == one.vega == 0.0
    assert abs(one.residual) < 0.01 * abs(one.theta)
    assert 3.3 < two.residual / one.residual < 4.7


@double
def test_all_moves_at_once_leave_little():
    vols = {q: v + 0.002 for q, v in _market().flat_quotes() if "LNVOL" in q}
    found = _explained(_market(1, **vols, **{SPOT: 100.5, ZERO[0]: 0.0205}))
    parts = (found.theta, found.delta, found.gamma, found.vega, found.rho)
    assert found.explained == pytest.approx(sum(parts), rel=1e-12)
    assert abs(found.residual) < 0.02 * sum(map(abs, parts))
    assert sum(found.by_quote.values()) == pytest.approx(found.delta + found.vega + found.rho)


@double
def test_a_trade_that_fails_is_named_and_in_no_number():
    expired = BOOK + "d,european,S,1,call,100,2026-01-06,\n"
    found = _explained(_market(2, **{SPOT: 101.0}), expired)
    without = _explained(_market(2, **{SPOT: 101.0}))
    assert found.skipped == ("d",) and found.trades == 3
    assert found.change == pytest.approx(without.change) and found.gamma == without.gamma


@double
def test_of_two_rows_with_one_id_the_good_one_is_explained():
    first = BOOK.splitlines()[1]
    found = _explained(_market(1, **{SPOT: 101.0}), f"{BOOK}{first}\n")
    alone = _explained(_market(1, **{SPOT: 101.0}))
    assert found.trades == 3 and found.skipped_rows == (3,)
    assert found.change == alone.change and found.before == alone.before


def test_markets_of_other_pillars_are_refused():
    other = Market.from_text(MARKET.replace("[80, 120]", "[80, 121]"))
    with pytest.raises(
        ValueError, match=r"in one market only, among them .*give markets of the same"
    ):
        _explained(other)


def test_no_move_changes_nothing():
    found = _explained(_market())
    assert found.change == found.explained == 0.0 and not found.by_quote
    assert np.isfinite(jax.tree.leaves(found.by_quote)).all()
