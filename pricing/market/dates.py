"""Dates of swaps: counted back from the end in months, moved to business days, as year fractions.

Calendars are those of the package `holidays` (exchanges and settlement systems, by market identifier code).
"""

import datetime as dt
import functools
import itertools
from calendar import isleap
from typing import NamedTuple

import holidays
import numpy as np

from ..ingestion.fields import FIRST_DAY, LAST_DAY

ROLLS = ("following", "modifiedfollowing", "preceding", "modifiedpreceding")
DAY_COUNTS = ("ACT/365", "ACT/360", "30E/360", "ACT/ACT")


class Leg(NamedTuple):
    """What a swap pays on: year fractions (ACT/365) from today, and what accrues to each payment."""

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
    """The leg of a swap from `start` to `end` that pays every `months` months, at the end of each period.

    Arguments as in `schedule` and `year_fraction`. Raises ValueError if it starts before `asof`.
    """
    if start < asof:
        raise ValueError(f"start {start} is before asof {asof}: give a leg that is still to come")
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
) -> list[dt.date]:
    """Business days from start to end, every `months` months counted back from the end: a stub comes first.

    calendar: a market identifier code known to `holidays` ("XECB": TARGET, "XNYS": New York). roll: what
    becomes of a day off, one of ROLLS.
    """
    if months < 1:
        raise ValueError(f"months must be at least 1, got {months}")
    if end <= start:
        raise ValueError(f"end {end} must be after start {start}")
    _check_roll(roll)
    _check_days(start, end)
    plain, count = [end], 1
    while (date := _months_before(end, count * months)) > start:
        plain.append(date)
        count += 1
    # a year more on both sides: a roll may leave the year
    days = _business_days(calendar, start.year - 1, end.year + 1)
    rolled = np.busday_offset([start, *reversed(plain)], 0, roll=roll, busdaycal=days)  # pyright: ignore
    return [date.item() for date in np.unique(rolled)]


def advance(
    date: dt.date,
    *,
    months: int = 0,
    business_days: int = 0,
    calendar: str = "XECB",
    roll: str | None = "modifiedfollowing",
) -> dt.date:
    """The same day some months on, or that month's last; moved to a business day, then some business days on.

    calendar, roll: as in `schedule`; roll None: a day off stays one, and so `business_days` is 0.
    """
    _check_days(date)
    there = _months_before(date, -months)
    _check_days(there)
    if roll is None:
        return there
    _check_roll(roll)
    days = _business_days(calendar, there.year - 1, there.year + 1)
    return np.busday_offset(there, business_days, roll=roll, busdaycal=days).item()  # pyright: ignore


def year_fraction(start: dt.date, end: dt.date, day_count: str) -> float:
    """From start to end, by one of DAY_COUNTS (ISDA 2006, sec. 4.16; ACT/365 is Fixed, ACT/ACT is ISDA's)."""
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


def _check_roll(roll: str) -> None:
    if roll not in ROLLS:
        raise ValueError(f"roll {roll!r} is unknown: use one of {', '.join(ROLLS)}")


def _check_days(*days: object) -> None:
    """Raise ValueError for what is no day of our calendar; out of Python's, NumPy gives an integer."""
    for day in days:
        if not isinstance(day, dt.date) or not FIRST_DAY <= day <= LAST_DAY:
            span = f"{FIRST_DAY} to {LAST_DAY}"
            raise ValueError(f"{day} is not a day from {span}: give one, and fewer months from it")


def _years_passed(date: dt.date) -> float:
    length = 365 + isleap(date.year)
    return date.year + (date - dt.date(date.year, 1, 1)).days / length


def _months_before(date: dt.date, months: int) -> dt.date:
    """The same day of another month, or that month's last."""
    month = np.datetime64(date, "M") - months
    last = (month + 1).astype("datetime64[D]") - 1
    return min(month.astype("datetime64[D]") + (date.day - 1), last).item()


@functools.cache
def _business_days(calendar: str, first: int, last: int) -> np.busdaycalendar:
    try:
        days_off = holidays.financial_holidays(calendar, years=range(first, last + 1))
    except NotImplementedError:
        known = ", ".join(sorted(holidays.list_supported_financial()))
        raise ValueError(f"calendar {calendar!r} is unknown: use one of {known}") from None
    return np.busdaycalendar(holidays=sorted(days_off))  # pyright: ignore[reportArgumentType]
