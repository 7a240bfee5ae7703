"""Trades that live: what fixings, knocks and exercises leave of them, and what it is worth."""

import json
import math
from datetime import date

import jax
import numpy as np
import pytest

from pricing import Book, Fixings, Market, explain, risk
from pricing.ingestion.errors import UnreadableFile
from pricing.market import Observed
from pricing.models.surface_models import black_scholes
from pricing.portfolio.batching import products_of
from tests.helpers import double
from tests.pricing.test_rate_trades import hull_white

ASOF = date(2026, 1, 7)
MARKET = {
    "asof": str(ASOF),
    "currency": "EUR",
    "curves": {"EUR": {"zero_rates": [0.03, 0.03], "dates": ["2027-01-07", "2030-01-07"]}},
    "equities": {
        "S": {
            "curve": "EUR",
            "spot": 100.0,
            "dividend_yield": 0.01,
            "implied_vols": {
                "expiries": ["2028-01-07"],
                "strikes": [100],
                "vols_by_expiry": [[0.2]],
            },
        }
    },
    "swaption_vols": {
        "type": "normal",
        "expiries_years": [1],
        "tenors_years": [5],
        "vols_by_expiry": [[0.01]],
    },
}
PAST = "name,date,value\nS,2025-12-05,96\nS,2026-01-05,104\nS,2026-01-06,98\n"


def market(fixings: str = PAST, asof: date = ASOF, spot: float = 100.0) -> Market:
    text = json.dumps(MARKET | {"asof": str(asof)})
    return (
        Market.from_text(text)
        .with_fixings(Fixings.from_text(fixings))
        .with_quotes({"EQUITY/PRICE/S": spot})
    )


def book(*rows: dict) -> Book:
    cells = [{"id": str(place), "underlying": "S", **row} for place, row in enumerate(rows)]
    columns = list(dict.fromkeys(name for row in cells for name in row))
    lines = [",".join(str(row.get(name, "")) for name in columns) for row in cells]
    return Book.from_text("\n".join([",".join(columns), *lines]))


def valued(*rows: dict, **settings):
    return risk(book(*rows), market(**settings), black_scholes, greeks=False)


def value(row: dict, **settings) -> float:
    (trade,) = valued(row, **settings).trades
    assert trade.status == "ok", trade.status
    return trade.position.value


DATES = "2025-12-05|2026-01-05|2026-01-06|2027-01-07"
ASIAN = {"type": "asian", "option": "call", "strike": 95, "averaging_dates": DATES}
PLAIN = {"type": "european", "option": "call", "expiry": "2027-01-07"}
RATE, YIELD = 0.03, 0.01
FORWARD = 100.0 * math.exp(RATE - YIELD)
DISCOUNT = math.exp(-RATE)


# --- averages -----------------------------------------------------------------------------------------


@double
@pytest.mark.parametrize("option", ["call", "put"])
def test_an_average_with_one_date_left_is_an_option_on_a_quarter_of_the_spot(option):
    """max(side (298 / 4 + S / 4 - 95), 0) = max(side (S - 82), 0) / 4."""
    own = value(ASIAN | {"option": option})
    vanilla = value(PLAIN | {"option": option, "strike": 82})
    assert own == pytest.approx(0.25 * vanilla, rel=1e-12)


@double
def test_an_average_beyond_its_strike_is_a_forward():
    strike = ASIAN | {"strike": 74}  # of which 74.5 is fixed
    found = value(strike)
    assert found == pytest.approx(DISCOUNT * (74.5 + 0.25 * FORWARD - 74.0), rel=1e-12)
    assert value(strike | {"option": "put"}) == 0.0


