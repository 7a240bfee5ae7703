"""European swaptions."""

from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, accruals, choice, dates, real, time
from ..ingestion.fields import problem
from ..market.observed import Observed
from .exercised_swap import ExercisedIntoSwap
from .swap_entry import PAYER_OR_RECEIVER, SwapOption, check_coupons
from .trade import Aged, IsoDate


class Swaption(SwapOption):
    """A European swaption is the right to enter a swap with fixed rate `strike` at one date.

    Attributes:
        strike: The fixed rate per year.
        exercise_date: When the swap may be entered, in years, above 0.
        payment_dates: The payment dates of the fixed leg in years, increasing, of shape (payments,); the
            last one ends the floating leg.
        accruals: The year fraction of each coupon, of shape (payments,).
        side: The word "payer" or "receiver" of the fixed leg, kept as the code +1 or -1.
        notional: The notional in currency.

    Raises:
        ValueError: If accruals and payment dates differ in number, no payment is left after the last
            entry, or a coupon is paid before the first.

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

    def __check_init__(self):
        check_coupons(self)

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.exercise_date[..., None]


class SwaptionTrade(ExercisedIntoSwap):
    """The right to enter, at the expiry, a swap that starts then."""

    type = "swaption"
    product = Swaption
    renamed: ClassVar[dict[str, str]] = {"strike": "fixed_rate", "exercise_date": "swap_start"}

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")

    def check(self) -> None:
        super().check()
        if self.exercised not in (None, self.expiry, self.swap_start):
            message = f"it was exercised on {self.exercised}, and it expires on {self.expiry}"
            raise problem(message, "give the expiry, or leave it empty", "exercised")

    def aged(self, observed: Observed) -> Aged:
        if self.exercised is not None and self.exercised <= observed.until:
            return self.exercised_into(self.swap_from, observed)
        return super().aged(observed)

    @property
    def swap_from(self) -> date:
        return self.expiry

    def payoff(self, observed: Observed) -> float:
        return self.entered(self.swap_start, observed)
