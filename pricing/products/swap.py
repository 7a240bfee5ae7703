"""Swaps."""

import functools
import itertools
from collections import defaultdict
from datetime import date
from typing import ClassVar

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, non_negative, real, real_vector
from ..market.conventions import MONTHS, DayCount, Frequency
from ..market.dates import schedule, year_fraction
from ..market.observed import Observed
from .fixed_payments import FixedPayments
from .rate_trade import RateTrade
from .swap_entry import PAYER_OR_RECEIVER, SwapEntry
from .trade import Aged, Column, IsoDate


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
    """A swap. Once it has started, its floating rates are fixings of its curve, each for the period it begins.

    The dates of the floating leg are counted back from the maturity like those of the fixed one.
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

    def aged(self, observed: Observed) -> Aged:
        """Return the payments that are left of a swap that has started, and the coupons it has paid.

        Those to come are the fixed coupons, the floating coupon of the period that has begun, and, for the
        floating leg from the next period on, the notional at its start less the notional at its end.
        """
        if self.swap_start > observed.until:
            return Aged(0.0, self)
        sign = self.notional * (1.0 if self.side == "payer" else -1.0)
        flows: defaultdict[date, float] = defaultdict(float)
        for paid, accrual in zip(self.payment_dates, self.accruals, strict=True):
            flows[paid] -= sign * self.fixed_rate * accrual
        days = self.floating_dates
        for start, end in itertools.pairwise(days):
            if observed.since < end and start <= observed.until:
                accrual = year_fraction(start, end, self.floating_day_count)
                rate = observed.rate(self.underlying, self.floating_months, start, end, accrual)
                flows[end] += sign * rate * accrual
        cash = sum(x for day, x in flows.items() if observed.since < day <= observed.until)
        if days[-1] <= observed.until:
            return Aged(cash, None, "expired", days[-1])
        flows[next(day for day in days if day > observed.until)] += sign
        flows[days[-1]] -= sign
        left = sorted((day, amount) for day, amount in flows.items() if day > observed.until)
        own = {"payment_days": tuple(day for day, _ in left), "amounts": tuple(x for _, x in left)}
        return Aged(cash, self._as(StartedSwapTrade, **own))

    @functools.cached_property
    def floating_dates(self) -> tuple[date, ...]:
        """The first days of the floating periods, and the end of the last."""
        months = self.floating_months
        return tuple(schedule(self.start, self.maturity, months, calendar=self.calendar))

    @property
    def floating_months(self) -> int:
        """The months of a floating period."""
        return MONTHS[self.floating_frequency or self.frequency]


class StartedSwapTrade(SwapTrade):
    """The rest of a swap that has started: see `SwapTrade.aged`. It ages as the swap does."""

    product = FixedPayments
    dates_name = "payment_days"

    payment_days: tuple[date, ...]
    amounts: tuple[float, ...]

    @property
    def shape(self) -> str:
        return "started"

    @property
    def num_dates(self) -> int:
        return len({*self.payment_dates, *self.floating_dates[1:]})

    def products(self, column: Column) -> FixedPayments:
        return FixedPayments(column("payment_days"), column("amounts"))
