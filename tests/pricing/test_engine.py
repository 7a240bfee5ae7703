"""An engine has the figures of a fresh run, to the bit, and values only the tiles that something changed."""

import dataclasses
import functools
from datetime import date

import chex
import pytest

from pricing import Book, Market, RiskEngine, risk
from pricing.models.surface_models import black_scholes
from pricing.portfolio.sweep import fitted_models
from tests.helpers import SAMPLES, double

pytestmark = double

HEAD = "id,type,underlying,option,strike,expiry,payout,amount"
ROWS = """
D1,european,DAX,call,4400,2003-03-18,,
D2,european,DAX,put,4200,2002-12-17,,
C1,digital,DAX,call,4400,2003-03-18,cash,100
S1,european,SX5E,call,3100,2003-03-18,,
S2,european,SX5E,put,3000,2002-12-17,,
S3,european,SX5E,put,3200,2002-12-17,,
S4,european,SX5E,call,3200,2002-12-17,,
""".strip()
BUDGET = 2 * 2 * 2**14  # two closed-form trades a tile
NEW = "S5,european,SX5E,call,3000,2002-12-17,,"


@functools.cache
def market() -> Market:
    return Market.read(SAMPLES / "dax_2002-07-05.json")


def book(*more: str) -> Book:
    return Book.from_text("\n".join((HEAD, ROWS, *more)))


@pytest.fixture
def engine(monkeypatch):
    """An engine, and the tiles that it has swept since they were last cleared."""
    swept, sweep = [], fitted_models.FittedModels.sweep

    def counted(self, group, tile, *, key):
        swept.append(group.model_names)
        return sweep(self, group, tile, key=key)

    monkeypatch.setattr(fitted_models.FittedModels, "sweep", counted)
    return RiskEngine(black_scholes, budget=BUDGET), swept


def same(engine, book, quotes) -> None:
    """The figures of the engine are those of a fresh run, to the bit."""
    found, fresh = engine(book, quotes), risk(book, quotes, black_scholes, budget=BUDGET)
    for one, other in zip(found.trades, fresh.trades, strict=True):
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert not found.failed
    assert (found.value, found.sensitivities) == (fresh.value, fresh.sensitivities)


@pytest.mark.costly
def test_what_has_not_changed_is_not_valued_again(engine):
    engine, swept = engine
    engine(book(), market())
    assert len(swept) == 4  # D1 D2, C1, S1 S2, S3 S4
    swept.clear()
    found = engine(book(), market())
    assert not swept
    assert found.sensitivities == risk(book(), market(), black_scholes, budget=BUDGET).sensitivities


def test_a_quote_moves_the_tiles_on_its_underlying_alone(engine):
    engine, swept = engine
    engine(book(), market())
    swept.clear()
    moved = market().with_quotes({"EQUITY/PRICE/DAX": 4500.0})
    engine(book(), moved)
    assert swept == 2 * [("DAX",)]
    same(engine, book(), moved)
    same(engine, book(), market())


def test_a_new_trade_and_a_dropped_one_value_their_own_tiles(engine):
    engine, swept = engine
    engine(book(), market())
    swept.clear()
    more = book() + Book.from_text(f"{HEAD}\n{NEW}")
    engine(more, market())
    assert swept == [("SX5E",)]
    same(engine, more, market())
    swept.clear()
    engine(more.without("S4"), market())
    assert set(swept) == {("SX5E",)}
    same(engine, more.without("S4"), market())


def test_a_kind_that_outgrows_one_tile_is_valued_again(engine):
    """One tile has a program compiled without optimizations, whose figures differ in their last bits."""
    engine, swept = engine
    engine(book().without("C1"), market())
    swept.clear()
    engine(book(), market())
    assert swept == 2 * [("DAX",)]
    same(engine, book(), market())


def test_parts_have_gradients_of_their_own_and_move_no_figure(engine):
    engine, _ = engine
    parts = dict.fromkeys(("D2", "C1", "S2", "S3", "S4"), "other")
    found, whole = engine(book(), market(), parts=parts), engine(book(), market())
    assert found.trades == whole.trades and found.value == whole.value
    (total,), (plain,) = (each.by_currency.values() for each in (found, whole))
    assert list(total.parts) == ["", "other"] and list(plain.parts) == [""]
    close = functools.partial(chex.assert_trees_all_close, rtol=1e-12, atol=1e-9)
    close(total.gradient, plain.gradient)
    for part, others in (("", parts), ("other", ("D1", "S1"))):
        close(total.parts[part], engine(book().without(*others), market()).gradient)


def test_settings_are_those_of_risk(engine):
    del engine
    values = RiskEngine(black_scholes, greeks=False)(book(), market())
    assert values.gradient is None
    assert values.sensitivities == {}


def test_rows_have_one_id_in_a_book():
    with pytest.raises(
        ValueError, match=r"S1, S2.*: in both books; give every trade an id of its own"
    ):
        _ = book() + book()
    with pytest.raises(ValueError, match=r"X9: there is no such id in trades.csv"):
        book().without("X9")
    bad = Book.from_text(f"{HEAD}\n{ROWS}\nX1,european,DAX,call,-1,2003-03-18,,")
    assert bad.without("X1").errors == ()
    assert [row.id for row in book().without("D1", "S4").rows] == ["D2", "C1", "S1", "S2", "S3"]


def test_trades_are_a_sequence_in_the_order_of_the_book(engine):
    engine, _ = engine
    trades, ids = engine(book(NEW), market()).trades, [row.id for row in book(NEW).rows]
    assert [trade.id for trade in trades] == ids and len(trades) == len(ids)
    assert trades[-1].id == "S5" and trades[1:3] == (trades[1], trades[2])
    assert (
        trades == engine(book(NEW), market()).trades and trades != engine(book(), market()).trades
    )
    with pytest.raises(IndexError):
        trades[len(ids)]


def test_another_date_or_correlation_serves_the_book_anew(engine):
    engine, _ = engine
    past = "P1,european,DAX,call,4400,2002-07-05,,"
    mine = book(past)
    ended = lambda found: [trade.id for trade in found.trades if trade.status == "expired"]
    assert ended(engine(mine, market())) == ["P1"]
    earlier = dataclasses.replace(market(), asof=date(2002, 7, 4))
    assert ended(engine(mine, earlier)) == []
    assert ended(engine(mine, market())) == ["P1"]
