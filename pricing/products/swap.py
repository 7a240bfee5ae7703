"""Swaps."""

from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, non_negative, real, real_vector
from .rate_trade import RateTrade
from .swap_entry import PAYER_OR_RECEIVER, SwapEntry
from .trade import IsoDate


class Swap(SwapEntry):
    """A swap exchanges fixed coupons for a floating leg from `start` on.

    Attributes:
        fixed_rate: The fixed rate per year.
        start: When the floating leg begins, in years, from 0 on.
        payment_dates: The payment dates of the fixed leg in years, increasing, of shape (payments,); the
            last one ends the floating leg.
        accruals: The year fraction of each coupon, of shape (payments,).
        side: The word "payer" or "receiver" of the fixed leg, kept as the code +1 or -1.
        notional: The notional in currency.

    Raises:
        ValueError: If accruals and payment dates differ in number, or no payment is left after the last
            entry.

    Examples:
        >>> swap = Swap(0.03, 0.0, [1.0, 2.0], [1.0, 1.0])
        >>> [f"{float(amount):.2f}" for amount in swap.payments(swap.start)[1]]
        ['-0.03', '-1.03']
    """

    fixed_rate: Numeric[Float[Array, "..."]] = real("fixed_rate")
    start: Numeric[Float[Array, "..."]] = non_negative("start", time=True)
    payment_dates: Numeric[Float[Array, "*#batch payments"]] = dates("payment_dates")
    accruals: Numeric[Float[Array, "*#batch payments"]] = real_vector("accruals")
    side: Word[Int8[Array, "..."]] = choice("side", PAYER_OR_RECEIVER, default="payer")
    notional: Numeric[Float[Array, "..."]] = real("notional", default=1.0)

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
        remedy = "fixings of the past are not kept: give swaps that are still to start"
        return {"start": (self.start, remedy)}

    @property
    def swap_from(self) -> date:
        return self.start
