"""Bermudan swaptions."""

import bisect
import functools
from collections.abc import Hashable
from dataclasses import replace
from datetime import date
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, accruals, choice, dates, real, real_vector
from ..ingestion.errors import listed
from ..ingestion.field_types import choice as choice_of
from ..ingestion.field_types import problem
from ..market.conventions import MONTHS
from ..market.dates import advance, year_fraction
from ..market.observed import Observed
from .exercise_rights import EarlyExercise
from .exercised_swap import ExercisedIntoSwap
from .product import Padded, extra_dates, front
from .rate_trade import RateTrade
from .swap_entry import PAYER_OR_RECEIVER, EntryTerms, SwapOption
from .trade import Aged, IsoDate, IsoDates, last_of

BetweenCoupons = Annotated[
    Literal["next-period", "short-period"], choice_of("next-period", "short-period")
]


class BermudanSwaption(EarlyExercise, SwapOption, Padded):
    """A Bermudan swaption is the right to enter the remainder of a swap at one of several dates.

    If exercised at t, the swap starts at s >= t. It exchanges the fixed coupons at all payment dates after s
    for a floating leg worth P(t, s) - P(t, last payment). If s lies between two payment dates, `accrued`
    shortens the first coupon.

    Attributes:
        strike: The fixed rate per year.
        exercise_dates: The exercise dates in years, non-decreasing, of shape (exercises,).
        payment_dates: The payment dates of the fixed leg in years, non-decreasing, of shape (payments,); the
            last one ends the floating leg.
        accruals: The year fraction of each coupon, of shape (payments,).
        side: The word "payer" or "receiver" of the fixed leg, stored as the code +1 or -1.
        notional: The notional in currency.
        starts: The start of the swap for each exercise date, in years, not before that date, of shape
            (exercises,); None for the exercise date itself.
        accrued: The year fraction of the first coupon before each start, which is not paid, of shape
            (exercises,). None if the swap starts with a full period.

    Raises:
        ValueError: Accruals and payment dates differ in number, no payment follows the last entry, starts or
            accrued do not match the exercise dates in number, or a swap starts before its exercise date.

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
    starts: Numeric[Float[Array, "*#batch exercises"] | None] = dates(
        "starts", repeated=True, optional=True, default=None
    )
    accrued: Numeric[Float[Array, "*#batch exercises"] | None] = real_vector(
        "accrued", optional=True, default=None
    )

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.exercise_dates

    @property
    def last_start(self) -> Float[Array, "..."]:
        return (self.exercise_dates if self.starts is None else self.starts)[..., -1]

    def terms_at(self, entry: Float[Array, ""]) -> EntryTerms:
        """Return the terms of the swap entered at the exercise date nearest to a time in years."""
        if self.starts is None and self.accrued is None:
            return EntryTerms(entry)
        gaps = jnp.abs(jax.lax.stop_gradient(self.exercise_dates - entry))
        is_here = (gaps <= jnp.min(gaps)).astype(gaps.dtype)
        weights = is_here / jnp.sum(is_here)  # padding repeats a date
        lag = 0.0 if self.starts is None else jnp.sum(weights * (self.starts - self.exercise_dates))
        accrued = jnp.zeros_like(entry) if self.accrued is None else jnp.sum(weights * self.accrued)
        return EntryTerms(entry + lag, accrued)

    def __check_init__(self):
        for name in ("starts", "accrued"):
            given = getattr(self, name)
            if given is not None and given.shape[-1:] != self.exercise_dates.shape[-1:]:
                raise ValueError(
                    f"{name} of shape {list(given.shape)} for {self.exercise_dates.shape[-1]} exercise dates: "
                    "give one for each"
                )
        self.check_starts(self.starts)

    def padded(self, num_dates: int) -> "BermudanSwaption":
        """Return the same right on `num_dates` exercise dates, padded by repeating the first."""
        extra = extra_dates(self.exercise_dates, num_dates)
        names = "exercise_dates", "starts", "accrued"
        given = {name: getattr(self, name) for name in names}
        longer = {name: front(x, extra) for name, x in given.items() if x is not None}
        return replace(self, **longer)


class BermudanSwaptionTrade(ExercisedIntoSwap):
    """The right to enter the remainder of a swap on one of several dates, or some business days later.

    Attributes:
        between_coupons: The rule for a swap that would start within a period: "next-period" starts with the
            next full period; "short-period" starts at once with a short first period; None refuses such a row.
    """

    type = "bermudan_swaption"
    product = BermudanSwaption
    renamed: ClassVar[dict[str, str]] = {
        "strike": "fixed_rate",
        "exercise_dates": "exercise_days",
        "starts": "later_starts",
        "payment_dates": "all_payment_dates",
        "accruals": "all_accruals",
    }
    dates_name = "exercise_dates"
    drops_dates = True

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-07-07|2004-07-05")
    expiry: IsoDate = last_of("exercise_dates")
    between_coupons: BetweenCoupons | None = None

    @property
    def swap_from(self) -> date:
        first = self.exercise_dates[0]
        return self.start_after(first) if self.starts_later else first

    @functools.cached_property
    def swap_dates(self) -> tuple[date, ...]:
        """The start of the first period that may be entered, in full or in part, and the payment dates."""
        months = MONTHS[self.frequency]
        if self.between_coupons is None:
            return self.days_of(months, self.swap_from)
        days = self.days_of(months, advance(self.swap_from, months=-months, roll=None))
        begin = max(day for day in days if day <= self.swap_from)
        if self.between_coupons == "next-period" and begin < self.swap_from:
            return days[days.index(begin) + 1 :]
        return days[days.index(begin) :]

    @property
    def starts_later(self) -> bool:
        return super().starts_later or self.between_coupons is not None

    @property
    def starts(self) -> tuple[date, ...]:
        """The start date of the swap for each exercise date."""
        first = map(self.start_after, self.exercise_dates)
        if self.between_coupons != "next-period":
            return tuple(first)
        days = self.swap_dates
        return tuple(next((day for day in days if day >= start), days[-1]) for start in first)

    @property
    def later_starts(self) -> tuple[date, ...] | None:
        """The start dates; None if swaps start on their exercise dates."""
        return self.starts if self.starts_later else None

    @property
    def accrued(self) -> tuple[float, ...] | None:
        """The unpaid year fraction of the first coupon before each start; None if it is 0."""
        if self.between_coupons != "short-period":
            return None
        ends = [bisect.bisect_right(self.payment_dates, start) for start in self.starts]
        left = zip(self.starts, ends, strict=True)
        return tuple(
            self.accruals[i] - year_fraction(start, self.payment_dates[i], self.day_count)
            for start, i in left
        )

    @property
    def exercise_days(self) -> tuple[date, ...]:
        """The exercise dates, adjusted to business days."""
        return tuple(advance(day, calendar=self.calendar) for day in self.exercise_dates)

    @property
    def shape(self) -> Hashable:
        count = len(self.payment_dates) + self._past_payments
        return count, self.starts_later, self.between_coupons == "short-period"

    @property
    def _past_payments(self) -> int:
        """The number of payments that are no longer possible because exercise dates have passed."""
        assert isinstance(self.row, RateTrade)
        return max(len(self.row.payment_dates) - len(self.payment_dates), 0)

    @property
    def all_payment_dates(self) -> tuple[date, ...]:
        """The payment dates, padded to the number in the book by repeating the first remaining one."""
        return (*self.payment_dates[:1] * self._past_payments, *self.payment_dates)

    @property
    def all_accruals(self) -> tuple[float, ...]:
        """The year fraction of each coupon; 0 for the padding."""
        return (*(0.0,) * self._past_payments, *self.accruals)

    def aged(self, observed: Observed) -> Aged:
        if self.exercised is not None and self.exercised <= observed.until:
            days = [*self.exercise_dates, *self.exercise_days]
            start = (*self.starts, *self.starts)[days.index(self.exercised)]
            return self.exercised_into(start, observed)
        return super().aged(observed)

    def check(self) -> None:
        super().check()
        if self.exercised not in (None, *self.exercise_dates, *self.exercise_days):
            message = f"{self.exercised} is not one of the exercise_dates"
            raise problem(message, "give the date on which it was exercised", "exercised")
        begins, starts = self.swap_dates[:-1], self.starts
        if starts[-1] >= self.swap_dates[-1]:
            message = f"the swap entered on {self.exercise_dates[-1]} would have no period"
            raise problem(message, "give an earlier last date", "exercise_dates")
        odd = [day for day in starts if day not in begins]
        if odd and self.between_coupons is None:
            message = f"no period of the swap to {self.maturity} begins on {odd[0]}"
            remedy = (
                f"give dates that lead to {listed(begins)}, another frequency, or between_coupons: next-period "
                "or short-period"
            )
            raise problem(message, remedy, "exercise_dates")

    def payoff(self, observed: Observed) -> float:
        return self.entered(self.exercise_days[-1], self.starts[-1], observed)
