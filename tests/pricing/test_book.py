"""The book: what is read from CSV and JSON, and what the market can serve."""

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import pricing.samples
from benchmarks import sample_book
from pricing import Book, risk
from pricing.market import Market
from pricing.models.surface_models import black_scholes
from pricing.portfolio.batching import currency_of
from pricing.products.barrier import BarrierTrade
from pricing.products.digital import DigitalTrade
from pricing.products.european import EuropeanTrade
from pricing.products.trade import TRADE_TYPES

SAMPLES = Path(next(iter(pricing.samples.__path__)))
HEADER = (
    "id,type,underlying,quantity,option,strike,expiry,barrier,barrier_type,rebate,payout,amount"
)
GOOD = "E1,european,DAX,2,call,4400,2003-03-18,,,,,"


@pytest.fixture(scope="module")
def market():
    return Market.read(SAMPLES / "dax_2002-07-05.json")


def test_the_committed_book_is_what_its_script_writes():
    assert (SAMPLES / "dax_book.csv").read_text(encoding="utf-8") == sample_book.text()


def test_the_sample_book_holds_every_kind_of_trade(market):
    book = Book.read(SAMPLES / "dax_book.csv")
    trades = book.trades
    assert book.checked(market).errors == ()
    assert [trade.id for trade in trades] == [row.id for row in book.rows]
    plain = sum(sample_book.OPTIONS.values())
    assert (plain, len(trades)) == (2000, 2112)
    assert Counter(trade.type for trade in trades[:plain]) == sample_book.OPTIONS
    of_today = trades[: plain + sum(sample_book.OTHERS.values())]
    assert Counter(trade.type for trade in of_today[plain:]) == sample_book.OTHERS
    assert {trade.type for trade in trades} == set(TRADE_TYPES) - sample_book.NONE_HERE
    barriers = [trade for trade in of_today if isinstance(trade, BarrierTrade)]
    assert len({(trade.barrier_type, trade.option) for trade in barriers}) == 8
    assert all(abs(trade.barrier / 4468.17 - 1) > 0.03 for trade in barriers)
    assert min(trade.expiry for trade in barriers) >= date(2002, 8, 4)
    digitals = [trade for trade in trades if isinstance(trade, DigitalTrade)]
    assert len({(trade.payout, trade.option) for trade in digitals}) == 4
    listed = sum(trade.expiry in sample_book.LISTED for trade in trades[:plain])
    assert listed == plain // 2
    assert {trade.quantity > 0 for trade in trades} == {True, False}


def test_the_sample_book_is_of_several_currencies_and_of_other_days(market):
    served = Book.read(SAMPLES / "dax_book.csv").checked(market)
    assert {currency_of(trade, market) for trade in served.trades} == {"EUR", "GBP", "USD"}
    found = {row.id: row.history for row in served.rows if row.history}
    assert {name: history.event for name, history in found.items()} == {
        "PA007": "called",
        "PA008": "knocked out",
        "PA009": "knocked in",
        "PA010": "expired",
        "PA011": "expired",
        "RA003": "exercised",
        "DV016": "knocked in",  # by the fall on an ex-date
    }
    cash = {name: history.cash for name, history in found.items()}
    # 5 notes of 1,000 with the coupon 2 %; 9 rebates of 50; 11 puts of 4,500 on 4,330
    assert (cash["PA007"], cash["PA008"], cash["PA010"]) == (5100.0, 450.0, 1870.0)
    trades = {trade.id: trade for trade in served.trades}
    # 4,790 and 4,370 are two of the eight levels of the average
    average: Any = trades["PA001"]
    assert len(average.averaging_dates) == 6
    assert average.strike == pytest.approx(4500.0 - (4790.0 + 4370.0) / 8.0)
    assert isinstance(trades["PA009"], EuropeanTrade)


