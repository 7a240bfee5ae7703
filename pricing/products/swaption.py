"""European swaptions."""

from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, accruals, choice, dates, real, time
from ..ingestion.field_types import problem
from ..market.dates import advance
from ..market.observed import Observed
from .exercised_swap import ExercisedIntoSwap
from .swap_entry import PAYER_OR_RECEIVER, EntryTerms, SwapOption, check_coupons
from .trade import Aged, IsoDate


class Swaption(SwapOption):
    """A European swaption is the right to enter a swap with fixed rate `strike` at one date.

    Attributes:
        strike: The fixed rate per year.
        exercise_date: The exercise date in years, above 0.
        payment_dates: The payment dates of the fixed leg in years, increasing, of shape (payments,); the
            last one ends the floating leg.
        accruals: The year fraction of each coupon, of shape (payments,).
        side: The word "payer" or "receiver" of the fixed leg, stored as the code +1 or -1.
        notional: The notional in currency.
        start: The start of the swap in years: the exercise date plus the exercise lag. None for the exercise
            date itself.

    Raises:
        ValueError: Accruals and payment dates differ in number, no payment follows the start, a coupon is paid
            before it, or the swap starts before the exercise date.

    Examples:
        >>> Swaption(0.03, 0.5, [1.5, 2.5], [1.0, 1.0]).exercise_times().tolist()
        [0.5]
    """

    strike: Numeric[Float[Array, "..."]] = real("strike")
    exercise_date: Numeric[Float[Array, "..."]] = time("exercise_date")
    payment_dates: Numeric[Float[Array, "*#batch payments"]] = dates("payment_dates")
    accruals: Numeric[Float[Array, "*#batch payments"]] = accruals()
    side: Word[Int8[Array, "..."]] = choice("side", PAYER_OR_RECEIVER, default="payer")
    notional: Numeric[Float[Array, "..."]] = real("notional", default=1.0)
    start: Numeric[Float[Array, "..."] | None] = time("start", optional=True, default=None)

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.exercise_date[..., None]

    @property
    def last_start(self) -> Float[Array, "..."]:
        return self.exercise_date if self.start is None else self.start

    def terms_at(self, entry: Float[Array, ""]) -> EntryTerms:
        return EntryTerms(
            entry if self.start is None else entry + (self.start - self.exercise_date)
        )

    def __check_init__(self):
        check_coupons(self)
        self.check_starts(None if self.start is None else self.start[..., None])


class SwaptionTrade(ExercisedIntoSwap):
    """The right to enter, at expiry, a swap that starts on that day or some business days later."""

    type = "swaption"
    product = Swaption
    renamed: ClassVar[dict[str, str]] = {
        "strike": "fixed_rate",
        "exercise_date": "exercise_day",
        "start": "later_start",
    }

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")

    def check(self) -> None:
        super().check()
        if self.exercised not in (None, self.expiry, self.exercise_day):
            message = f"it was exercised on {self.exercised}, and it expires on {self.expiry}"
            raise problem(message, "give the expiry, or leave it empty", "exercised")

    def aged(self, observed: Observed) -> Aged:
        if self.exercised is not None and self.exercised <= observed.until:
            return self.exercised_into(self.swap_from, observed)
        return super().aged(observed)

    @property
    def swap_from(self) -> date:
        return self.start_after(self.expiry) if self.starts_later else self.expiry

    @property
    def exercise_day(self) -> date:
        """The expiry, adjusted to a business day."""
        return advance(self.expiry, calendar=self.calendar)

    @property
    def later_start(self) -> date | None:
        """The start date of the swap; None if it is the exercise date."""
        return self.swap_start if self.starts_later else None

    def payoff(self, observed: Observed) -> float:
        return self.entered(self.exercise_day, self.swap_start, observed)
