"""What may be read: which files, characters, numbers and days, and how a place in JSON is found."""

import datetime as dt
import json
import os

import pytest

from jaxtape.cli.escaping import control_character, escaped
from pricing import Book
from pricing.ingestion import InputError, Locator, UnreadableFile, closest, files, listed, show
from pricing.market import Market, advance, schedule, year_fraction
from pricing.market.dates import FIRST_DAY, LAST_DAY

HEADER = "id,type,underlying,quantity,option,strike,expiry\n"
GOOD = "A,european,DAX,1,call,4500,2003-03-18\n"


@pytest.mark.parametrize("read", [Market.read, Book.read])
def test_only_regular_files_are_read(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UnreadableFile, match="is a pipe, a socket or a device") as caught:
            read(path)
        assert "write its output to a file" in caught.value.error.remedy


def test_no_more_is_read_than_the_bound(tmp_path, monkeypatch):
    path = tmp_path / "trades.csv"
    path.write_text(HEADER + GOOD)
    size = path.stat().st_size
    monkeypatch.setattr(files, "MAX_BYTES", size)
    assert len(Book.read(path).trades) == 1
    monkeypatch.setattr(files, "MAX_BYTES", size - 1)
    with pytest.raises(UnreadableFile, match=f"has more than {size - 1} bytes; split it"):
        Book.read(path)


def test_a_row_with_a_nul_byte_is_set_aside():
    book = Book.from_text(f"desk,{HEADER}x,{GOOD}\0,{GOOD.replace('A,', 'B,')}")
    assert [trade.id for trade in book.trades] == ["A"]
    (error,) = book.errors
    assert (error.line, error.message) == (3, "the row holds the character U+0000")
    with pytest.raises(UnreadableFile, match=r"t\.csv:1: the header holds the character U\+0000"):
        Book.from_text(HEADER.replace("quantity", "quan\0tity") + GOOD, "t.csv")


ACTING = {
    "a terminal escape": ("a\x1b[31mb", "U+001B"),
    "a line break": ("a\nb", "U+000A"),
    "a line separator": ("a\u2028b", "U+2028"),
    "a change of direction": ("a\u202eb", "U+202E"),
    "half a surrogate pair": ("a\ud800b", "U+D800"),
    "a control character of Latin-1": ("a\x9bb", "U+009B"),
}


@pytest.mark.parametrize("case", ACTING)
def test_a_name_that_acts_is_refused_and_shown_by_its_code(case):
    name, code = ACTING[case]
    row = dict(zip(HEADER.strip().split(","), GOOD.strip().split(","), strict=True))
    row |= {"quantity": 1, "strike": 4500}
    text = json.dumps([row | {"id": name}, row | {"id": "B", "underlying": name}, row])
    book = Book.from_text(text, "t.json")
    assert [trade.id for trade in book.trades] == ["A"]
    assert [error.field for error in book.errors] == ["id", "underlying"]
    assert control_character(book.rows[0].id) is None
    market = Market.from_text(
        json.dumps({"asof": "2002-07-05", "currency": name, "curves": {name: {"zero_rate": 0.1}}})
    )
    assert (market.currency, dict(market.curves)) == ("", {})
    for error in (*book.errors, *market.errors):
        assert error.message.endswith(f"holds the character {code}")
        assert (
            control_character(str(error)) is None and str(error).isprintable() and error.line == 1
        )


def test_an_error_escapes_whatever_it_quotes():
    error = InputError("a\x1b.csv", 1, None, "\udcff", "", "\u202e\n", "b")
    assert str(error) == r"a\x1b.csv:1: column '\udcff': \u202e\n; b"
    assert escaped("Ä é 中 😀") == "Ä é 中 😀"


def test_values_are_shown_in_part_however_long_or_deep():
    deep = json.loads("[" * 900 + "]" * 900)
    assert show(deep) == "[" * 39 + "…"
    assert show("x" * 10**6) == "'" + "x" * 38 + "…"
    assert show({"a": [1, None, 2.5]}) == '{"a": [1, null, 2.5]}'
    assert listed(range(25)) == f"{', '.join(map(str, range(20)))}, and 5 more"
    assert listed(()) == "none"
    assert closest("x" * 10**5, ["x" * 10**5]) == ""