def test_cells_become_values_with_defaults():
    lines = [
        HEADER,
        " E1 , European , DAX , -2.5 , CALL , 4.4e3 , 2003-03-18 ,,,,,",
        "",
        "D1,digital,DAX,,put,4400,2003-03-18,,,,,",
        "D2,digital,DAX,0,put,4400,2003-03-18,,,,Asset,2",
        ",,,,,,,,,,,",
        'B1,BARRIER,DAX,1,call,4400,2003-03-18,"4000",Down and out,,,',
    ]
    book = Book.from_text("\r\n".join(lines))
    assert book.errors == ()
    expiry = date(2003, 3, 18)
    common = {"underlying": "DAX", "expiry": expiry, "strike": 4400.0}
    assert book.trades == (
        EuropeanTrade(id="E1", line=2, quantity=-2.5, option="call", **common),
        DigitalTrade(id="D1", line=4, option="put", payout="cash", amount=1.0, **common),
        DigitalTrade(
            id="D2", line=5, quantity=0.0, option="put", payout="asset", amount=2.0, **common
        ),
        BarrierTrade(
            id="B1",
            line=7,
            option="call",
            barrier=4000.0,
            rebate=0.0,
            quantity=1.0,
            barrier_type="down-and-out",
            **common,
        ),
    )


def test_neutral_values_and_columns_of_others_do_no_harm():
    text = (
        f"{HEADER},averaging_dates,notional,desk\nE1,european,DAX,1,put,1,2003-01-01,,,0,cash,1,,,A"
    )
    book = Book.from_text(text)
    assert book.errors == ()
    assert len(book.trades) == 1


def test_a_trade_names_its_type():
    book = Book.from_text(f"{HEADER}\n{GOOD}")
    assert [trade.type for trade in book.trades] == [row.type for row in book.rows] == ["european"]


