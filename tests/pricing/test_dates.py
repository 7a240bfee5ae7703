"""Schedules and day counts beside QuantLib's."""

import datetime as dt

import numpy as np
import pytest

from pricing import BermudanSwaption, Book, HullWhite, Quadrature, Swap, price
from pricing.market import DAY_COUNTS, ROLLS, advance, leg, schedule, year_fraction
from tests.helpers import double

TODAY = dt.date(2025, 3, 14)


def days(seed: int, count: int) -> list[dt.date]:
    dice = np.random.default_rng(seed)
    return [TODAY + dt.timedelta(int(n)) for n in dice.integers(0, 9000, count)]


@pytest.mark.parametrize("day_count", DAY_COUNTS)
def test_day_counts_are_those_of_quantlib(day_count):
    ql = pytest.importorskip("QuantLib")
    theirs = {
        "ACT/365": ql.Actual365Fixed(),
        "ACT/360": ql.Actual360(),
        "30E/360": ql.Thirty360(ql.Thirty360.European),
        "ACT/ACT": ql.ActualActual(ql.ActualActual.ISDA),
    }[day_count]
    for start, end in zip(days(1, 200), days(2, 200), strict=True):
        start, end = sorted((start, end))
        expected = theirs.yearFraction(ql.Date.from_date(start), ql.Date.from_date(end))
        assert year_fraction(start, end, day_count) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("roll", ROLLS)
@pytest.mark.parametrize("months", [1, 3, 6, 12])
def test_schedules_are_those_of_quantlib(roll, months):
    ql = pytest.importorskip("QuantLib")
    rule = {
        "following": ql.Following,
        "modifiedfollowing": ql.ModifiedFollowing,
        "preceding": ql.Preceding,
        "modifiedpreceding": ql.ModifiedPreceding,
    }[roll]
    for start, years in zip(
        days(3, 25), np.random.default_rng(4).uniform(0.3, 12.0, 25), strict=True
    ):
        end = start + dt.timedelta(int(365 * years))
        ends = ql.Date.from_date(start), ql.Date.from_date(end), ql.Period(months, ql.Months)
        theirs = ql.Schedule(*ends, ql.TARGET(), rule, rule, ql.DateGeneration.Backward, False)
        assert schedule(start, end, months, roll=roll) == [date.to_date() for date in theirs]


@pytest.mark.parametrize("months", [1, 3, 6, 12])
def test_the_rule_of_the_end_of_month_is_that_of_quantlib(months):
    """From the last business day of a month, or from one long before it, to the last day or another."""
    ql = pytest.importorskip("QuantLib")
    moved = 0
    for index, (start, end) in enumerate(zip(days(5, 150), days(6, 150), strict=True)):
        begin, end = sorted((start, end))
        last = (end.replace(day=1) + dt.timedelta(32)).replace(day=1) - dt.timedelta(1)
        end = (last, last - dt.timedelta(1), last - dt.timedelta(2), end)[index % 4]
        begin = begin.replace(day=min(begin.day, 26))
        ends = ql.Date.from_date(begin), ql.Date.from_date(end), ql.Period(months, ql.Months)
        rule = ql.ModifiedFollowing
        theirs = ql.Schedule(*ends, ql.TARGET(), rule, rule, ql.DateGeneration.Backward, True)
        found = schedule(begin, end, months, end_of_month=True)
        assert found == [date.to_date() for date in theirs]
        moved += found != schedule(begin, end, months)
    assert moved > 3


def test_rows_have_the_rule_of_the_end_of_month():
    """From a maturity of 28 February, coupons are on the last business days of August."""
    header = "id,type,underlying,side,fixed_rate,start,maturity,frequency,strike,end_of_month"
    rows = (
        "S,swap,EUR,payer,0.02,2025-08-29,2029-02-28,semiannual,,yes",
        "N,swap,EUR,payer,0.02,2025-08-29,2029-02-28,semiannual,,no",
        "C,cap,EUR,,,2025-08-29,2029-02-28,semiannual,0.02,yes",
        "F,fra,EUR,payer,0.02,2025-08-29,2026-02-27,,,yes",
        "X,swap,EUR,payer,0.02,2025-08-29,2029-02-28,semiannual,,maybe",
    )
    book = Book.from_text("\n".join([header, *rows]))
    swap, plain, cap = book.trades
    last = [dt.date(2026, 8, 31), dt.date(2027, 8, 31), dt.date(2028, 8, 31)]
    assert list(swap.swap_dates[2:7:2]) == last == list(cap.days[2:7:2])
    assert list(plain.swap_dates[2:7:2]) == [
        dt.date(2026, 8, 28),
        dt.date(2027, 8, 30),
        dt.date(2028, 8, 28),
    ]
    fra, odd = map(str, book.errors)
    assert "an FRA has no dates between" in fra and "end_of_month" in odd


def test_the_last_day_of_a_month_is_kept_where_there_is_one():
    found = schedule(dt.date(2023, 8, 31), dt.date(2024, 8, 30), 6, roll="following")
    assert found == [dt.date(2023, 8, 31), dt.date(2024, 2, 29), dt.date(2024, 8, 30)]


def test_advancing_is_that_of_quantlib():
    """By months and to a business day; then by business days."""
    ql = pytest.importorskip("QuantLib")
    target, rule = ql.TARGET(), ql.ModifiedFollowing
    for start, months in zip(days(5, 50), range(50), strict=True):
        there = target.advance(ql.Date.from_date(start), ql.Period(months, ql.Months), rule)
        assert advance(start, months=months) == there.to_date()
        later = target.advance(there, ql.Period(2, ql.Days)).to_date()
        assert advance(start, months=months, business_days=2) == later
    assert advance(dt.date(2024, 8, 31), months=6, roll=None) == dt.date(2025, 2, 28)


@double
def test_a_leg_makes_a_swap_and_a_bermudan_swaption():
    """The swap at its fair rate is worth nothing; the right to enter it is worth more."""
    start, end = dt.date(2026, 3, 16), dt.date(2031, 3, 14)
    found = leg(TODAY, start, end, 12)
    model = HullWhite(0.03, 0.05, 0.01)
    bonds = np.exp(-0.03 * found.payment_dates)
    fair = (np.exp(-0.03 * found.start) - bonds[-1]) / (found.accruals @ bonds)
    assert price(Swap(fair, *found), model).value == pytest.approx(0.0, abs=1e-12)
    dates = np.concatenate([[found.start], found.payment_dates[:-1]])
    right = BermudanSwaption(fair, dates, found.payment_dates, found.accruals)
    assert price(right, model, Quadrature()).value > 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calendar": "MARS"}, "calendar 'MARS' is unknown: use one of .*XECB"),
        ({"roll": "sideways"}, "roll 'sideways' is unknown: use one of following"),
        ({"day_count": "31/360"}, "day count '31/360' is unknown: use one of ACT/365"),
        ({"months": 0}, "months must be at least 1, got 0"),
        ({"end": dt.date(2025, 1, 1)}, "end 2025-01-01 must be after start"),
        ({"start": dt.date(2025, 1, 1)}, "start 2025-01-01 is before asof 2025-03-14"),
    ],
)
def test_mistakes_are_named(change, message):
    terms = {"asof": TODAY, "start": dt.date(2026, 3, 16), "end": dt.date(2031, 3, 14), "months": 6}
    with pytest.raises(ValueError, match=message):
        leg(**terms | change)