@pytest.mark.parametrize("number", ["1e16", "-1e300", "1" * 400, "1" * 5000])
def test_a_number_too_large_is_named(number):
    book = Book.from_text(HEADER + GOOD.replace(",1,", f",{number},"), "t.csv")
    (error,) = book.errors
    assert (error.line, error.field) == (2, "quantity")
    row = '"id": "A", "type": "european", "underlying": "DAX", "option": "call", "strike": 1'
    numbers = f'"expiry": "2003-03-18", "rebate": {number}, "quantity": {number}'
    text = f"[{{{row},\n{numbers}}}]"
    errors = Book.from_text(text, "t.json").errors
    assert {(error.line, error.field) for error in errors} == {(2, "rebate"), (2, "quantity")}


@pytest.mark.parametrize("number", ["5e-324", "1e-16"])
def test_a_number_that_is_zero_but_for_its_exponent_is_named(number):
    (error,) = Book.from_text(HEADER + GOOD.replace("4500", number)).errors
    assert (error.field, error.message) == ("strike", f"{number} is below 1e-15")
    assert error.remedy == "give a strike > 0, in smaller units"


@pytest.mark.parametrize("day", ["0001-01-01", "1899-12-31", "2200-01-01", "9999-12-31"])
def test_days_beyond_the_calendar_are_named(day):
    with pytest.raises(UnreadableFile, match=f"{day} is not between 1900-01-01 and 2199-12-31"):
        Market.from_text(json.dumps({"asof": day}))
    swap = f"S,swap,EUR,payer,0.03,2003-01-06,{day}\nT,swap,EUR,payer,0.03,{day},2009-01-06\n"
    book = Book.from_text(f"id,type,underlying,side,fixed_rate,start,maturity\n{swap}")
    assert [error.field for error in book.errors] == ["maturity", "start"]


def test_the_ends_of_the_calendar_can_be_used():
    market = Market.from_text(
        '{"asof": "2199-12-31", "curves": {"E": {"days": [36525], "zero_rates": [0.1]}}}'
    )
    assert market.errors == () and "ZERO/RATE/E/2300-01-01" in dict(market.flat_quotes())
    days = schedule(FIRST_DAY, LAST_DAY, 12)
    assert (days[0].year, days[-1]) == (1900, LAST_DAY) and len(days) == 301
    assert year_fraction(dt.date(9998, 12, 31), dt.date.max, "ACT/ACT") == pytest.approx(1.0)


def test_schedules_refuse_days_that_are_none():
    with pytest.raises(ValueError, match="0001-01-01 is not a day from 1900-01-01 to 2199-12-31"):
        schedule(dt.date(1, 1, 1), dt.date(2, 6, 1), 12)
    with pytest.raises(ValueError, match="is not a day from"):
        advance(LAST_DAY, months=12)


TEXT = (
    '{"a" : [1, {"b": "x,]}", "c":\n  [2.5e3, null, -7] }],\n\t"A": {}, "' + "k" * 2000 + '":true}'
)


@pytest.mark.parametrize(
    ("path", "piece"),
    [
        ((), "{"),
        (("a",), "[1"),
        (("a", 1, "b"), '"x,'),
        (("a", 1, "c", 2), "-7"),
        (("a", 1, "none", 2), '{"b"'),
        (("A",), "{}"),
        (("k" * 2000,), "true"),
        (("a", 9), "[1"),
    ],
)
def test_a_place_in_json_is_that_of_the_value(path, piece):
    at = TEXT.index(piece)
    line = TEXT[:at].count("\n") + 1
    assert Locator(TEXT).place(path) == (line, at - TEXT[:at].rfind("\n"))


def test_a_key_given_again_in_another_case_is_named():
    row = '{"id": "A", "type": "european", "underlying": "D", "option": "put", "expiry": "2003-03-18",'
    book = Book.from_text(f'[{row} "strike": 1,\n"Strike": 2}}]', "t.json")
    (error,) = book.errors
    assert (error.line, error.field, error.value) == (2, "strike", "2")
    assert "'Strike' means the same as 'strike'" in error.message


def test_a_curve_of_swaptions_has_a_name_of_its_own():
    surface = {"days": [9], "strikes": [1], "vols_by_expiry": [[0.2]]}
    document = {
        "asof": "2002-07-05",
        "curves": {"X": {"zero_rate": 0.1}},
        "equities": {"X": {"curve": "X", "spot": 1, "implied_vols": surface}},
        "swaption_vols": {
            "curve": "X",
            "expiries_years": [1],
            "tenors_years": [61],
            "vols_by_expiry": [[0.1]],
        },
    }
    (error,) = Market.from_text(json.dumps(document)).errors
    assert error.remedy == "give a number of years > 0 and <= 60"
    document["swaption_vols"]["tenors_years"] = [60]
    (error,) = Market.from_text(json.dumps(document)).errors
    assert "'X' is the name of an equity too" in error.message