def test_json_gives_the_same_trades_as_csv(tmp_path):
    rows = [
        {"id": 7, "type": "european", "underlying": "DAX", "option": "call", "strike": 4400},
        {"id": "D1", "type": "digital", "underlying": "DAX", "option": "put", "strike": 4400.5},
    ]
    rows = [row | {"expiry": "2003-03-18", "rebate": None, "quantity": -1} for row in rows]
    path = tmp_path / "trades.json"
    path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
    header = ",".join(rows[0])
    cells = [",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
    by_csv = Book.from_text("\n".join([header, *cells]))
    by_json = Book.read(path)
    assert by_json.errors == by_csv.errors == ()
    plain = [[trade.model_dump(exclude={"line"}) for trade in b.trades] for b in (by_json, by_csv)]
    assert plain[0] == plain[1]
    assert [trade.line for trade in by_json.trades] == [2, 12]


def test_what_is_wrong_with_a_row_goes_with_that_row_alone():
    """Of two books added, and of a JSON text in one line, rows of other ids stand in the same line."""
    good, bad = (Book.from_text(f"{HEADER}\n{row}", "a.csv") for row in (GOOD, f"E2{GOOD[2:]},9"))
    assert bad.errors and (good + bad).without("E1").errors == bad.errors
    assert (good + bad).without("E2").errors == ()
    fields = '"type": "european", "underlying": "DAX", "option": "call", "expiry": "2003-03-18"'
    rows = (f'{{"id": "E{k}", "strike": {strike}, {fields}}}' for k, strike in ((1, 4400), (2, -1)))
    book = Book.from_text(f"[{', '.join(rows)}]", "trades.json")
    assert len(book.errors) == 1
    assert (book.without("E1").errors, book.without("E2").errors) == (book.errors, ())


def test_rows_of_two_books_keep_their_files(market):
    unknown = GOOD.replace("DAX", "DXA")
    books = (
        Book.from_text(f"{HEADER}\n{unknown.replace('E1', name)}", f"{name}.csv") for name in "ab"
    )
    both = sum(books, Book.from_text(HEADER))
    assert [error.file for error in both.check(market)[1]] == ["a.csv", "b.csv"]


def test_what_a_header_lacks_stands_while_a_row_needs_it():
    lines = ["id,type,underlying,option,strike,expiry"]
    lines += [f"B{k},barrier,DAX,call,4400,2003-03-18" for k in (1, 2)]
    book = Book.from_text("\n".join(lines))
    assert book.without("B1").errors == book.errors != ()
    assert book.without("B1", "B2").errors == ()


def test_an_id_of_many_digits_is_told_from_its_like(market):
    ids = [f"{'1' * 399}{digit}" for digit in (2, 3, 3)]
    cells = '"type": "european", "underlying": "DAX", "option": "call", "strike": 4400'
    rows = (f'{{"id": {name}, {cells}, "expiry": "2003-03-18"}}' for name in ids)
    book = Book.from_text(f"[{','.join(rows)}]", "trades.json")
    assert [row.id for row in book.rows] == ids
    assert [trade.id for trade in book.trades] == ids[:2]
    found = risk(book, market, black_scholes, greeks=False)
    assert [trade.status for trade in found.trades[:2]] == ["ok", "ok"]
    assert "is also the id of line 1" in found.trades[2].status


def test_bad_rows_keep_their_place():
    lines = [HEADER, GOOD, GOOD.replace("E1", "E2").replace("4400", "-1"), GOOD.replace("E1", "E3")]
    book = Book.from_text("\n".join(lines))
    assert [trade.id for trade in book.trades] == ["E1", "E3"]
    assert [(row.id, row.type, row.trade is None) for row in book.rows] == [
        ("E1", "european", False),
        ("E2", "european", True),
        ("E3", "european", False),
    ]
    assert book.rows[1].errors == book.errors


def test_the_readme_message():
    bad = GOOD.replace("4400", "-1")
    (error,) = Book.from_text("\n" * 15 + f"{HEADER}\n{bad}").errors
    assert str(error) == (
        "trades.csv:17: column 'strike': -1 is not a positive number; give a strike > 0"
    )


def test_a_missing_column_is_reported_once_for_each_kind_that_needs_it():
    header = "id,type,underlying,option,strike,expiry"
    rest = "DAX,call,4400,2003-03-18"
    lines = [header, f"E1,european,{rest}", f"B1,barrier,{rest}", f"B2,barrier,{rest}"]
    book = Book.from_text("\n".join(lines))
    assert [(error.line, error.field) for error in book.errors] == [
        (1, "barrier"),
        (1, "barrier_type"),
    ]
    assert [trade.id for trade in book.trades] == ["E1"]
    assert [row.errors for row in book.rows] == [(), book.errors, book.errors]


def test_an_unclosed_quote_spoils_one_row():
    lines = [HEADER, '"' + GOOD, GOOD.replace("E1", "E2")]
    book = Book.from_text("\n".join(lines))
    assert [trade.id for trade in book.trades] == ["E2"]
    assert [error.line for error in book.errors] == [2]


def test_what_the_market_cannot_serve_is_set_aside(market):
    lines = [
        HEADER,
        GOOD,
        GOOD.replace("E1", "E2").replace("DAX", "DXA"),
        GOOD.replace("E1", "E3").replace("2003-03-18", "2002-07-05"),
        GOOD.replace("E1", "E4").replace("DAX", "DXA").replace("2003-03-18", "2002-07-04"),
    ]
    book = Book.from_text("\n".join(lines))
    trades, errors = book.check(market)
    assert book.errors == ()
    assert [trade.id for trade in trades] == ["E1"]
    assert [(error.line, error.column, error.field) for error in errors] == [(3, 3, "underlying")]
    assert "did you mean 'DAX'" in errors[0].remedy
    checked = book.checked(market)
    assert [row.id for row in checked.rows] == ["E1", "E2", "E3", "E4"]
    assert [row.errors for row in checked.rows] == [(), errors, (), ()]
    assert [row.is_over for row in checked.rows] == [False, False, True, True]


@pytest.mark.parametrize(
    ("strike", "said"),
    [
        ("4.500", "4.500 may be 4.5 or 4,500; write 4.5000, or 4500"),
        ("4.5", "4.5 is far from the spot 4468.17 of DAX; give strike as a price"),
        ("0.95", "0.95 is far from the spot 4468.17 of DAX"),
        ("4500000", "4.5e+06 is far from the spot"),
        ("4500.125", None),
        ("0.500", "0.5 is far from the spot"),
        ("0.0001", None),  # a call that is a forward
    ],
)
def test_a_strike_that_may_be_another_number_is_refused(market, strike, said):
    book = Book.from_text(f"{HEADER}\nE1,european,DAX,2,call,{strike},2003-03-18,,,,,")
    errors = book.checked(market).errors
    if said is None:
        assert not errors
    else:
        (error,) = errors
        assert said in str(error) and str(error).startswith("trades.csv:2: column 'strike'")


def test_a_barrier_in_moneyness_is_refused_and_one_far_above_is_not(market):
    """One far above is a barrier that is never reached."""
    rows = ["0.8,down-and-out,,,", "1000000,up-and-out,,,"]
    lines = [f"E{n},barrier,DAX,1,call,4400,2003-03-18,{row}" for n, row in enumerate(rows)]
    book = Book.from_text("\n".join([HEADER, *lines])).checked(market)
    (error,) = book.errors
    assert "column 'barrier': 0.8 is far from the spot 4468.17" in str(error)
    assert len(book.trades) == 1


NOTE = {"type": "autocallable", "exercise_dates": "2002-12-17|2003-03-18", "coupons": "0|0.05"}
NOTE |= {"barrier": 4400, "protection": 3000, "initial_spot": 4400}
WORST = NOTE | {"underlying": "DAX|SX5E", "other_initial_spots": "3000"}
BASKET = {"type": "basket", "underlying": "DAX|SX5E", "option": "call", "expiry": "2003-03-18"}
LOOKBACK = {"type": "lookback", "option": "call", "expiry": "2003-03-18", "strike": 4400}


@pytest.mark.parametrize(
    ("row", "far"),
    [
        (NOTE, {"initial_spot": 1.0}),
        (NOTE, {"protection": 0.6}),
        (NOTE, {"knock_in": 0.7}),
        (NOTE, {"coupon_barrier": 0.8}),
        (WORST, {"other_initial_spots": "1.0"}),
        (WORST, {"protection": 0.6}),
        (BASKET, {"strike": 1.05}),
        (LOOKBACK, {"extreme": 1.1}),
    ],
)
def test_every_level_of_another_unit_than_the_spot_is_refused(market, row, far):
    """A level is accepted from a hundredth of the spot of 4,468.17 to a hundred times it."""
    row = {"underlying": "DAX", "strike": "4400", **row}
    row = row if row["type"] in ("basket", "lookback") else row | {"strike": ""}
    name, level = next(iter(far.items()))
    near = {"strike": 3800, "other_initial_spots": "3000"}.get(name, 3000)
    rows = row | {name: near}, row | far
    lines = [",".join(["id", *rows[0]])]
    lines += [",".join([str(at), *map(str, cells.values())]) for at, cells in enumerate(rows)]
    (error,) = Book.from_text("\n".join(lines)).checked(market).errors
    assert f"column {name!r}: {float(level):g} is far from the spot" in str(error)


def test_a_trade_on_a_bad_equity_says_what_is_bad():
    text = (SAMPLES / "dax_2002-07-05.json").read_text(encoding="utf-8")
    market = Market.from_text(text.replace("4468.17", "-1"))
    (error,) = Book.from_text(f"{HEADER}\n{GOOD}").check(market)[1]
    assert "left out" in error.message
    assert "correct market.json:" in error.remedy
    assert "equities.DAX.spot" in error.remedy
