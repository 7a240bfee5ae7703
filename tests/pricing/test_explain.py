"""The change of a book's value from one market to the next, explained."""

import json
from dataclasses import replace
from datetime import date, timedelta
from math import log

import jax
import numpy as np
import pytest

from pricing import Book, Market, explain, explain_by_currency, explain_total, risk
from pricing.market import MissingRate, Observed
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

_LATER = json.loads(MARKET) | {"asof": "2026-01-07"}
_LATER["equities"]["T"] = _LATER["equities"]["S"] | {"spot": 40.0}
SEVERAL = json.dumps(_LATER)


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
    assert abs(whole.mixed) < 0.05 * abs(whole.change)
    assert 3.5 < whole.mixed / halved.mixed < 4.5
    assert abs(whole.residual) < 0.05 * abs(whole.mixed)
    assert 6.0 < whole.residual / halved.residual < 10.0


@double
def test_a_day_is_theta_and_nearer_pillars():
    """Quotes stand at their dates while the day passes; the residual is of the third order in time."""
    one, two = (_explained(_market(days)) for days in (1, 2))
    assert one.delta == one.gamma == one.vega == 0.0
    assert abs(one.mixed) < 0.01 * abs(one.theta) and abs(one.residual) < 0.05 * abs(one.mixed)
    assert 3.3 < two.mixed / one.mixed < 4.7
    assert 6.0 < two.residual / one.residual < 10.0


@double
def test_all_moves_at_once_leave_little():
    vols = {q: v + 0.002 for q, v in _market().flat_quotes() if "LNVOL" in q}
    found = _explained(_market(1, **vols, **{SPOT: 100.5, ZERO[0]: 0.0205}))
    parts = (found.theta, found.delta, found.gamma, found.vega, found.rho, found.mixed)
    assert found.explained == pytest.approx(sum(parts), rel=1e-12)
    assert abs(found.residual) < 0.001 * sum(map(abs, parts))
    assert sum(found.by_quote.values()) == pytest.approx(found.delta + found.vega + found.rho)


@double
def test_a_trade_that_fails_is_named_and_in_no_number():
    unknown = BOOK + "d,european,T,1,call,100,2026-01-06,\n"
    found = _explained(_market(2, **{SPOT: 101.0}), unknown)
    without = _explained(_market(2, **{SPOT: 101.0}))
    assert found.skipped == ("d",) and found.trades == 3
    assert found.change == pytest.approx(without.change) and found.gamma == without.gamma


@double
@pytest.mark.parametrize(("fixing", "assumed"), [(None, ("S on 2026-01-06",)), (103.5, ())])
def test_a_trade_that_ended_in_between_is_counted_with_what_it_paid(fixing, assumed):
    """Long 4 calls at 98 that end a day before the market after: its fixing pays, or else its spot."""
    after = _market(2, **{SPOT: 101.0})
    if fixing is not None:
        after = replace(after, fixings=((("S", date(2026, 1, 6)), fixing),))
    found = _explained(after, BOOK + "d,european,S,4,call,98,2026-01-06,\n")
    without = _explained(_market(2, **{SPOT: 101.0}))
    before = risk(
        Book.from_text(HEADER + "d,european,S,4,call,98,2026-01-06,\n"), _market(), black_scholes
    )
    cash = 4.0 * ((fixing or 101.0) - 98.0)
    (paid,) = found.payments
    assert (paid.id, paid.cash, paid.is_over, paid.assumed) == ("d", cash, True, assumed)
    assert (found.skipped, found.trades, found.cash) == ((), 4, cash)
    assert found.before == pytest.approx(without.before + before.value, rel=1e-12)
    assert found.after == pytest.approx(without.after, rel=1e-12)
    assert found.change == pytest.approx(without.change + cash - before.value, rel=1e-9)
    assert found.explained + found.residual == found.change