@double
def test_a_geometric_average_is_that_of_another_library():
    ql = pytest.importorskip("QuantLib")
    dates = "2025-12-05|2026-01-05|2026-01-06|2026-04-07|2026-10-07|2027-01-07"
    today = ql.Date(7, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    flat = lambda x: ql.YieldTermStructureHandle(ql.FlatForward(today, x, ql.Actual365Fixed()))
    vol = ql.BlackConstantVol(today, ql.NullCalendar(), 0.2, ql.Actual365Fixed())
    process = ql.BlackScholesMertonProcess(
        ql.QuoteHandle(ql.SimpleQuote(100.0)),
        flat(YIELD),
        flat(RATE),
        ql.BlackVolTermStructureHandle(vol),
    )
    left = [ql.Date(7, 4, 2026), ql.Date(7, 10, 2026), ql.Date(7, 1, 2027)]
    for option, side in (("call", ql.Option.Call), ("put", ql.Option.Put)):
        peer = ql.DiscreteAveragingAsianOption(
            ql.Average.Geometric,
            96.0 * 104.0 * 98.0,
            3,
            left,
            ql.PlainVanillaPayoff(side, 99.0),
            ql.EuropeanExercise(left[-1]),
        )
        peer.setPricingEngine(ql.AnalyticDiscreteGeometricAveragePriceAsianEngine(process))
        row = ASIAN | {"average": "geometric", "averaging_dates": dates, "strike": 99}
        assert value(row | {"option": option}) == pytest.approx(peer.NPV(), rel=1e-10)


@double
@pytest.mark.parametrize("average", ["arithmetic", "geometric"])
def test_the_smile_is_read_at_the_strike_in_units_of_the_spot(average):
    """Three fixings at 100 leave an option on a quarter of S, or on its fourth root."""
    fixings = PAST.replace(",96", ",100").replace(",104", ",100").replace(",98", ",100")
    (left,) = book(ASIAN | {"average": average}).checked(market(fixings)).trades
    strike = 100.0 * 0.95**4 if average == "geometric" else 80.0
    place = products_of([left], market(fixings)).smile_point
    assert place is not None
    found = place[1]
    assert float(found[0]) == pytest.approx(strike, rel=1e-12)


@double
@pytest.mark.parametrize("option", ["call", "put"])
def test_a_strike_that_fixings_leave_near_zero_is_no_slip(option):
    """A quarter of S is left, at the strike .2: the row's own strike was near the spot."""
    strike = 0.25 * (96.0 + 104.0 + 98.0) + 0.2
    row = ASIAN | {"option": option, "strike": strike, "averaging_dates": DATES}
    served = book(row).checked(market())
    assert not served.checked(market()).errors
    forward = math.exp(RATE - YIELD) * 25.0
    worth = math.exp(-RATE) * (forward - 0.2) if option == "call" else 0.0
    found = risk(served, market(), black_scholes).trades[0]
    assert found.figures.value == pytest.approx(worth, abs=1e-6)


@double
def test_todays_fixing_is_todays_spot():
    dates = DATES.replace("2026-01-06", "2026-01-07")
    assert value(ASIAN | {"averaging_dates": dates}, spot=98.0) == pytest.approx(
        value(ASIAN, spot=98.0), rel=1e-12
    )


def test_a_missing_fixing_is_named_with_its_remedy():
    found = valued(ASIAN, fixings=PAST.replace("S,2026-01-05,104\n", ""))
    (trade,) = found.trades
    assert trade.has_failed and "there is no fixing of S on 2026-01-05" in trade.status
    assert "add the row S,2026-01-05,VALUE to the fixings" in trade.status


# --- barriers, notes, exercises -----------------------------------------------------------------------

OUT = PLAIN | {"type": "barrier", "strike": 100, "barrier": 97, "barrier_type": "down-and-out"}
START = {"start": "2025-12-01", "rebate": 2}
NOTE = {"type": "autocallable", "coupons": "0.1|0.2|0.3", "barrier": 103, "protection": 80}
NOTE |= {"initial_spot": 100, "notional": 10, "exercise_dates": "2025-12-05|2026-01-06|2027-01-07"}
LATER = NOTE | {"coupons": "0.2|0.3", "exercise_dates": "2026-01-05|2027-01-07"}

ENDED = {
    "a call that expired": (PLAIN | {"strike": 95, "expiry": "2026-01-06"}, "expired", 3.0),
    "a call that expires today": (PLAIN | {"strike": 95, "expiry": "2026-01-07"}, "expired", 5.0),
    "without a fixing": (PLAIN | {"strike": 95, "expiry": "2026-01-02"}, "expired", None),
    "an average": (
        ASIAN | {"averaging_dates": DATES.replace("2027-01-07", "2026-01-07")},
        "expired",
        4.5,
    ),
    "a knock that the fixings show": (OUT | START, "knocked out", 2.0),
    "a knock that the row tells": (
        OUT | {"barrier": 50, "knocked": "2026-01-02"},
        "knocked out",
        0.0,
    ),
    "a knock on a date": (
        OUT | {"barrier": 96.5, "monitoring_dates": "2025-12-05|2027-01-07"},
        "knocked out",
        0.0,
    ),
    "a double knock": (
        {"type": "double_knock_out", "option": "put", "strike": 100, "lower": 90, "upper": 103}
        | {"monitoring_dates": "2026-01-05|2027-01-07", "rebate": 1},
        "knocked out",
        1.0,
    ),
    "a call of the issuer": (LATER, "called", 12.0),
    "an exercise": (
        PLAIN | {"type": "american", "strike": 90, "exercised": "2026-01-05"},
        "exercised",
        14.0,
    ),
    "an exercise on a date": (
        {"type": "bermudan", "option": "call", "strike": 90, "exercised": "2026-01-05"}
        | {"exercise_dates": "2026-01-05|2027-01-07"},
        "exercised",
        14.0,
    ),
}


def test_a_trade_that_has_ended_is_listed_and_has_not_failed(tmp_path):
    from pricing.reporting import positions_of, write_positions

    own = book(*(row for row, *_ in ENDED.values()))
    found = risk(own, market(), black_scholes)
    assert not found.errors and not found.failed and found.value == 0.0
    assert [trade.status for trade in found.trades] == [event for _, event, _ in ENDED.values()]
    positions = positions_of(found, own, market())
    assert [p.settled for p in positions] == pytest.approx([cash for *_, cash in ENDED.values()])
    write_positions(tmp_path / "npv.csv", positions)
    head, first, *_ = (tmp_path / "npv.csv").read_text(encoding="utf-8").splitlines()
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert (row["status"], float(row["value"]), float(row["settled"])) == ("expired", 0.0, 3.0)


LIVE = {
    "a barrier that no fixing touches": (
        OUT | {"barrier": 90, "start": "2025-12-01"},
        OUT | {"barrier": 90},
    ),
    "a barrier after its start": (OUT | {"start": "2025-12-31"}, OUT | {"start": ASOF}),
    "a knock-in that is knocked": (
        OUT | {"barrier_type": "down-and-in", "start": "2025-12-01"},
        PLAIN | {"strike": 100},
    ),
    "a note that was not called": (
        NOTE,
        NOTE | {"coupons": "0.3", "exercise_dates": "2027-01-07"},
    ),
    "a bermudan with one date": (
        {
            "type": "bermudan",
            "option": "put",
            "strike": 100,
            "exercise_dates": "2026-01-05|2027-01-07",
        },
        PLAIN | {"option": "put", "strike": 100},
    ),
    "an american not yet exercised": (
        PLAIN | {"type": "american", "strike": 90, "exercised": "2026-03-05"},
        PLAIN | {"type": "american", "strike": 90},
    ),
}


@double
@pytest.mark.parametrize("case", LIVE)
def test_what_is_left_is_the_plain_trade(case):
    left, plain = (book(row).checked(market()).trades for row in LIVE[case])
    assert type(left[0]).product is type(plain[0]).product
    plain = [plain[0].left_of(left[0])]  # whose list of dates is as long
    pairs = zip(
        *(jax.tree.leaves(products_of(own, market())) for own in (left, plain)), strict=True
    )
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_a_fixing_beyond_a_barrier_of_unknown_start_is_refused():
    (trade,) = valued(OUT).trades
    assert "S was beyond the barrier on 2025-12-05" in trade.status
    assert "give start, the first day, or knocked, the day of the knock" in trade.status


LATER = {"underlying": "S", "expiry": "2027-01-07", "start": "2026-07-07"}
TOUCH = LATER | {"barrier": 90, "touch_kind": "no-touch", "touched_from": "above"}
WATCHED_LATER = {
    "barrier": OUT | LATER | {"barrier": 80},
    "double_knock_out": {"option": "call", "strike": 95, "lower": 80, "upper": 130, **LATER},
    "touch": TOUCH,
    "double_touch": LATER | {"lower": 80, "upper": 130, "touch_kind": "no-touch"},
    "lookback": {"option": "call", **LATER},
    "autocallable": NOTE | LATER | {"knock_in": 70, "watched": "always"},
}


def test_a_level_that_is_watched_from_a_later_day_on_is_refused():
    """All were valued as if they were watched from today on: the knock-out too low, the touch too high."""
    trades = valued(*({**row, "type": kind} for kind, row in WATCHED_LATER.items())).trades
    for trade in trades:
        assert "watched from 2026-07-07 on, after the market's as-of date" in trade.status, trade


def test_a_lookback_of_unknown_start_counts_the_spot_of_the_market_before():
    """It was valued on the 7th, at 100, as if it began there."""
    (trade,) = book({"type": "lookback", "option": "call", "expiry": "2026-01-09"}).trades
    fixings = f"{PAST}S,2026-01-07,100\nS,2026-01-08,105\n"
    assert trade.aged(Observed(ASOF, market(fixings, date(2026, 1, 9), spot=110.0))).cash == 10.0


def test_a_variance_swap_that_ends_today_without_a_return_is_refused():
    row = {"type": "variance_swap", "vol_strike": 0.2, "expiry": str(ASOF)}
    first, second = valued(row, row | {"accrued": 0.01, "past_returns": 7}).trades
    assert "no return of S counts" in first.status and "give a start before it" in first.status
    assert second.status == "expired"


@double
def test_a_payment_that_is_not_settled_is_discounted():
    """Wednesday the 7th, and two business days later."""
    today = PLAIN | {"strike": 95, "expiry": "2026-01-07", "settlement_lag": 2, "quantity": -3}
    assert value(today) == pytest.approx(-15.0 * math.exp(-0.03 * 2 / 365), rel=1e-12)
    (trade,) = valued(today, asof=date(2026, 1, 9), fixings=f"{PAST}S,2026-01-07,100\n").trades
    assert trade.status == "expired"


BAD = {
    "an exercise on another day": (
        ENDED["an exercise on a date"][0] | {"exercised": "2026-01-06"},
        "not one of",
    ),
    "an exercise after the expiry": (
        PLAIN | {"type": "american", "strike": 90, "exercised": "2027-03-05"},
        "after its expiry",
    ),
    "half a day": (PLAIN | {"strike": 90, "settlement_lag": 1.5}, "not a whole number"),
    "a start beside dates": (
        OUT | {"start": "2025-12-05", "monitoring_dates": "2025-12-05|2027-01-07"},
        "watched on its dates",
    ),
    "a start after the expiry": (OUT | {"start": "2027-01-08"}, "after the expiry"),
    "a knock after the expiry": (OUT | {"knocked": "2027-01-08"}, "after the expiry"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_cell_is_refused(case):
    row, said = BAD[case]
    (error,) = book(row).errors
    assert said in str(error)


# --- swaps --------------------------------------------------------------------------------------------

SWAP = {"type": "swap", "underlying": "EUR", "side": "payer", "fixed_rate": 0.02, "notional": 1e6}
SWAP |= {"start": "2025-10-06", "maturity": "2028-10-06", "floating_frequency": "semiannual"}
SWAP |= {"frequency": "annual"}
RATES = "name,date,value\nEUR 6M,2025-10-06,0.021\n"


def rates_of(*rows: dict, fixings: str = RATES, asof: date = ASOF):
    return risk(book(*rows), market(fixings, asof), hull_white, greeks=False)


@double
def test_a_swap_that_has_started_is_that_of_another_library():
    ql = pytest.importorskip("QuantLib")
    today = ql.Date(7, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    curve = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.03, ql.Actual365Fixed()))
    calendar, roll = ql.TARGET(), ql.ModifiedFollowing
    index = ql.IborIndex(
        *("own", ql.Period("6M"), 0, ql.EURCurrency(), calendar, roll, False, ql.Actual360(), curve)
    )
    index.addFixing(ql.Date(6, 10, 2025), 0.021, True)
    ends = ql.Date(6, 10, 2025), ql.Date(6, 10, 2028)
    legs = [
        ql.Schedule(*ends, ql.Period(p), calendar, roll, roll, ql.DateGeneration.Backward, False)
        for p in ("1Y", "6M")
    ]
    fixed = ql.Thirty360(ql.Thirty360.European)
    peer = ql.VanillaSwap(
        *(ql.VanillaSwap.Payer, 1e6, legs[0], 0.02, fixed, legs[1], index, 0.0, ql.Actual360())
    )
    peer.setPricingEngine(ql.DiscountingSwapEngine(curve))
    (trade,) = rates_of(SWAP).trades
    assert (trade.status, trade.method) == ("ok", "ClosedForm")
    assert trade.position.value == pytest.approx(peer.NPV(), rel=1e-9)


@pytest.mark.costly
@double
@pytest.mark.parametrize("kind", ["swap", "cap"])
def test_the_rate_of_a_period_that_begins_today_moves_with_the_curve_until_it_is_fixed(kind):
    row = SWAP | {"start": str(ASOF), "maturity": "2027-01-07"}
    if kind == "cap":
        row = {name: row[name] for name in ("underlying", "notional", "start", "maturity")}
        row |= {"type": "cap", "strike": 0.02, "frequency": "semiannual"}
    open_, fixed = (
        risk(book(row), market("name,date,value\n" + line), hull_white)
        for line in ("", f"EUR 6M,{ASOF},0.0295\n")
    )
    for found, known in ((open_, ""), (fixed, f"EUR 6M,{ASOF},0.0295\n")):
        today = market("name,date,value\n" + known)
        quotes = [name for name in dict(today.flat_quotes()) if name.startswith("ZERO/RATE")]
        up, down = (
            risk(
                book(row),
                today.with_quotes(dict.fromkeys(quotes, 0.03 + h)),
                hull_white,
                greeks=False,
            ).value
            for h in (1e-5, -1e-5)
        )
        slope = sum(found.sensitivities[name] for name in quotes)
        np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-5)
    assert abs(fixed.sensitivities[quotes[0]] - open_.sensitivities[quotes[0]]) > 1e5


def test_a_swap_without_its_fixing_is_named():
    (trade,) = rates_of(SWAP, fixings="name,date,value\n").trades
    assert "add the row EUR 6M,2025-10-06,VALUE to the fixings" in trade.status


@double
def test_an_exercised_swaption_is_the_swap():
    swaption = SWAP | {"type": "swaption", "expiry": "2025-10-06", "exercised": "2025-10-06"}
    del swaption["start"]
    one, other = rates_of(swaption, SWAP).trades
    assert one.position.value == pytest.approx(other.position.value, rel=1e-12)
    (lapsed,) = rates_of(swaption | {"exercised": ""}).trades
    assert lapsed.status == "expired"


@double
def test_a_coupon_leaves_no_jump():
    """From before a floating coupon to its day, and over the next reset, whose fixing is the curve's."""
    before, after = market(RATES, asof=date(2026, 4, 2)), market(RATES, asof=date(2026, 4, 7))
    found = explain(book(SWAP), before, after, hull_white)  # Easter Monday, the 6th, is a day off
    (paid,) = found.payments
    days = (date(2026, 4, 7) - date(2025, 10, 6)).days
    assert found.cash == pytest.approx(1e6 * 0.021 * days / 360, rel=1e-9) and not paid.is_over
    assert abs(found.residual) < 3e-4 * abs(found.theta)


# --- explain ------------------------------------------------------------------------------------------


@double
def test_expiries_are_a_part_and_leave_no_jump():
    """One trade is paid, one has yet to settle, one lives: all other parts are those of the living trade."""
    rows = [
        PLAIN | {"strike": 99, "expiry": "2026-01-08", "quantity": -4},
        PLAIN | {"strike": 94, "expiry": "2026-01-08", "settlement_lag": 3},
        PLAIN | {"strike": 100, "quantity": 3},
    ]
    fixings = f"{PAST}S,2026-01-08,95.5\n"
    before, after = market(), market(fixings, date(2026, 1, 9), spot=100.4)
    found, alone = (explain(book(*own), before, after, black_scholes) for own in (rows, rows[2:]))
    assert [payment.event for payment in found.payments] == ["expired", "expired"]
    assert [payment.is_over for payment in found.payments] == [True, False]
    (one, other, _) = risk(book(*rows), before, black_scholes).trades
    pending = 1.5 * math.exp(-0.03 * 4 / 365)  # Tuesday, from Friday
    known = -one.position.value + pending - other.position.value
    assert found.cash == 0.0 and found.events == pytest.approx(known, rel=1e-9)
    for part in ("theta", "delta", "gamma", "residual"):
        assert getattr(found, part) == pytest.approx(getattr(alone, part), rel=1e-6)
    assert found.change == pytest.approx(alone.change + found.events, rel=1e-9)
    settled = market(fixings, date(2026, 1, 13), spot=100.4)
    (paid,) = explain(book(*rows), after, settled, black_scholes).payments
    assert (paid.id, paid.cash, paid.event) == ("1", pytest.approx(1.5), "settled")


# --- the fixings file ---------------------------------------------------------------------------------


def test_a_bad_row_of_fixings_is_named_and_left_out():
    text = "date,name,value\n2026-01-05,S,ten\n\n2026-01-06,S,98\n2026-01-06,S,99\n2026-13-01,S,9\n"
    found = Fixings.from_text(text)
    assert dict(found) == {("S", date(2026, 1, 6)): 98.0}
    assert [error.line for error in found.errors] == [2, 5, 6]
    assert "S was 98 on 2026-01-06 in an earlier row" in str(found.errors[1])
    with pytest.raises(UnreadableFile, match="the header has no column value"):
        Fixings.from_text("name,date\nS,2026-01-05\n")
    odd = market("name,date,value\nS,2026-01-05,-1\nEUR 6M,2026-01-05,2.1\n")
    assert len(odd.errors) == 2 and not odd.fixings
    pairs = Market.from_text(json.dumps(MARKET | {"fx": {"EURUSD": {"spot": 1.08}}}))
    odd = pairs.with_fixings(Fixings({("EURUSD", date(2026, 1, 5)): -1.08}))
    assert len(odd.errors) == 1 and not odd.fixings


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("S,2026-01-05,98,5", "the row has 4 cells, the header 3"),  # 98,5 was read as 98
        ("S,2026-01-05,0.98", "0.98 is not a level of S on 2026-01-05"),
        ("S,2026-01-05,98000", "98000 is not a level of S"),
        (
            "S,2026-01-05,980",
            "980 is not a level of S on 2026-01-05: the spot is 100; give it in the unit",
        ),
        ("S,2026-01-05,9.8", "9.8 is not a level of S"),
        (
            "EUR 6M,2025-10-05,0.2",
            "0.2 is not a level of EUR 6M on 2025-10-05: the zero rates of EUR are at",
        ),
        ("s,2026-01-05,98", "the market has no s; did you mean 'S'?"),
        ("EUR6M,2025-10-05,0.02", "did you mean 'EUR 6M'?"),
        ("EUR 6m,2025-10-05,0.02", "did you mean 'EUR 6M'?"),
    ],
)
def test_a_fixing_that_is_another_number_or_name_is_an_error(row, said):
    """A knock at a misspelt name was not seen."""
    (error,) = market(f"name,date,value\n{row}\nOTHER,2026-01-05,7\n").errors
    assert said in str(error)


