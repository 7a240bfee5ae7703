"""Rows of overnight index swaps (OIS)."""

import itertools
from collections import defaultdict
from datetime import date
from typing import Annotated, NamedTuple

from pydantic import Field

from ..ingestion.field_types import number, problem
from ..market.conventions import DayCount
from ..market.dates import advance
from ..market.observed import Observed
from .floating_payments import Coupon, FloatingPayments, FloatingTrade, fields_of
from .rate_trade import ForwardCurveTrade
from .trade import Aged, IsoDate

PaymentLag = Annotated[float, number("payment_lag", least=0.0, most=10.0)]


class _Coupon(NamedTuple):
    """A period of both legs, its accrual and its payment date."""

    start: date
    end: date
    accrual: float
    paid: date


class OvernightSwapTrade(ForwardCurveTrade):
    """A swap of a fixed rate for the compounded overnight rate of its curve (OIS).

    Both legs have the same periods, and pay `payment_lag` business days after each. Overnight rates of past
    days are fixings.

    Attributes:
        start: The day from which interest accrues, unadjusted.
        day_count: The day count of both legs.
        payment_lag: The business days from the end of a period to its payment.
    """

    type = "overnight_swap"
    product = FloatingPayments

    start: IsoDate = Field(description="a start, YYYY-MM-DD")
    day_count: DayCount = "ACT/360"
    payment_lag: PaymentLag = 0.0

    @property
    def expiry(self) -> date:
        return self.maturity

    @property
    def end(self) -> date:
        return self._coupons[-1].paid

    @property
    def swap_from(self) -> date:
        return self.start

    @property
    def _coupons(self) -> list[_Coupon]:
        periods = itertools.pairwise(self.swap_dates)
        return [
            _Coupon(*period, accrual, advance(period[1], **self._lag))
            for period, accrual in zip(periods, self.accruals, strict=True)
        ]

    @property
    def _lag(self) -> dict:
        return {"business_days": int(self.payment_lag), "calendar": self.calendar}

    def check(self) -> None:
        super().check()
        if self.payment_lag % 1.0:
            message = f"{self.payment_lag:g} is not a whole number of business days"
            raise problem(message, "give a payment_lag such as 2", "payment_lag")

    def aged(self, observed: Observed) -> Aged:
        """Return the remaining payments, and the coupons that have been paid.

        The interest compounded so far in a period scales the notional of its rest.
        """
        flows: defaultdict[date, float] = defaultdict(float)
        coupons, today = [], observed.until
        for start, end, accrual, paid in self._coupons:
            if paid <= observed.since:
                continue
            flows[paid] -= self.sign * self.fixed_rate * accrual
            past = start, min(end, today), self.calendar, self.day_count
            grown = observed.compounded(self.rates_curve, *past)
            if end > today:
                coupons.append(Coupon(max(start, today), end, paid, self.sign * grown))
            flows[paid] += self.sign * (grown - 1.0)
        cash = sum(amount for day, amount in flows.items() if day <= today)
        if self.end <= today:
            return Aged(cash, None, "expired", self.end)
        left = {day: amount for day, amount in flows.items() if day > today}
        return Aged(cash, self._as(FloatingOvernightSwapTrade, **fields_of(left, coupons)))


class FloatingOvernightSwapTrade(FloatingTrade, OvernightSwapTrade):
    """The rest of an overnight swap; see `OvernightSwapTrade.aged`."""

    @property
    def num_dates(self) -> int:
        return len(self.payment_dates)
