"""Past days of continuously monitored levels."""

from collections.abc import Callable
from datetime import date

from ..ingestion.field_types import problem
from ..market.observed import Observed, UnknownPast


def check_watch(
    expiry: date,
    start: date | None,
    dates: tuple[date, ...] | None = None,
    knocked: date | None = None,
) -> None:
    """Check that the monitoring days of a row are consistent.

    Args:
        expiry: The last day.
        start: The first day of continuous monitoring, or None.
        dates: The monitoring dates, or None.
        knocked: The day on which the level was touched, or None.

    Raises:
        problem: They are inconsistent; a `PydanticCustomError` with a remedy.
    """
    if start is not None and dates is not None:
        message = "there are monitoring_dates, and a start is given"
        raise problem(message, "leave it empty: the spot is watched on its dates", "start")
    for name, day in (("start", start), ("knocked", knocked)):
        if day is not None and day > expiry:
            raise problem(
                f"{day} is after the expiry {expiry}", "give a day up to the expiry", name
            )


def check_corridor(lower: float, upper: float) -> None:
    """Check that a row's lower barrier is below its upper one.

    Args:
        lower: The lower barrier.
        upper: The upper barrier.

    Raises:
        problem: The lower barrier is not below the upper one; a `PydanticCustomError` with a remedy.
    """
    if lower >= upper:
        message = f"the upper barrier, {upper:g}, is not above the lower one, {lower:g}"
        raise problem(message, "give an upper barrier > lower", "upper")


def days_watched(
    observed: Observed, name: str, start: date | None, expiry: date
) -> tuple[date, ...]:
    """Return the past monitoring days with a known spot, in order.

    They begin at the start or, without one, at the first fixing. Today's spot is left to the product, unless
    today is the expiry.

    Args:
        observed: The levels.
        name: The equity.
        start: The first day; None if unknown.
        expiry: The last day.

    Raises:
        UnknownPast: The start lies in the future: a product is monitored from today.
    """
    if start is not None and start > observed.until:
        raise UnknownPast(
            f"the level is watched from {start} on, after the market's as-of date {observed.until}",
            "give monitoring_dates from that day on, if the type has them, or value it from that day on",
        )
    known = {*observed.days(name)[:-1]}
    known |= {expiry} if expiry <= observed.until else set()
    return tuple(day for day in sorted(known) if (start or date.min) <= day <= expiry)


def first_touch(
    observed: Observed,
    name: str,
    start: date | None,
    expiry: date,
    touches: Callable[[float], bool],
) -> date | None:
    """Return the first known day on which a spot touches a level, or None.

    Args:
        observed: The levels.
        name: The equity.
        start: The first day on which the level is monitored; None if unknown.
        expiry: The last day.
        touches: Whether a spot touches the level.

    Raises:
        UnknownPast: A fixing touches the level, and it is unknown whether that was before the trade.
    """
    days = days_watched(observed, name, start, expiry)
    hit = next((day for day in days if touches(observed.spot(name, day))), None)
    if hit is not None and start is None and hit < min(observed.since, expiry):
        raise UnknownPast(
            f"{name} was beyond the barrier on {hit}, and the row does not say since when the barrier is "
            "watched",
            "give start, the first day, or knocked, the day of the knock",
        )
    return hit
