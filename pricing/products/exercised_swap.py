"""The common part of rows of swaptions: exercised, they are swaps."""

from datetime import date

from ..market.conventions import DayCount, Frequency
from ..market.observed import Observed
from .rate_trade import RateTrade
from .swap import SwapTrade
from .trade import Aged, IsoDate


class ExercisedIntoSwap(RateTrade):
    """The common part of swaptions, which may be exercised into a swap that starts then.

    Attributes:
        floating_frequency: The frequency of the swap's floating leg, by default that of the fixed one.
        floating_day_count: The day count of the swap's floating leg.
        exercised: The day on which it was exercised, or None.
    """

    floating_frequency: Frequency | None = None
    floating_day_count: DayCount = "ACT/360"
    exercised: IsoDate | None = None

    @property
    def end(self) -> date:
        return self.expiry if self.exercised is None else self.maturity

    def exercised_into(self, day: date, observed: Observed) -> Aged:
        """Return the swap that was entered on a day, as it is later.

        Args:
            day: The day of the exercise, from which on interest accrues.
            observed: The levels up to a later day.
        """
        found = self._as(SwapTrade, start=day).aged(observed)
        return found if found.trade is None else found._replace(event="exercised", day=day)
