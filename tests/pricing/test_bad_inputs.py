"""Bad inputs: each is reported with its file, line, field and remedy, and the rest stays usable."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import Book
from pricing.ingestion import UnreadableFile
from pricing.market import Market

MARKET = """\
{
 "asof": "2002-07-05",
 "currency": "EUR",
 "curves": {
  "EUR": {
   "day_count": "ACT/365",
   "dates": ["2002-07-05", "2003-07-05"],
   "zero_rates": [0.03, 0.04]
  },
  "CHF": {"zero_rate": 0.02}
 },
 "equities": {
  "DAX": {
   "curve": "EUR",
   "spot": 4468.17,
   "dividend_yield": 0.01,
   "implied_vols": {
    "expiries": ["2002-12-17", "2003-06-15"],
    "days": [165, 345],
    "strikes": [4000.0, 4500.0, 5000.0],
    "vols_by_expiry": [
     [0.31, 0.28, 0.26],
     [0.29, 0.27, 0.25]
    ]
   }
  },
  "SMI": {
   "curve": "CHF",
   "spot": 5000.0,
   "implied_vols": {"days": [90], "strikes": [5000.0], "vols_by_expiry": [[0.2]]}
  }
 },
 "swaption_vols": {
  "expiries_years": [1, 2],
  "tenors_years": [5],
  "vols_by_expiry": [[0.11], [0.12]]
 }
}
"""
DAX, EUR = "equities.DAX", "curves.EUR"
VOLS = f"{DAX}.implied_vols"
EQUITY = MARKET[MARKET.index('"DAX": {') : MARKET.index(',\n  "SMI"')]
SURFACE = EQUITY[EQUITY.index(',\n   "implied_vols"') : EQUITY.rindex("\n  }")]

# old text, new text, text on the line to be reported, field, piece of the remedy
MARKET_CASES = {
    "a negative spot": ("4468.17", "-1", '"spot": -1', f"{DAX}.spot", "spot > 0"),
    "a zero spot": ("4468.17", "0", '"spot": 0', f"{DAX}.spot", "spot > 0"),
    "a spot as text": ("4468.17", '"4468"', '"spot": "4', f"{DAX}.spot", "spot > 0"),
    "a boolean spot": ("4468.17", "true", '"spot": true', f"{DAX}.spot", "spot > 0"),
    "a spot of null": ("4468.17", "null", '"spot": null', f"{DAX}.spot", "spot > 0"),
    "an infinite spot": ("4468.17", "1e400", "1e400", f"{DAX}.spot", "spot > 0"),
    "an overlong spot": ("4468.17", "1" * 400, "1111", f"{DAX}.spot", "spot > 0"),
    "no spot": ('"spot": 4468.17,', "", '"DAX": {', f"{DAX}.spot", "give spot, the price"),
    "a yield in percent": ("0.01,", "1.5,", "1.5,", f"{DAX}.dividend_yield", "1 % is 0.01"),
    "a misspelt field": (
        *("dividend_yield", "divdend_yield", "divdend_yield"),
        *(f"{DAX}.divdend_yield", "did you mean 'dividend_yield'"),
    ),
    "an equity that is a number": (EQUITY, '"DAX": 7', '"DAX": 7', DAX, "braces"),
    "no implied vols": (SURFACE, "", '"DAX": {', VOLS, "expiries, strikes and vols_by_expiry"),
    "an unknown curve": ('"curve": "EUR"', '"curve": "EU"', '"EU"', f"{DAX}.curve", "mean 'EUR'"),
    "a NaN vol": ("0.28,", "NaN,", "NaN", f"{VOLS}.vols_by_expiry.0.1", "give a vol > 0"),
    "a negative vol": ("0.27,", "-0.27,", "-0.27", f"{VOLS}.vols_by_expiry.1.1", "give a vol > 0"),
    "a vol of zero": (
        "0.27,",
        "0.0,",
        "[0.29, 0.0",
        f"{VOLS}.vols_by_expiry.1.1",
        "give a vol > 0",
    ),
    "a vol in percent": ("0.27,", "27,", "27,", f"{VOLS}.vols_by_expiry.1.1", "1 % is 0.01"),
    "a vol as text": ("0.27,", '"0.27",', '"0.27"', f"{VOLS}.vols_by_expiry.1.1", "give a vol"),
    "a short row of vols": (", 0.25]", "]", "[0.29", f"{VOLS}.vols_by_expiry.1", "for each strike"),
    "a row too few": (
        *(",\n     [0.29, 0.27, 0.25]", "", '"vols_by_expiry": [\n'),
        *(f"{VOLS}.vols_by_expiry", "one row of vols for each expiry"),
    ),
    "vols that are no matrix": (
        *("[0.29, 0.27, 0.25]", "0.29", "     0.29"),
        *(f"{VOLS}.vols_by_expiry.1", "square brackets"),
    ),
    "unsorted strikes": ("4500.0", "3500.0", "3500.0", f"{VOLS}.strikes.1", "increasing order"),
    "a strike twice": ("4500.0", "4000.0", '"strikes"', f"{VOLS}.strikes.1", "keep one"),
    "a negative strike": ("4000.0", "-4000.0", '"strikes"', f"{VOLS}.strikes.0", "strike > 0"),
    "no strikes": (
        "[4000.0, 4500.0, 5000.0]",
        "[]",
        '"strikes"',
        f"{VOLS}.strikes",
        "at least one",
    ),
    "an expiry that is no day": (
        *("2002-12-17", "2002-02-30", '"expiries"', f"{VOLS}.expiries.0", "ISO 8601"),
    ),
    "days that do not fit": ("165", "166", '"days"', f"{VOLS}.days.0", "correct one of the two"),
    "half a day": ("165", "165.5", '"days"', f"{VOLS}.days.0", "whole calendar days"),
    "too many days": ("345]", "345, 400]", '"days"', f"{VOLS}.days", "number of days for each"),
    "an expiry on the as-of date": (
        *('"expiries": ["2002-12-17", "2003-06-15"],\n    "days": [165,', '"days": [0,'),
        *('"days": [0,', f"{VOLS}.days.0", "from 2002-07-06 on"),
    ),
    "a rate in percent": ("0.04]", "4.0]", '"zero_rates"', f"{EUR}.zero_rates.1", "1 % is 0.01"),
    "an infinite rate": (
        "0.04]",
        "Infinity]",
        '"zero_rates"',
        f"{EUR}.zero_rates.1",
        "rate >= -0.2",
    ),
    "a rate too few": (
        "[0.03, 0.04]",
        "[0.03]",
        '"zero_rates"',
        f"{EUR}.zero_rates",
        "each pillar",
    ),
    "a pillar twice": ('"2003-07-05"', '"2002-07-05"', '"dates"', f"{EUR}.dates.1", "keep one"),
    "unsorted pillars": ('"2003-07-05"', '"2002-07-04"', '"dates"', f"{EUR}.dates.1", "sort dates"),
    "a pillar in the past": ('["2002-07-05"', '["2002-07-04"', '"dates"', f"{EUR}.dates.0", "on"),
    "no pillars": ('"dates": ["2002-07-05", "2003-07-05"],', "", '"EUR": {', EUR, "give dates"),
    "no rates": (',\n   "zero_rates": [0.03, 0.04]', "", '"EUR": {', EUR, "one flat zero_rate"),
    "another day count": ("ACT/365", "30/360", "30/360", f"{EUR}.day_count", "ACT/365"),
}


def line_of(text, marker):
    assert marker in text
    return text[: text.index(marker)].count("\n") + 1


@pytest.mark.parametrize("case", MARKET_CASES)
def test_a_bad_part_of_a_market_is_reported_and_left_out(case):
    old, new, marker, field, remedy = MARKET_CASES[case]
    assert MARKET.count(old) >= 1
    text = MARKET.replace(old, new, 1)
    market = Market.from_text(text, "market.json")
    error = market.errors[0]
    assert (error.file, error.field) == ("market.json", field)
    assert error.line == line_of(text, marker)
    assert remedy in error.remedy
    assert str(error).startswith(f"market.json:{error.line}: field {field!r}: ")
    assert "\n" not in str(error)
    assert set(market.equities) == {"SMI"}
    assert "CHF" in market.curves
    assert market.swaption_vols is not None
    assert "EQUITY/PRICE/SMI" in dict(market.flat_quotes())


def test_the_market_of_these_cases_is_good():
    market = Market.from_text(MARKET)
    assert market.errors == ()
    assert set(market.equities) == {"DAX", "SMI"}


def test_an_equity_goes_with_its_curve():
    market = Market.from_text(MARKET.replace("0.04]", "NaN]"))
    assert [error.field for error in market.errors] == [f"{EUR}.zero_rates.1", f"{DAX}.curve"]
    assert market.errors[1].remedy == "correct the curve"


_PAIR = {"spot": 1.46, "vols": {"expiries": ["2003-07-05"], "at_the_money": [0.08]}}
_PAIR["vols"] |= {"risk_reversals_25": [0.0], "butterflies_25": [0.002]}


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (
            {"foreign_curve": "CHF"},
            "foreign_curve",
            "is a curve of CHF, and this is the side of EUR",
        ),
        ({"domestic_curve": "EUR"}, "domestic_curve", "is a curve of EUR"),
        ({"foreign_curve": "CHF", "domestic_curve": "EUR"}, "foreign_curve", "is a curve of CHF"),
    ],
)
def test_a_pair_with_the_curve_of_another_currency_is_refused(change, field, said):
    """The forward of a pair whose curves stood the wrong way round was on the other side of the spot."""
    document = json.loads(MARKET) | {"fx": {"EURCHF": _PAIR | change}}
    (error,) = Market.from_text(json.dumps(document)).errors
    assert error.field == f"fx.EURCHF.{field}" and said in error.message


def test_an_equity_has_the_currency_of_its_curve():
    """The SMI's options, on the curve of francs, were valued in the market's euros."""
    market = Market.from_text(MARKET)
    assert (market.currency_of("DAX"), market.currency_of("SMI")) == ("EUR", "CHF")


def test_one_strike_in_moneyness_among_prices_is_refused():
    market = Market.from_text(MARKET.replace("[4000.0, 4500.0, 5000.0]", "[0.9, 4500.0, 5000.0]"))
    (error,) = market.errors
    assert "the strike 0.9 is far from the spot 4468.17" in error.message


def test_normal_vols_that_are_read_as_lognormal_are_refused():
    vols = {"expiries_years": [1], "tenors_years": [5], "vols_by_expiry": [[0.009]]}
    document = json.loads(MARKET) | {"swaption_vols": {"type": "lognormal", **vols}}
    (error,) = Market.from_text(json.dumps(document)).errors
    assert "would be a normal vol of rates; give type normal" in str(error)


@pytest.mark.parametrize(
    ("old", "new", "field", "remedy"),
    [
        ('"curves": {', '"curves": 3, "swap": {', "curves", "in braces"),
        ('"equities": {', '"equites": {', "equites", "did you mean 'equities'"),
        ('"currency": "EUR"', '"currency": 5', "currency", "ISO code"),
        ("[1, 2]", "[2, 1]", "swaption_vols.expiries_years.1", "increasing order"),
        ("[0.12]", "[0.12, 0.13]", "swaption_vols.vols_by_expiry.1", "for each tenor"),
    ],
)
def test_a_bad_top_level_is_reported(old, new, field, remedy):
    text = MARKET.replace(old, new, 1)
    error = Market.from_text(text).errors[0]
    assert (error.line, error.field) == (line_of(text, new), field)
    assert remedy in error.remedy


HEADER = (
    "id,type,underlying,quantity,option,strike,expiry,barrier,barrier_type,rebate,payout,amount"
)
EUROPEAN = "X,european,DAX,1,call,4400,2003-03-18,,,,,"
DIGITAL = "X,digital,DAX,1,call,4400,2003-03-18,,,,cash,10"
BARRIER = "X,barrier,DAX,1,call,4400,2003-03-18,4000,down-and-out,5,,"

# good row, old text, new text, column, piece of the remedy
ROW_CASES = {
    "an unknown type": (EUROPEAN, "european", "eurpean", "type", "did you mean 'european'"),
    "no type": (EUROPEAN, "european", "", "type", "european, digital, barrier"),
    "no id": (EUROPEAN, "X,", ",", "id", "give an id"),
    "an id twice": (EUROPEAN, "X,", "A,", "id", "id of its own"),
    "no underlying": (EUROPEAN, "DAX", " ", "underlying", "give an underlying"),
    "a negative strike": (EUROPEAN, "4400", "-1", "strike", "give a strike > 0"),
    "a strike of zero": (EUROPEAN, "4400", "0", "strike", "give a strike > 0"),
    "a strike of NaN": (EUROPEAN, "4400", "nan", "strike", "give a strike > 0"),
    "an infinite strike": (EUROPEAN, "4400", "inf", "strike", "give a strike > 0"),
    "an overflowing strike": (EUROPEAN, "4400", "1e400", "strike", "give a strike > 0"),
    "a strike in words": (EUROPEAN, "4400", "ATM", "strike", "decimal point"),
    "a decimal comma": (EUROPEAN, "4400", '"4400,5"', "strike", "decimal point"),
    "an underscore": (EUROPEAN, "4400", "4_400", "strike", "thousands separator"),
    "no strike": (EUROPEAN, "4400", "", "strike", "give a strike > 0"),
    "a day that is none": (EUROPEAN, "2003-03-18", "2003-02-30", "expiry", "ISO 8601"),
    "an American date": (EUROPEAN, "2003-03-18", "03/15/2003", "expiry", "YYYY-MM-DD"),
    "a date without hyphens": (EUROPEAN, "2003-03-18", "20030318", "expiry", "YYYY-MM-DD"),
    "a date with a time": (EUROPEAN, "2003-03-18", "2003-03-18T00:00", "expiry", "YYYY-MM-DD"),
    "no expiry": (EUROPEAN, "2003-03-18", "", "expiry", "give an expiry"),
    "an unknown option": (EUROPEAN, "call", "straddle", "option", "call, put"),
    "a quantity of NaN": (EUROPEAN, ",1,", ",NaN,", "quantity", "finite number"),
    "a quantity in words": (EUROPEAN, ",1,", ",one,", "quantity", "finite number"),
    "too few cells": (EUROPEAN, ",,,,,", "", "", "one cell for each column"),
    "too many cells": (EUROPEAN, ",,,,,", ",,,,,,5", "", "one cell for each column"),
    "semicolons in a row": (EUROPEAN, ",", ";", "", "one cell for each column"),
    "an open quote": (EUROPEAN, "DAX", '"DAX', "", "close every quote"),
    "a barrier on a European": (EUROPEAN, "18,,", "18,4000,", "barrier", "leave it empty"),
    "a foreign column": (f"{EUROPEAN},", ",,,,,,", ",,,,,,7", "notional", "leave it empty"),
    "an unknown payout": (DIGITAL, "cash", "stock", "payout", "cash, asset"),
    "a negative amount": (DIGITAL, ",10", ",-10", "amount", "amount > 0"),
    "a negative rebate": (BARRIER, ",5,", ",-5,", "rebate", "rebate >= 0"),
    "a barrier of zero": (BARRIER, "4000", "0", "barrier", "barrier > 0"),
    "a negative barrier": (BARRIER, "4000", "-4000", "barrier", "barrier > 0"),
    "no barrier": (BARRIER, "4000", "", "barrier", "barrier > 0"),
    "an unknown barrier type": (BARRIER, "down-and-out", "sideways", "barrier_type", "up-and-in"),
    "no barrier type": (BARRIER, "down-and-out", "", "barrier_type", "down-and-out"),
}


@pytest.mark.parametrize("case", ROW_CASES)
def test_a_bad_row_is_reported_and_set_aside(case):
    good, old, new, column, remedy = ROW_CASES[case]
    header = f"{HEADER},notional" if good.endswith(",,,,,,") else HEADER
    blank = "," * (header.count(",") - HEADER.count(","))
    row = good.replace(old, new) if old in (",", ";") else good.replace(old, new, 1)
    neighbours = [EUROPEAN.replace("X", name) + blank for name in "AB"]
    book = Book.from_text("\n".join([header, neighbours[0], "", row, neighbours[1]]), "trades.csv")
    error = book.errors[0]
    assert (error.file, error.line, error.field) == ("trades.csv", 4, column)
    assert error.column == (header.split(",").index(column) + 1 if column else None)
    assert remedy in error.remedy
    place = f"trades.csv:4: column {column!r}: " if column else "trades.csv:4: "
    assert str(error).startswith(place)
    assert [trade.id for trade in book.trades] == ["A", "B"]
    assert [row.trade is None for row in book.rows] == [False, True, False]
    assert book.rows[1].errors == book.errors


@pytest.mark.parametrize(
    ("column", "cell", "ours", "nothing"),
    [
        ("qty", "-5", "quantity", "1"),
        ("Direction", "sell", "quantity", "Buy"),
        ("multiplier", "10", "quantity", "1.0"),
        ("exercise_style", "American", "type", "european"),
        ("ccy", "USD", "currency", ""),
        ("nominal", "1e6", "notional", "1"),
        ("margin", "0.01", "spread", "0"),
        ("pay_lag", "2", "payment_lag", "0"),
        ("eom", "yes", "end_of_month", "no"),
    ],
)
def test_a_column_by_another_name_is_no_comment(column, cell, ours, nothing):
    """The trade was valued without it: one contract, held long."""
    head = f"id,type,underlying,option,strike,expiry,desk,{column}"
    rows = (f"E{n},european,DAX,call,4400,2003-03-18,A,{x}" for n, x in enumerate((nothing, cell)))
    book = Book.from_text("\n".join([head, *rows]))
    assert [trade.id for trade in book.trades] == ["E0"]
    (error,) = book.errors
    assert error.field == column.lower() and f"this is {ours} here" in error.remedy


@pytest.mark.parametrize(
    ("column", "cell", "nothing"),
    [
        ("amortization", "linear", "none"),
        ("stub", "long first", ""),
        ("business_day_convention", "following", "Modified Following"),
        ("fixing_lag", "2", "0"),
        ("participation", "0.8", "1"),
    ],
)
def test_a_term_that_no_trade_has_is_no_comment(column, cell, nothing):
    """The trade was valued without it."""
    head = f"id,type,underlying,side,fixed_rate,start,maturity,{column}"
    row = "swap,EUR,payer,0.03,2002-10-07,2007-10-05"
    book = Book.from_text(f"{head}\nS0,{row},{nothing}\nS1,{row},{cell}\n")
    assert [trade.id for trade in book.trades] == ["S0"]
    (error,) = book.errors
    assert error.field == column and "a term that no trade here has" in error.message


def test_a_misspelt_column_is_not_passed_over():
    book = Book.from_text(
        "id,type,underlying,option,strike,expiry,barier\n" + EUROPEAN[:34] + ",,9"
    )
    assert book.errors


@pytest.mark.parametrize(
    ("change", "field", "remedy"),
    [
        ({"strike": "4400"}, "strike", "give a strike > 0"),
        ({"strike": True}, "strike", "give a strike > 0"),
        ({"strike": [1]}, "strike", "give a strike > 0"),
        ({"strike": float("nan")}, "strike", "give a strike > 0"),
        ({"id": None}, "id", "give an id"),
        ({"id": False}, "id", "not empty"),
        ({"type": 3}, "type", "european, digital, barrier"),
        ({"option": 1}, "option", "call, put"),
        ({"expiry": 20030318}, "expiry", "YYYY-MM-DD"),
        ({"stirke": 1}, "stirke", "did you mean 'strike'"),
    ],
)
def test_a_bad_object_is_reported_and_set_aside(change, field, remedy):
    names = ("id", "type", "underlying", "quantity", "option", "strike", "expiry")
    good = dict(zip(names, ("A", "european", "DAX", 1, "call", 4400, "2003-03-18"), strict=True))
    bad = json.dumps(good | {"id": "X"} | change, indent=1)
    text = f"[{json.dumps(good)},\n{bad},\n7]"
    book = Book.from_text(text, "trades.json")
    error = book.errors[0]
    assert (error.file, error.field) == ("trades.json", field)
    assert error.line == 1 + line_of(bad, f'"{field}": ')
    assert remedy in error.remedy
    assert [trade.id for trade in book.trades] == ["A"]
    assert "is not an object" in book.errors[-1].message


NOTE = {"type": "autocallable", "underlying": "DAX", "exercise_dates": "2002-12-17|2003-03-18"}
NOTE |= {"coupons": "0.05|0.05", "barrier": 4400, "protection": 3000, "initial_spot": 4400}
PHOENIX = NOTE | {"coupon_barrier": 3500}
_ON = {"underlying": "DAX", "expiry": "2003-03-18"}
_DATED = {"underlying": "DAX", "monitoring_dates": "2002-12-17|2003-03-18"}
TOUCH = {"type": "touch", **_ON, "barrier": 5000, "touch_kind": "no-touch", "touched_from": "below"}
FORWARD_START = {"type": "forward_start", **_ON, "option": "call", "moneyness": 1}
FORWARD_START |= {"start": "2002-12-17"}
LOOKBACK = {"type": "lookback", **_ON, "option": "put"}
CLIQUET = {"type": "cliquet", **_DATED}
SWAP = {"type": "variance_swap", **_ON, "vol_strike": 0.2}
AVERAGE = {"type": "average_strike", "underlying": "DAX", "option": "call"}
AVERAGE |= {"averaging_dates": "2002-12-17|2003-03-18"}
SPREAD = {"type": "spread", **_ON, "underlying": "DAX|SMI", "option": "call"}


@pytest.mark.parametrize(
    ("good", "change", "field", "remedy"),
    [
        (NOTE, {"memory": "yes"}, "memory", "give a coupon_barrier"),
        (PHOENIX, {"missed": 0.1}, "missed", "give memory = yes"),
        (SWAP, {"monitoring_dates": "2003-03-18"}, "monitoring_dates", "give at least two"),
        (PHOENIX, {"coupon_barrier": 4500}, "coupon_barrier", "give one that is not above"),
        (PHOENIX, {"call_steps": "1|0.7"}, "coupon_barrier", "give one that is not above"),
        (PHOENIX, {"call_steps": "1"}, "call_steps", "as many call_steps as exercise_dates"),
        (PHOENIX, {"call_steps": "1|0"}, "call_steps", "give a call step > 0"),
        (PHOENIX, {"knock_in": 4400}, "knock_in", "give one below"),
        (PHOENIX, {"knock_in": -1}, "knock_in", "give a barrier > 0"),
        (PHOENIX, {"watched": "never"}, "watched", "dates, always"),
        (PHOENIX, {"missed": -0.1}, "missed", "give a missed coupon >= 0"),
        (PHOENIX, {"underlying": "DAX|SMI"}, "other_initial_spots", "as many other_initial_spots"),
        (PHOENIX, {"other_initial_spots": "7"}, "other_initial_spots", "as many"),
        (PHOENIX, {"underlying": "DAX|DAX"}, "underlying", "give every equity once"),
        (PHOENIX, {"underlying": "DAX|"}, "underlying", "give names such as"),
        (
            PHOENIX | {"underlying": "DAX|SMI", "other_initial_spots": "5000"},
            {"watched": "always", "knock_in": 3000},
            "watched",
            "give watched = dates",
        ),
        (TOUCH, {"touch_kind": "two-touch"}, "touch_kind", "one-touch, one-touch-at-expiry"),
        (TOUCH, {"touched_from": ""}, "touched_from", "below"),
        (TOUCH, {"amount": 0}, "amount", "give an amount > 0"),
        (LOOKBACK, {"extreme": 0}, "extreme", "give an extreme > 0"),
        (LOOKBACK, {"strike": -1}, "strike", "give a strike > 0"),
        (LOOKBACK, {"monitoring_dates": "2002-12-17"}, "expiry", "end the dates with the expiry"),
        (FORWARD_START, {"start": "2003-06-15"}, "start", "give a start before the expiry"),
        (FORWARD_START, {"moneyness": 0}, "moneyness", "give a moneyness > 0"),
        (CLIQUET, {"local_floor": -1}, "local_floor", "give a return > -1"),
        (CLIQUET, {"local_floor": 0.1, "local_cap": 0.1}, "local_floor", "local_floor < local_cap"),
        (CLIQUET, {"floor": 1, "cap": 0}, "floor", "give a floor < cap"),
        (CLIQUET, {"monitoring_dates": "2003-03-18"}, "monitoring_dates", "give at least two"),
        (SWAP, {"vol_strike": 20}, "vol_strike", "give a decimal"),
        (SWAP, {"measure": "skew"}, "measure", "variance, volatility"),
        (SWAP, {"annualization": 0}, "annualization", "give an annualization > 0"),
        (SWAP, _DATED, "annualization", "give the number of returns in a year"),
        (SWAP, {"past_returns": -1}, "past_returns", "number of past_returns >= 0"),
        (SWAP, {"accrued": 0.01}, "past_returns", "give it as past_returns"),
        (SWAP, {"start": "2003-03-19"}, "start", "give a day up to the expiry"),
        (TOUCH, {"knocked": "2003-03-19"}, "knocked", "give a day up to the expiry"),
        (LOOKBACK | _DATED, {"start": "2002-12-17"}, "start", "leave it empty"),
        (AVERAGE, {"past_sum": -1, "num_past": 1}, "past_sum", "give a past_sum >= 0"),
        (AVERAGE, {"past_sum": 4400}, "num_past", "give it as num_past"),
        (AVERAGE, {"num_past": 1}, "past_sum", "give it as past_sum"),
        (SPREAD, {"underlying": "DAX"}, "underlying", "give two or more equities"),
        (SPREAD, {"weights": "1"}, "weights", "as many weights as equities"),
        (NOTE, {"coupons": "5|7.5"}, "coupons", "5 % is 0.05"),
        (PHOENIX, {"call_steps": "100|95"}, "call_steps", "such as 1, or 1000 for no redemption"),
        (PHOENIX | {"memory": "yes"}, {"missed": 7.5}, "missed", "7.5 % is 0.075"),
        (FORWARD_START, {"moneyness": 105}, "moneyness", "105 % is 1.05"),
        (AVERAGE, {"moneyness": 95}, "moneyness", "95 % is 0.95"),
        (CLIQUET, {"floor": 15, "cap": 20}, "floor", "15 % is 0.15"),
        (CLIQUET, {"accrued": 12}, "accrued", "12 % is 0.12"),
    ],
)
def test_a_bad_term_of_an_exotic_trade_is_reported_and_set_aside(good, change, field, remedy):
    names = dict.fromkeys(("id", *good, *change))
    rows = {"id": "good", **good}, {"id": "bad", **good, **change}
    cells = [",".join(str(row.get(name, "")) for name in names) for row in rows]
    book = Book.from_text("\n".join([",".join(names), *cells]), "trades.csv")
    assert [trade.id for trade in book.trades] == ["good"]
    assert book.errors[0].field == field
    assert remedy in book.errors[0].remedy


UNREADABLE = {
    "an empty file": (b"", "is empty", None),
    "white space": (b" \n\n ", "is empty", None),
    "no text": (b'{"asof": "\xff"}', "is not UTF-8", 1),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "is not UTF-8", 1),
}
UNREADABLE_MARKETS = UNREADABLE | {
    "no JSON": (b'{\n"asof": 2002-07-05}', "is not JSON", 2),
    "a cut file": (MARKET[:300].encode(), "is not JSON", None),
    "a list": (b"\n[1, 2]", "[1, 2] is not a market", None),
    "no as-of date": (b'{"curves": {}}', "is missing", 1),
    "a bad as-of date": (b'{\n"asof": "5 July 2002"}', "not a date", 2),
    "a key twice": (b'{"asof": 1,\n"curves": {"EUR": 1,\n "EUR": 2}}', "appears twice", 3),
    "deep nesting": (b"[" * 100_000, "is nested too deeply", None),
    "a long number": (b'{"asof": ' + b"1" * 5000 + b"}", "is not a date", 1),
}
UNREADABLE_BOOKS = UNREADABLE | {
    "semicolons": (HEADER.replace(",", ";").encode(), "separated by semicolons", 1),
    "tabs": (HEADER.replace(",", "\t").encode(), "separated by tabs", 1),
    "no header": (EUROPEAN.encode(), "is not a header", 1),
    "a column twice": (f"{HEADER},strike".encode(), "'strike' appears twice", 1),
    "commas only": (b",,,\n,,", "has no header", None),
}


def unreadable(read, path, content, message, line):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableFile) as caught:
        read(path)
    error = caught.value.error
    assert error.file == str(path)
    assert message in error.message
    assert error.remedy
    assert line is None or error.line == line
    assert str(caught.value) == str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("case", UNREADABLE_MARKETS)
def test_an_unreadable_market_raises(case, tmp_path):
    unreadable(Market.read, tmp_path / "market.json", *UNREADABLE_MARKETS[case])


@pytest.mark.parametrize("case", UNREADABLE_BOOKS)
def test_an_unreadable_book_raises(case, tmp_path):
    unreadable(Book.read, tmp_path / "trades.csv", *UNREADABLE_BOOKS[case])


def test_a_json_book_that_is_no_list_raises(tmp_path):
    unreadable(Book.read, tmp_path / "t.json", b'{"id": 1}', "is not a book", None)


@pytest.mark.parametrize("read", [Market.read, Book.read])
def test_a_path_without_a_file_raises(read, tmp_path):
    unreadable(read, tmp_path / "nothing", None, "there is no such file", None)
    unreadable(read, tmp_path, None, "is a directory", None)
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read("a\0b")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda x: st.lists(x) | st.dictionaries(st.text(max_size=3), x))


def paths(value, path=()):
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from paths(value[key], (*path, key))


@pytest.mark.costly
@settings(derandomize=True, max_examples=75, deadline=None, database=None)
@given(path=st.sampled_from([p for p in paths(json.loads(MARKET)) if p]), value=JSON)
def test_no_value_in_a_market_makes_a_traceback(path, value):
    document = json.loads(MARKET)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    try:
        market = Market.from_text(json.dumps(document, indent=1))
    except UnreadableFile as error:
        assert path[0] == "asof", error
    else:
        assert all(error.line and error.remedy for error in market.errors)


@settings(derandomize=True, max_examples=75, deadline=None, database=None)
@given(
    column=st.integers(0, 11), cell=st.text(max_size=8), good=st.sampled_from([EUROPEAN, BARRIER])
)
def test_no_cell_in_a_book_makes_a_traceback(column, cell, good):
    cells = good.split(",")
    cells[column] = cell
    book = Book.from_text("\n".join([HEADER, ",".join(cells), EUROPEAN.replace("X", "last")]))
    assert book.rows[-1].id == "last"
    assert all(error.line and error.remedy for error in book.errors)