COLUMNS = [
    "id",
    "type",
    "underlying",
    "option",
    "strike",
    "expiry",
    "payout",
    "amount",
    "barrier",
    "barrier_type",
    "rebate",
    "monitoring_dates",
    "lower",
    "upper",
    "averaging_dates",
    "average",
    "exercise_dates",
    "coupons",
    "protection",
    "initial_spot",
    "notional",
    "call_steps",
    "coupon_barrier",
    "memory",
    "missed",
    "knock_in",
    "watched",
    "other_initial_spots",
    "touch_kind",
    "touched_from",
    "start",
    "extreme",
    "moneyness",
    "local_floor",
    "local_cap",
    "accrued",
    "vol_strike",
    "past_returns",
    "annualization",
    "spread_strike",
    "kind",
    "weights",
    "side",
    "fixed_rate",
    "maturity",
]
WATCHED, DATES = "2026-01-06|2026-01-07", "2026-01-06|2026-06-01"
ON = {"expiry": "2026-01-07", "strike": 100}
CALL = {"option": "call", **ON}
TOUCH = {"touch_kind": "one-touch", "touched_from": "below", "amount": 7, "expiry": "2026-01-07"}
PHOENIX = {"barrier": 105, "protection": 95, "initial_spot": 110, "notional": 10, "missed": 0.03}
PHOENIX |= {"coupon_barrier": 90, "memory": "yes", "knock_in": 94, "watched": "always"}
PHOENIX |= {"call_steps": "1.1|1"}
NOTE = {"barrier": 105, "protection": 95, "initial_spot": 110, "notional": 10}


