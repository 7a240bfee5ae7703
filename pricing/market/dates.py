"""Swap dates: counted back from the end in months, adjusted to business days, as year fractions.

Calendars come from the package `holidays` (exchanges and settlement systems, by market identifier code).
"""

import datetime as dt
import functools
import itertools
from calendar import isleap, monthrange
from typing import NamedTuple

import holidays
import numpy as np

from ..ingestion.field_types import FIRST_DAY, LAST_DAY

ROLLS = ("following", "modifiedfollowing", "preceding", "modifiedpreceding")
"""Business-day conventions: following, preceding, and modified following (within the month)."""

DAY_COUNTS = ("ACT/365", "ACT/360", "30E/360", "ACT/ACT")
"""Day-count conventions: the year fraction between two dates."""


class Leg(NamedTuple):
    """The payment times of one leg of a swap, and the accruals of its payments.

    Attributes:
        start: The time from which interest accrues, in years (ACT/365) from today.
        payment_dates: The payment times in years (ACT/365) from today, of shape (payments,).
        accruals: The year fraction of each payment, of shape (payments,).

    Examples:
        >>> from datetime import date
        >>> from pricing.market import leg
        >>> leg(date(2024, 1, 2), date(2024, 1, 2), date(2026, 1, 2), 12).accruals.tolist()
        [1.0, 1.0]
    """

    start: float
    payment_dates: np.ndarray
    accruals: np.ndarray


def leg(
    asof: dt.date,
    start: dt.date,
    end: dt.date,
    months: int,
    *,
    calendar: str = "XECB",
    roll: str = "modifiedfollowing",
    day_count: str = "30E/360",
) -> Leg:
    """Return the leg of a swap that pays at the end of each period.

    Args:
        asof: Today, from which times are measured.
        start: The day from which interest accrues; not before `asof`.
        end: The day of the last payment, unadjusted.
        months: The months between two payments, counted back from the end.
        calendar: A market identifier code known to `holidays` ("XECB": TARGET, "XNYS": New York).
        roll: The business-day convention, one of `ROLLS`.
        day_count: The day count of the accruals, one of `DAY_COUNTS`.

    Returns:
        The leg, in years from `asof`.

    Raises:
        ValueError: The leg starts before `asof`, or a convention, day count or calendar is unknown.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import leg
        >>> found = leg(date(2024, 1, 2), date(2024, 7, 2), date(2025, 7, 2), 6, day_count="ACT/360")
        >>> [round(float(accrual), 4) for accrual in found.accruals]
        [0.5111, 0.5028]
    """
    if start < asof:
        raise ValueError(
            f"start {start} is before asof {asof}: give a leg that starts on or after asof"
        )
    dates = schedule(start, end, months, calendar=calendar, roll=roll)
    times = np.array([year_fraction(asof, date, "ACT/365") for date in dates])
    accruals = [year_fraction(*period, day_count) for period in itertools.pairwise(dates)]
    return Leg(float(times[0]), times[1:], np.array(accruals))


def schedule(
    start: dt.date,
    end: dt.date,
    months: int,
    *,
    calendar: str = "XECB",
    roll: str = "modifiedfollowing",
    end_of_month: bool = False,
) -> list[dt.date]:
    """Return the business days of a schedule, counted back from the end in months, with a front stub.

    Args:
        start: The first day, unadjusted.
        end: The last day, unadjusted.
        months: The months between two days; at least 1.
        calendar: A market identifier code known to `holidays` ("XECB": TARGET, "XNYS": New York).
        roll: The business-day convention, one of `ROLLS`.
        end_of_month: Whether the intermediate days fall on the last days of their months, before adjustment, if
            the end is the last business day of its month.

    Returns:
        The days in increasing order, including start and end.

    Raises:
        ValueError: The end is not after the start, or a convention or calendar is unknown.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import schedule
        >>> [str(day) for day in schedule(date(2024, 1, 15), date(2024, 8, 31), 3)]
        ['2024-01-15', '2024-02-29', '2024-05-31', '2024-08-30']
    """
    if months < 1:
        raise ValueError(f"months must be at least 1, got {months}")
    if end <= start:
        raise ValueError(f"end {end} must be after start {start}")
    _check_days(start, end)
    back = (_months_before(end, count * months) for count in itertools.count())
    plain = list(itertools.takewhile(lambda date: date > start, back))
    if end_of_month and is_last_business_day(end, calendar):
        plain[1:] = map(_last_of_month, plain[1:])
    return sorted(set(_moved([start, *reversed(plain)], 0, calendar, roll)))


def is_last_business_day(day: dt.date, calendar: str) -> bool:
    """Return True if no business day of the month comes after a day."""
    return _moved([day + dt.timedelta(1)], 0, calendar, "following")[0].month != day.month


