"""Swaps."""

from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import choice, dates, non_negative, real, real_vector
from .rate_trade import RateTrade
from .swap_entry import PAYER_OR_RECEIVER, SwapEntry
from .trade import IsoDate


class Swap(SwapEntry):
    """Exchanges fixed coupons for a floating leg from `start` on.

    fixed_rate: per year; start: years, from 0 on; payment_dates: of the fixed leg, years, the last one ends
    the floating leg; accruals: the year fraction of each coupon; side: "payer" or "receiver" of the fixed leg;
    notional: currency.
    """

    fixed_rate: Float[Array, "..."] = real("fixed_rate")
    start: Float[Array, "..."] = non_negative("start", time=True)
    payment_dates: Float[Array, "*#batch payments"] = dates("payment_dates")
    accruals: Float[Array, "*#batch payments"] = real_vector("accruals")
    side: Int8[Array, "..."] = choice("side", PAYER_OR_RECEIVER, default="payer")
    notional: Float[Array, "..."] = real("notional", default=1.0)

    @property
    def coupon_rate(self) -> Float[Array, "..."]:
        return self.fixed_rate

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.start[..., None]


class SwapTrade(RateTrade):
    """A swap that is still to start."""

    type = "swap"
    product = Swap
    renamed: ClassVar[dict[str, str]] = {"start": "swap_start"}

    start: IsoDate = Field(description="a start, YYYY-MM-DD")

    @property
    def expiry(self) -> date:
        return self.maturity

    @property
    def deadlines(self) -> dict[str, tuple[date, str]]:
        return {
            "start": (
                self.start,
                "fixings of the past are not kept: give swaps that are still to start",
            )
        }

    @property
    def swap_from(self) -> date:
        return self.start
