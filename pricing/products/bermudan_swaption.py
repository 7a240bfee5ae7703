"""Bermudan swaptions."""

from dataclasses import replace
from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, accruals, choice, dates, real
from ..ingestion.errors import listed
from ..ingestion.fields import problem
from ..market.dates import advance
from ..market.observed import Observed
from .exercise import EarlyExercise
from .exercised_swap import ExercisedIntoSwap
from .product import Padded, extra_dates, front
from .rate_trade import RateTrade
from .swap_entry import PAYER_OR_RECEIVER, SwapOption
from .trade import Aged, IsoDate, IsoDates, last_of


class BermudanSwaption(EarlyExercise, SwapOption, Padded):
    """A Bermudan swaption is the right to enter the rest of a swap at one of some dates.

    Exercised at t, it pays the coupons at all payment dates after t, for a floating leg worth 1 - P(t, last
    payment). Payment dates and exercise dates may differ.

    Attributes:
        strike: The fixed rate per year.
        exercise_dates: When the swap may be entered, in years, not decreasing, of shape (exercises,).
        payment_dates: The payment dates of the fixed leg in years, not decreasing, of shape (payments,); the
            last one ends the floating leg.
        accruals: The year fraction of each coupon, of shape (payments,).
        side: The word "payer" or "receiver" of the fixed leg, kept as the code +1 or -1.
        notional: The notional in currency.

    Raises:
        ValueError: If accruals and payment dates differ in number, or no payment is left after the last
            entry.

    Examples:
        >>> swaption = BermudanSwaption(0.03, [0.5, 1.5], [1.5, 2.5], [1.0, 1.0])
        >>> swaption.exercise_times().tolist()
        [0.5, 1.5]
    """

    strike: Numeric[Float[Array, "..."]] = real("strike")
    exercise_dates: Numeric[Float[Array, "*#batch exercises"]] = dates(
        "exercise_dates", repeated=True
    )
    payment_dates: Numeric[Float[Array, "*#batch payments"]] = dates("payment_dates", repeated=True)
    accruals: Numeric[Float[Array, "*#batch payments"]] = accruals()
    side: Word[Int8[Array, "..."]] = choice("side", PAYER_OR_RECEIVER, default="payer")
    notional: Numeric[Float[Array, "..."]] = real("notional", default=1.0)

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.exercise_dates

    def padded(self, num_dates: int) -> "BermudanSwaption":
        """Return the same right on `num_dates` exercise dates: the first one repeated."""
        extra = extra_dates(self.exercise_dates, num_dates)
        return replace(self, exercise_dates=front(self.exercise_dates, extra))


class BermudanSwaptionTrade(ExercisedIntoSwap):
    """The right to enter the rest of a swap on one of some dates, each the first of one of its periods."""

    type = "bermudan_swaption"
    product = BermudanSwaption
    renamed: ClassVar[dict[str, str]] = {
        "strike": "fixed_rate",
        "exercise_dates": "exercise_days",
        "payment_dates": "all_payment_dates",
        "accruals": "all_accruals",
    }
    dates_name = "exercise_dates"
    drops_dates = True

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-07-07|2004-07-05")
    expiry: IsoDate = last_of("exercise_dates")

    @property
    def swap_from(self) -> date:
        return self.exercise_dates[0]

    @property
    def exercise_days(self) -> tuple[date, ...]:
        """The exercise dates, moved to business days."""
        return tuple(advance(day, calendar=self.calendar) for day in self.exercise_dates)

    @property
    def shape(self) -> int:
        return len(self.payment_dates) + self._past_payments

    @property
    def _past_payments(self) -> int:
        """The number of payments that the swap has no more, since the first exercise date has passed."""
        assert isinstance(self.row, RateTrade)
        return max(len(self.row.payment_dates) - len(self.payment_dates), 0)

    @property
    def all_payment_dates(self) -> tuple[date, ...]:
        """As many payment dates as in the book: for those that the swap has no more, its first one."""
        return (*self.payment_dates[:1] * self._past_payments, *self.payment_dates)

    @property
    def all_accruals(self) -> tuple[float, ...]:
        """The year fraction of each coupon, 0 of those that the swap has no more."""
        return (*(0.0,) * self._past_payments, *self.accruals)

    def aged(self, observed: Observed) -> Aged:
        if self.exercised is not None and self.exercised <= observed.until:
            return self.exercised_into(self.exercised, observed)
        return super().aged(observed)

    def check(self) -> None:
        super().check()
        if self.exercised not in (None, *self.exercise_dates, *self.exercise_days):
            message = f"{self.exercised} is not one of the exercise_dates"
            raise problem(message, "give the date on which it was exercised", "exercised")
        begins = self.swap_dates[:-1]
        odd = [day for day in self.exercise_days if day not in begins]
        if odd:
            message = f"no period of the swap to {self.maturity} begins on {odd[0]}"
            remedy = f"give dates among {listed(begins)}, or another frequency"
            raise problem(message, remedy, "exercise_dates")

    def payoff(self, observed: Observed) -> float:
        return self.entered(self.exercise_days[-1], observed)