def advance(
    date: dt.date,
    *,
    months: int = 0,
    business_days: int = 0,
    calendar: str = "XECB",
    roll: str | None = "modifiedfollowing",
) -> dt.date:
    """Return a day moved by months, adjusted to a business day, then moved by business days.

    In a month that is too short, the last day is taken.

    Args:
        date: The start day.
        months: The number of months to move; negative moves back.
        business_days: The number of business days to move afterwards.
        calendar: A market identifier code known to `holidays` ("XECB": TARGET, "XNYS": New York).
        roll: The business-day convention, one of `ROLLS`; None leaves the day unadjusted and ignores
            `business_days`. An unknown rule or calendar, and a day beyond the calendar, raise ValueError.

    Returns:
        The day.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import advance
        >>> str(advance(date(2024, 1, 31), months=1)), str(advance(date(2024, 3, 28), business_days=1))
        ('2024-02-29', '2024-04-02')
    """
    _check_days(date)
    there = _months_before(date, -months)
    _check_days(there)
    return there if roll is None else _moved([there], business_days, calendar, roll)[0]


def business_days(start: dt.date, end: dt.date, calendar: str = "XECB") -> list[dt.date]:
    """Return the business days from start to end, inclusive.

    Args:
        start: The first day.
        end: The last day.
        calendar: A market identifier code known to `holidays` ("XECB": TARGET, "XNYS": New York); another
            one raises ValueError.

    Returns:
        The days in increasing order.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import business_days
        >>> [day.day for day in business_days(date(2024, 3, 27), date(2024, 4, 3))]
        [27, 28, 2, 3]
    """
    _check_days(start, end)
    days = np.arange(np.datetime64(start), np.datetime64(end) + np.timedelta64(1, "D"))
    known = _business_days(calendar, start.year - 1, end.year + 1)
    return days[np.is_busday(days, busdaycal=known)].tolist()


def year_fraction(start: dt.date, end: dt.date, day_count: str) -> float:
    """Return the years from start to end by a day count (ISDA Definitions 2006, section 4.16).

    Args:
        start: The first day.
        end: The last day.
        day_count: One of `DAY_COUNTS`: ACT/365 is ACT/365 Fixed, ACT/ACT is ACT/ACT ISDA.

    Returns:
        The fraction of a year, negative if the end is before the start.

    Raises:
        ValueError: The day count is unknown.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import year_fraction
        >>> year_fraction(date(2024, 1, 31), date(2024, 7, 31), "30E/360")
        0.5
    """
    days = (end - start).days
    match day_count:
        case "ACT/365":
            return days / 365.0
        case "ACT/360":
            return days / 360.0
        case "30E/360":
            thirds = 360 * (end.year - start.year) + 30 * (end.month - start.month)
            return (thirds + min(end.day, 30) - min(start.day, 30)) / 360.0
        case "ACT/ACT":
            return _years_passed(end) - _years_passed(start)
    raise ValueError(f"day count {day_count!r} is unknown: use one of {', '.join(DAY_COUNTS)}")


def _moved(dates: list[dt.date], business_days: int, calendar: str, roll: str) -> list[dt.date]:
    """Return increasing days, each adjusted to a business day, then moved by business days.

    Raises:
        ValueError: The convention is unknown.
    """
    if roll not in ROLLS:
        raise ValueError(f"roll {roll!r} is unknown: use one of {', '.join(ROLLS)}")
    # one more year on both sides: an adjusted day may leave the year
    known = _business_days(calendar, dates[0].year - 1, dates[-1].year + 1)
    return np.busday_offset(dates, business_days, roll=roll, busdaycal=known).tolist()  # pyright: ignore


def _check_days(*days: object) -> None:
    """Check that these are days of Python's calendar; beyond its end, NumPy gives an integer.

    Raises:
        ValueError: A day is outside the calendar.
    """
    for day in days:
        if not isinstance(day, dt.date) or not FIRST_DAY <= day <= LAST_DAY:
            span = f"{FIRST_DAY} to {LAST_DAY}"
            raise ValueError(f"{day} is not a day from {span}: give one, and fewer months from it")


def _years_passed(date: dt.date) -> float:
    length = 365 + isleap(date.year)
    return date.year + (date - dt.date(date.year, 1, 1)).days / length


def _months_before(date: dt.date, months: int) -> dt.date:
    """Return the same day some months before, or the last day of that month."""
    month = np.datetime64(date, "M") - np.timedelta64(months, "M")
    next_month = month + np.timedelta64(1, "M")
    day = month.astype("datetime64[D]") + np.timedelta64(date.day - 1, "D")
    return min(day, next_month.astype("datetime64[D]") - np.timedelta64(1, "D")).item()


def _last_of_month(day: dt.date) -> dt.date:
    return day.replace(day=monthrange(day.year, day.month)[1])


@functools.cache
def _business_days(calendar: str, first: int, last: int) -> np.busdaycalendar:
    """Return the business-day calendar from one year to another.

    Raises:
        ValueError: There is no such calendar.
    """
    try:
        days_off = holidays.financial_holidays(calendar, years=range(first, last + 1))
    except NotImplementedError:
        known = ", ".join(sorted(holidays.list_supported_financial()))
        raise ValueError(f"calendar {calendar!r} is unknown: use one of {known}") from None
    return np.busdaycalendar(holidays=sorted(days_off))  # pyright: ignore[reportArgumentType]