def test_a_level_far_from_the_spot_is_taken_where_it_is_likely_or_confirmed():
    """One of long ago, and one of a share that has fallen by 90 %."""
    past = "S,2016-01-05,980\nS,2026-01-05,300\nS,2025-12-05,25\n"
    found = market(f"name,date,value\n{past}")
    assert not found.errors
    assert len(found.fixings) == 3
    rows = "S,2026-01-05,1000,yes\nS,2026-01-04,1000,no\n"
    found = market(f"name,date,value,confirmed\n{rows}")
    assert dict(found.fixings) == {("S", date(2026, 1, 5)): 1000.0}
    assert "1000 is not a level of S on 2026-01-04" in str(found.errors[0])


def test_a_column_of_fixings_that_stands_twice_is_refused():
    with pytest.raises(UnreadableFile, match="the column 'value' appears twice"):
        Fixings.from_text("name,date,value,value\nS,2026-01-05,98,100\n")


def test_fixings_of_a_market_file_are_checked_as_those_of_their_own():
    fixings = {"S": {"2026-01-05": 0.98}, "EUR 6m": {"2025-10-05": 0.02}}
    found = Market.from_text(json.dumps(MARKET | {"fixings": fixings}))
    assert not found.fixings
    said = "0.98 is not a level of S on 2026-01-05: the spot is 100", "'EUR 6m'"
    assert all(text in str(error) for text, error in zip(said, found.errors, strict=True))


def test_a_compiled_function_returns_the_fixings_of_its_own_market():
    one, other = market(), market("name,date,value\nS,2026-01-05,98\n")
    same = jax.jit(lambda market: market)
    assert [dict(same(each).fixings) for each in (one, other)] == [
        dict(each.fixings) for each in (one, other)
    ]
    assert one.fixings != other.fixings
