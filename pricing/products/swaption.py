"""European swaptions."""

from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import choice, dates, real, real_vector, time
from .rate_trade import RateTrade
from .swap_entry import PAYER_OR_RECEIVER, SwapOption
from .trade import IsoDate


class Swaption(SwapOption):
    """The right to enter a swap with fixed rate `strike` at `exercise_date` (years); the rest as in `Swap`."""

    strike: Float[Array, "..."] = real("strike")
    exercise_date: Float[Array, "..."] = time("exercise_date")
    payment_dates: Float[Array, "*#batch payments"] = dates("payment_dates")
    accruals: Float[Array, "*#batch payments"] = real_vector("accruals")
    side: Int8[Array, "..."] = choice("side", PAYER_OR_RECEIVER, default="payer")
    notional: Float[Array, "..."] = real("notional", default=1.0)

    @property
    def coupon_rate(self) -> Float[Array, "..."]:
        return self.strike

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.exercise_date[..., None]


class SwaptionTrade(RateTrade):
    """The right to enter, at the expiry, a swap that starts then."""

    type = "swaption"
    product = Swaption
    renamed: ClassVar[dict[str, str]] = {"strike": "fixed_rate", "exercise_date": "swap_start"}

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")

    @property
    def swap_from(self) -> date:
        return self.expiry
