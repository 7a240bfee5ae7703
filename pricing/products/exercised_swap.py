"""The common part of rows of swaptions, which become swaps when exercised."""

import functools
from collections.abc import Hashable
from datetime import date
from typing import Annotated

from ..ingestion.field_types import number, problem
from ..market.conventions import DayCount, Frequency
from ..market.dates import advance
from ..market.observed import Observed, UnknownPast
from .rate_trade import RateTrade
from .swap import SwapTrade
from .trade import Aged, IsoDate

ExerciseLag = Annotated[float, number("exercise_lag", least=0.0, most=60.0)]


class ExercisedIntoSwap(RateTrade):
    """The common part of swaptions, whose exercise starts a swap.

    Attributes:
        floating_frequency: The frequency of the swap's floating leg; by default that of the fixed leg.
        floating_day_count: The day count of the swap's floating leg.
        exercised: The day on which it was exercised, or None.
        exercise_lag: The business days from the exercise to the start of the swap.
    """

    floating_frequency: Frequency | None = None
    floating_day_count: DayCount = "ACT/360"
    exercised: IsoDate | None = None
    exercise_lag: ExerciseLag = 0.0

    @property
    def shape(self) -> Hashable:
        return len(self.payment_dates), self.starts_later

    @property
    def starts_later(self) -> bool:
        """Whether a swap may start on another day than its exercise date."""
        return self.exercise_lag > 0.0

    def start_after(self, day: date) -> date:
        """Return the earliest start date of a swap.

        Args:
            day: The exercise date, unadjusted.
        """
        return advance(day, business_days=int(self.exercise_lag), calendar=self.calendar)

    def check(self) -> None:
        if self.exercise_lag % 1.0:
            message = f"{self.exercise_lag:g} is not a whole number of business days"
            raise problem(message, "give an exercise_lag such as 5", "exercise_lag")
        super().check()

    @property
    def end(self) -> date:
        return self.expiry if self.exercised is None else self.maturity

    def exercised_into(self, day: date, observed: Observed) -> Aged:
        """Return the swap entered on a day, aged to a later day.

        Args:
            day: The day on which the swap starts.
            observed: The levels up to a later day.
        """
        found = self._as(SwapTrade, start=day).aged(observed)
        if found.trade is None:
            return found
        return found._replace(event="exercised", day=self.exercised)

    def entered(self, day: date, start: date, observed: Observed) -> float:
        """Return the value of one contract's swap entered on a day, on the later day's curve, floored at 0.

        Args:
            day: The exercise date.
            start: The start date.
            observed: The later day's curve.

        Raises:
            UnknownPast: The day is before `Observed.since`, and its curve is unknown.
        """
        if day < min(observed.since, observed.until):
            message = f"the curve {self.underlying} on {day}, a possible exercise day, is unknown"
            raise UnknownPast(
                message, "if it was exercised, give that day as exercised; else remove the trade"
            )
        if day < observed.until:
            observed.assumed.append(f"the curve {self.underlying} on {day}")
        swap = self._as(SwapTrade, start=start)
        discount = functools.partial(observed.discount, self.underlying)
        periods = zip(swap.payment_dates, swap.accruals, strict=True)
        fixed = sum(accrual * discount(paid) for paid, accrual in periods)
        floating = discount(start) - discount(swap.payment_dates[-1])
        sign = 1.0 if self.side == "payer" else -1.0
        return self.notional * max(sign * (floating - self.fixed_rate * fixed), 0.0)