@pytest.mark.parametrize(
    ("kind", "given", "paid", "left"),
    [
        ("european", CALL, 8.0, None),
        ("european", {"option": "put", **ON}, 0.0, None),
        ("american", CALL, 8.0, None),
        ("european", CALL | {"expiry": "2026-01-08"}, 0.0, {"expiry": date(2026, 1, 8)}),
        ("bermudan", {"option": "call", "strike": 99, "exercise_dates": WATCHED}, 9.0, None),
        (
            *("bermudan", {"option": "call", "strike": 99, "exercise_dates": DATES}),
            *(0.0, {"type": "european", "expiry": date(2026, 6, 1)}),
        ),
        ("digital", CALL | {"amount": 7}, 7.0, None),
        ("digital", CALL | {"amount": 2, "payout": "asset"}, 216.0, None),
        ("digital", CALL | {"strike": 108}, 0.0, None),
        ("asian", {"option": "call", "strike": 100, "averaging_dates": WATCHED}, 1.0, None),
        (
            *("asian", {"option": "put", "strike": 104, "averaging_dates": WATCHED}),
            *(3.0, None),
        ),
        (
            "asian",
            {"option": "call", "strike": 100, "averaging_dates": WATCHED, "average": "geometric"},
            (94.0 * 108.0) ** 0.5 - 100.0,
            None,
        ),
        ("barrier", CALL | {"barrier": 95, "barrier_type": "down-and-out", "rebate": 3}, 3.0, None),
        ("barrier", CALL | {"barrier": 95, "barrier_type": "down-and-in"}, 8.0, None),
        ("barrier", CALL | {"barrier": 90, "barrier_type": "down-and-out"}, 8.0, None),
        ("barrier", CALL | {"barrier": 90, "barrier_type": "down-and-in", "rebate": 2}, 2.0, None),
        ("barrier", CALL | {"barrier": 108, "barrier_type": "up-and-out"}, 0.0, None),
        (
            "barrier",
            {"option": "call", "strike": 100, "expiry": "2026-06-01", "monitoring_dates": DATES}
            | {"barrier": 95, "barrier_type": "down-and-in"},
            0.0,
            {"type": "european", "strike": 100.0, "expiry": date(2026, 6, 1)},
        ),
        (
            "barrier",
            {"option": "call", "strike": 100, "expiry": "2026-06-01", "monitoring_dates": DATES}
            | {"barrier": 90, "barrier_type": "down-and-in"},
            0.0,
            {"type": "barrier", "monitoring_dates": (date(2026, 6, 1),)},
        ),
        (
            "double_knock_out",
            {
                "option": "call",
                "strike": 100,
                "monitoring_dates": WATCHED,
                "lower": 94,
                "upper": 120,
            }
            | {"rebate": 1.5},
            *(1.5, None),
        ),
        (
            "double_knock_out",
            {
                "option": "call",
                "strike": 100,
                "monitoring_dates": WATCHED,
                "lower": 93,
                "upper": 120,
            },
            *(8.0, None),
        ),
        ("autocallable", NOTE | {"exercise_dates": WATCHED, "coupons": "0.1|0.2"}, 12.0, None),
        (
            "autocallable",
            NOTE | {"exercise_dates": WATCHED, "coupons": "0|0", "barrier": 130, "protection": 109},
            *(10.0 * 108.0 / 110.0, None),
        ),
        (
            *("autocallable", NOTE | {"exercise_dates": DATES, "coupons": "0.1|0.2"}),
            *(0.0, {"exercise_dates": (date(2026, 6, 1),), "coupons": (0.2,)}),
        ),
        (
            *("autocallable", PHOENIX | {"exercise_dates": WATCHED, "coupons": "0.1|0.2"}),
            *(10.0 * (0.1 + 0.2 + 0.03 + 1.0), None),
        ),
        (
            "autocallable",
            PHOENIX | {"exercise_dates": DATES, "coupons": "0.1|0.2", "coupon_barrier": 95},
            *(0.0, {"coupons": (0.2,), "missed": 0.13, "knock_in": None}),
        ),
        (
            "autocallable",
            PHOENIX | {"exercise_dates": DATES, "coupons": "0.1|0.2", "memory": "no", "missed": 0},
            *(10.0 * 0.1, {"coupons": (0.2,), "missed": 0.0, "call_steps": (1.0,)}),
        ),
        (
            "autocallable",
            PHOENIX
            | {"underlying": "S|T", "other_initial_spots": 50, "watched": "dates", "barrier": 130}
            | {"exercise_dates": WATCHED, "coupons": "0.1|0.2"},
            # T is at 40 of 50: the worst level is 88
            *(10.0 * 88.0 / 110.0, None),
        ),
        ("touch", TOUCH | {"barrier": 107}, 7.0, None),
        ("touch", TOUCH | {"barrier": 109}, 0.0, None),
        ("touch", TOUCH | {"barrier": 109, "expiry": "2026-06-01"}, 0.0, {"barrier": 109.0}),
        ("touch", TOUCH | {"barrier": 95, "touched_from": "above"}, 7.0, None),
        ("touch", TOUCH | {"barrier": 109, "touch_kind": "no-touch"}, 7.0, None),
        ("touch", TOUCH | {"barrier": 107, "touch_kind": "no-touch"}, 0.0, None),
        (
            "touch",
            TOUCH
            | {"barrier": 95, "touched_from": "above", "touch_kind": "one-touch-at-expiry"}
            | {"expiry": "2026-06-01"},
            *(0.0, {"type": "pending", "amounts": (7.0,)}),
        ),
        ("lookback", {"option": "call", "expiry": "2026-01-07"}, 108.0 - 94.0, None),
        ("lookback", {"option": "put", "expiry": "2026-01-07", "extreme": 110}, 2.0, None),
        ("lookback", CALL | {"monitoring_dates": WATCHED}, 8.0, None),
        (
            "lookback",
            {"option": "put", "strike": 100, "monitoring_dates": DATES, "expiry": "2026-06-01"},
            *(0.0, {"extreme": 94.0, "monitoring_dates": (date(2026, 6, 1),)}),
        ),
        (
            "forward_start",
            {"option": "call", "moneyness": 1.1, "start": "2026-01-06", "expiry": "2026-01-07"},
            *(108.0 - 1.1 * 94.0, None),
        ),
        (
            "forward_start",
            {"option": "call", "moneyness": 0.5, "start": "2026-01-06", "expiry": "2026-06-01"},
            *(0.0, {"type": "european", "strike": 47.0}),
        ),
        (
            "cliquet",
            {"monitoring_dates": WATCHED, "local_cap": 0.1, "initial_spot": 100, "notional": 10},
            *(10.0 * (-0.06 + 0.1), None),
        ),
        (
            "cliquet",
            {"monitoring_dates": DATES, "initial_spot": 100, "local_floor": -0.05, "accrued": 0.1},
            *(0.0, {"accrued": 0.05, "initial_spot": 94.0}),
        ),
        (
            "average_strike",
            {"option": "call", "averaging_dates": WATCHED, "moneyness": 0.5},
            *(108.0 - 0.5 * 101.0, None),
        ),
        (
            "variance_swap",
            {"monitoring_dates": WATCHED, "expiry": "2026-01-07", "vol_strike": 0.2},
            *(252.0 * log(108.0 / 94.0) ** 2 - 0.04, None),
        ),
        (
            "average_strike",
            {"option": "put", "averaging_dates": DATES},
            *(0.0, {"past_sum": 94.0, "num_past": 1.0, "averaging_dates": (date(2026, 6, 1),)}),
        ),
        (
            "variance_swap",
            {"expiry": "2026-06-01", "vol_strike": 0.2, "start": "2026-01-06"},
            *(0.0, {"accrued": log(108.0 / 94.0) ** 2, "past_returns": 252.0 / 365.0}),
        ),
        (
            "variance_swap",
            {
                "monitoring_dates": DATES,
                "expiry": "2026-06-01",
                "vol_strike": 0.2,
                "annualization": 2,
            }
            | {"initial_spot": 90, "accrued": 0.01, "past_returns": 3},
            *(0.0, {"initial_spot": 94.0, "past_returns": 4.0}),
        ),
        (
            "spread",
            {"option": "call", "underlying": "S|T", "spread_strike": 60, "expiry": "2026-01-07"},
            *(108.0 - 40.0 - 60.0, None),
        ),
        ("basket", CALL | {"underlying": "S|T", "strike": 60}, 0.5 * (108.0 + 40.0) - 60.0, None),
        ("basket", CALL | {"underlying": "S|T", "average": "min", "option": "put"}, 60.0, None),
        (
            "basket",
            CALL
            | {"underlying": "S|T", "average": "geometric", "weights": "0.25|0.75", "strike": 50},
            *(108.0**0.25 * 40.0**0.75 - 50.0, None),
        ),
    ],
)
def test_what_each_kind_of_trade_has_paid_by_a_day_and_what_is_left(kind, given, paid, left):
    """Spots of S: 94 on 6 January, 108 on the 7th, the day of the market after; of T 40."""
    cells = {"id": "x", "type": kind, "underlying": "S", **given}
    book = Book.from_text(
        "\n".join([",".join(COLUMNS), ",".join(str(cells.get(c, "")) for c in COLUMNS)])
    )
    (trade,) = book.trades
    later = replace(
        Market.from_text(SEVERAL), fixings=((("S", date(2026, 1, 6)), 94.0),)
    ).with_quotes({SPOT: 108.0})
    cash, found, event, _ = trade.aged(Observed(date(2026, 1, 5), later))
    assert cash == pytest.approx(paid, rel=1e-12)
    assert (found is None) == (left is None)
    knocks_in = kind in ("barrier", "autocallable", "touch") and left is not None
    assert event == "knocked in" if knocks_in and event else (event != "") == (left is None)
    assert {name: getattr(found, name) for name in left or ()} == (left or {})


