"""Swaps."""

import functools
import itertools
from collections import defaultdict
from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, accruals, choice, dates, non_negative, real
from ..ingestion.field_types import problem
from ..market.conventions import MONTHS, DayCount, Frequency
from ..market.dates import year_fraction
from ..market.observed import Observed
from .floating_payments import Coupon, FloatingTrade, fields_of
from .rate_trade import ForwardCurveTrade
from .swap_entry import PAYER_OR_RECEIVER, SwapEntry, check_coupons
from .trade import Aged, IsoDate


class Swap(SwapEntry):
    """A swap exchanges fixed coupons for a floating leg from `start` on.

    Attributes:
        fixed_rate: The fixed rate per year.
        start: The start of the floating leg in years, at least 0.
        payment_dates: The payment dates of the fixed leg in years, increasing, of shape (payments,); the
            last one ends the floating leg.
        accruals: The year fraction of each coupon, of shape (payments,).
        side: The word "payer" or "receiver" of the fixed leg, stored as the code +1 or -1.
        notional: The notional in currency.

    Raises:
        ValueError: Accruals and payment dates differ in number, no payment follows the start, or a coupon is
            paid before it.

    Examples:
        >>> swap = Swap(0.03, 0.0, [1.0, 2.0], [1.0, 1.0])
        >>> [f"{float(amount):.2f}" for amount in swap.payments(swap.start)[1]]
        ['1.00', '-0.03', '-1.03']
    """

    fixed_rate: Numeric[Float[Array, "..."]] = real("fixed_rate")
    start: Numeric[Float[Array, "..."]] = non_negative("start", time=True)
    payment_dates: Numeric[Float[Array, "*#batch payments"]] = dates("payment_dates")
    accruals: Numeric[Float[Array, "*#batch payments"]] = accruals()
    side: Word[Int8[Array, "..."]] = choice("side", PAYER_OR_RECEIVER, default="payer")
    notional: Numeric[Float[Array, "..."]] = real("notional", default=1.0)

    def __check_init__(self):
        check_coupons(self)

    @property
    def coupon_rate(self) -> Float[Array, "..."]:
        return self.fixed_rate

    @property
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        return self.start[..., None]


class SwapTrade(ForwardCurveTrade):
    """A fixed-for-floating swap. Once it has started, past floating rates are fixings of its curve.

    The dates of the floating leg are counted back from the maturity, like those of the fixed leg.
    """

    type = "swap"
    product = Swap
    renamed: ClassVar[dict[str, str]] = {"start": "swap_start"}

    start: IsoDate = Field(description="a start, YYYY-MM-DD")
    floating_frequency: Frequency | None = None
    floating_day_count: DayCount = "ACT/360"

    @property
    def expiry(self) -> date:
        return self.maturity

    @property
    def swap_from(self) -> date:
        return self.start

    def check(self) -> None:
        super().check()
        if len(self.underlyings) > 1 and self.floating_frequency is None:
            message = "is missing, and the value of a floating leg on a forward curve depends on it"
            raise problem(message, "give that of the forward rates", "floating_frequency")

    def aged(self, observed: Observed) -> Aged:
        """Return the remaining payments of a swap, and the coupons that it has paid.

        These are the fixed coupons, the floating coupon whose rate has been fixed, and those of future periods.
        A period that begins today counts as a future one if today's rate has no fixing. A swap on one curve
        that has not started is unchanged.
        """
        if self.swap_start > observed.until and len(self.underlyings) == 1:
            return Aged(0.0, self)
        flows: defaultdict[date, float] = defaultdict(float)
        for paid, accrual in zip(self.payment_dates, self.accruals, strict=True):
            flows[paid] -= self.sign * self.fixed_rate * accrual
        coupons, days = [], self.floating_dates
        for start, end in itertools.pairwise(days):
            if not observed.is_fixed(self.rates_curve, self.floating_months, start):
                coupons.append(Coupon(start, end, end, self.sign))
            elif observed.since < end:
                accrual = year_fraction(start, end, self.floating_day_count)
                terms = self.rates_curve, self.floating_months, start, end, accrual
                flows[end] += self.sign * observed.rate(*terms) * accrual
        cash = sum(x for day, x in flows.items() if observed.since < day <= observed.until)
        if days[-1] <= observed.until:
            return Aged(cash, None, "expired", days[-1])
        left = {day: amount for day, amount in flows.items() if day > observed.until}
        return Aged(cash, self._as(FloatingSwapTrade, **fields_of(left, coupons)))

    @functools.cached_property
    def floating_dates(self) -> tuple[date, ...]:
        """The start dates of the floating periods, and the end of the last period."""
        return self.days_of(self.floating_months, self.start)

    @property
    def floating_months(self) -> int:
        """The length of a floating period in months."""
        return MONTHS[self.floating_frequency or self.frequency]


class FloatingSwapTrade(FloatingTrade, SwapTrade):
    """The rest of a swap that has started, or is on two curves; see `SwapTrade.aged`."""

    @property
    def num_dates(self) -> int:
        return len({*self.payment_dates, *self.floating_dates[1:]})