@pytest.mark.parametrize("kind", ["swaption", "bermudan_swaption"])
def test_a_swaption_that_ended_paid_what_its_swap_was_worth(kind):
    """Annual payments in a year and in two, on the flat continuous rate of 3 %, from the day of the market."""
    dates = {"expiry": "2026-01-07"} if kind == "swaption" else {"exercise_dates": "2026-01-07"}
    cells = {"id": "x", "type": kind, "underlying": "C", "side": "payer", "fixed_rate": "0.01"}
    cells |= {"maturity": "2028-01-07", "notional": "1000", **dates}
    (trade,) = Book.from_text(f"{','.join(cells)}\n{','.join(cells.values())}\n").trades
    flat = '{"asof": "2026-01-07", "curves": {"C": {"zero_rate": 0.03}}, "equities": {}}'
    cash, left, event, _ = trade.aged(Observed(date(2026, 1, 5), Market.from_text(flat)))
    one, two = (np.exp(-0.03 * days / 365.0) for days in (365, 730))
    assert left is None and event == "expired"
    assert cash == pytest.approx(1000.0 * (1.0 - two - 0.01 * (one + two)), rel=1e-6)
    receiver = trade.model_copy(update={"side": "receiver"})
    assert receiver.aged(Observed(date(2026, 1, 5), Market.from_text(flat)))[:2] == (0.0, None)


def test_fixings_are_read_and_checked():
    text = MARKET.replace(
        '"curves"', '"fixings": {"S": {"2026-01-02": 99.5, "2026-01-05": 100}}, "curves"'
    )
    read = Market.from_text(text)
    assert read.errors == () and dict(read.fixings)["S", date(2026, 1, 2)] == 99.5
    for given, said in (
        ('{"S": {"2026-01-06": 99}}', "2026-01-06 is after the as-of date 2026-01-05"),
        ('{"S": {"2026-01-02": -1}}', "-1 is not a positive number"),
        ('{"R": {"2026-01-02": 99}}', "there is no equity 'R' in this file"),
    ):
        wrong = Market.from_text(MARKET.replace('"curves"', f'"fixings": {given}, "curves"'))
        (error,) = wrong.errors
        assert said in str(error) and error.line and not wrong.fixings


@double
def test_each_currency_is_explained_by_itself():
    document = json.loads(SEVERAL)
    document["equities"]["T"]["currency"], document["currency"] = "USD", "EUR"
    before = Market.from_text(json.dumps(document))
    after = before.with_quotes({SPOT: 101.0, "EQUITY/PRICE/T": 39.0})
    head, *rows = BOOK.splitlines()
    other = [row.replace(",S,", ",T,").replace(row[:1], f"{row[:1]}2", 1) for row in rows]
    both = Book.from_text("\n".join([head, *rows, *other]))
    found = explain_by_currency(both, before, after, black_scholes)
    assert list(found) == ["EUR", "USD"]
    for currency, own in (("EUR", rows), ("USD", other)):
        alone = explain(Book.from_text("\n".join([head, *own])), before, after, black_scholes)
        assert found[currency].parts == pytest.approx(alone.parts, rel=1e-9, abs=1e-12)
        assert found[currency].by_quote == pytest.approx(alone.by_quote, rel=1e-9)
    with pytest.raises(ValueError, match="in EUR and USD: explain each currency"):
        explain(both, before, after, black_scholes)


@double
def test_a_total_in_one_currency_has_a_part_of_fx_rates():
    """The change is that of `risk` in the currency; an option that expires pays at the rate after."""
    document = json.loads(SEVERAL) | {"currency": "EUR"}
    document["asof"] = "2026-01-05"
    document["equities"]["S"]["currency"], document["equities"]["T"]["currency"] = "EUR", "USD"
    document["fx"] = {"EURUSD": {"spot": 1.1}}
    before = Market.from_text(json.dumps(document))
    assert before.errors == ()
    moves = {SPOT: 101.0, "EQUITY/PRICE/T": 39.0, "FX/RATE/EUR/USD": 1.25}
    later = Market.from_text(json.dumps(document | {"asof": "2026-01-07"}))
    after = later.with_quotes(moves)
    head, *rows = BOOK.splitlines()
    other = [row.replace(",S,", ",T,").replace(row[:1], f"{row[:1]}2", 1) for row in rows]
    ends = "e,european,T,2,call,30,2026-01-07,"
    lasting = Book.from_text("\n".join([head, *rows, *other]))
    both = Book.from_text("\n".join([head, *rows, *other, ends]))
    each = explain_by_currency(both, before, after, black_scholes)
    found = explain_total(each, before, after)
    then = risk(both, before, black_scholes, greeks=False).value
    now = risk(lasting, after, black_scholes, greeks=False).value
    assert found.before == pytest.approx(then, rel=1e-12)
    assert found.cash == pytest.approx(2.0 * 9.0 / 1.25, rel=1e-12)
    assert found.after == pytest.approx(now, rel=1e-12)
    in_dollars = each["USD"].before + each["USD"].change
    assert found.fx == pytest.approx((1.0 / 1.25 - 1.0 / 1.1) * in_dollars, rel=1e-12)
    assert sum(found.parts.values()) == pytest.approx(found.change, rel=1e-12)
    residual = each["EUR"].residual + each["USD"].residual / 1.1
    assert found.residual == pytest.approx(residual, rel=1e-9, abs=1e-12)
    assert "fx" not in each["USD"].parts and found.trades == 7
    in_pounds = pytest.raises(MissingRate, match="GBP")
    with in_pounds:
        explain_total(each, before, after, "GBP")


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


@pytest.mark.parametrize("change", [{"currency": "USD"}, {"curve_currency": "USD"}])
def test_a_trade_that_changes_its_currency_is_refused(change):
    """Its value in the market after was left out, as if it had become worthless."""
    later = json.loads(MARKET)
    later |= {name: own for name, own in change.items() if name == "currency"}
    if "curve_currency" in change:
        later["curves"]["C"]["currency"] = "USD"
    said = r"trade a on S is in no currency in the market before and in USD in the market after"
    with pytest.raises(ValueError, match=said):
        _explained(Market.from_text(json.dumps(later)))


def test_a_delta_that_passes_a_strike_is_refused():
    """Each vol was compared with the other's."""

    def market(vol: float) -> Market:
        quotes = [{"days": 200, "strike": 108.0, "vol": 0.2}]
        quotes.append({"days": 200, "delta": 0.25, "vol": vol})
        document = json.loads(MARKET)
        share = {"curve": "C", "spot": 100.0, "option_quotes": quotes}
        return Market.from_text(json.dumps(document | {"equities": {"S": share}}))

    with pytest.raises(ValueError, match=r"another order in the market after, from .*/108. on"):
        explain(Book.from_text(BOOK), market(0.2), market(0.1), black_scholes)


def test_no_move_changes_nothing():
    found = _explained(_market())
    assert found.change == found.explained == 0.0 and not found.by_quote
    assert np.isfinite(jax.tree.leaves(found.by_quote)).all()
