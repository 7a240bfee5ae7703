"""Rows of basis swaps, which exchange two floating legs."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from typing import Annotated, NamedTuple

from pydantic import Field

from ..ingestion.field_types import number, problem
from ..market.conventions import MONTHS, Calendar, DayCount, Frequency, YesOrNo
from ..market.dates import schedule, year_fraction
from ..market.observed import Observed
from .floating_payments import Coupon, FloatingPayments, FloatingTrade, fields_of
from .rate_trade import OnForwardCurve, Side
from .trade import Aged, IsoDate, Name, Notional

Spread = Annotated[float, number("spread", least=-0.05, most=0.05)]


class _Period(NamedTuple):
    """A period of a leg: dates, curve and tenor (months) of its rate, accrual, and notional received."""

    start: date
    end: date
    curve: str
    months: int
    accrual: float
    notional: float


class BasisSwapTrade(OnForwardCurve):
    """A swap of the floating rates of one curve plus a spread for those of another curve.

    A leg on the discount curve compounds overnight rates over each period; a leg on another curve pays simple
    rates fixed at the start of each period. Both pay at the ends of their periods, which are counted back from
    the maturity and adjusted to business days (modified following).

    Attributes:
        side: "payer" or "receiver" of the leg with the spread, which is the leg on `forward_curve`.
        spread: The spread per year on the rates of `forward_curve`.
        start: The day from which interest accrues, unadjusted.
        maturity: The day of the last payment.
        floating_frequency: The frequency of the leg with the spread.
        other_curve: The curve of the other leg; None for the underlying.
        other_frequency: The frequency of the other leg.
        notional: The notional in currency.
        floating_day_count: The day count of both legs.
        calendar: The market identifier code of the business-day calendar.
        end_of_month: "yes" or "no", as for a swap.
    """

    type = "basis_swap"
    product = FloatingPayments
    in_rates = True

    underlying: Name = Field(description="an underlying, the name of a curve of the market")
    side: Side = Field(description="a side: payer or receiver, of the leg with the spread")
    start: IsoDate = Field(description="a start, YYYY-MM-DD")
    maturity: IsoDate = Field(description="a maturity, YYYY-MM-DD, the day of the last payment")
    floating_frequency: Frequency = Field(description="a floating_frequency, such as quarterly")
    other_frequency: Frequency = Field(description="an other_frequency, such as semiannual")
    other_curve: Name | None = None
    spread: Spread = 0.0
    notional: Notional = 1.0
    floating_day_count: DayCount = "ACT/360"
    calendar: Calendar = "XECB"
    end_of_month: YesOrNo = "no"

    @property
    def expiry(self) -> date:
        return self.maturity

    @property
    def underlyings(self) -> tuple[str, ...]:
        """The discount curve, and those of the legs if they differ from it."""
        return tuple(dict.fromkeys((self.underlying, self.rates_curve, self.other_rates)))

    @property
    def other_rates(self) -> str:
        """The name of the curve of the other leg."""
        return self.other_curve or self.underlying

    @property
    def periods(self) -> Iterator[_Period]:
        """The periods of both legs."""
        received = self.notional * (1.0 if self.side == "receiver" else -1.0)
        own = self.rates_curve, self.floating_frequency, received
        for curve, frequency, notional in (
            own,
            (self.other_rates, self.other_frequency, -received),
        ):
            months = MONTHS[frequency]
            for start, end in itertools.pairwise(self.days_of(months)):
                accrual = year_fraction(start, end, self.floating_day_count)
                yield _Period(start, end, curve, months, accrual, notional)

    def days_of(self, months: int) -> list[date]:
        """Return the start dates of a leg's periods, and the end of the last period.

        Args:
            months: The length of a period in months.
        """
        rules = {"calendar": self.calendar, "end_of_month": self.end_of_month == "yes"}
        return schedule(self.start, self.maturity, months, **rules)

    def check(self) -> None:
        if self.maturity <= self.start or len(self.days_of(12)) < 2:
            message = f"there is no business day after {self.start} up to {self.maturity}"
            raise problem(message, "give a maturity that leaves a payment", "maturity")
        if self.rates_curve == self.other_rates:
            message = f"both legs are on {self.rates_curve}"
            raise problem(message, "give another curve for one of them", "other_curve")

    def aged(self, observed: Observed) -> Aged:
        """Return the remaining payments, and those that have been made.

        The interest compounded so far in a period scales the notional of its rest.

        Args:
            observed: The levels up to the later day.
        """
        flows: defaultdict[date, float] = defaultdict(float)
        coupons, today = [], observed.until
        for start, end, curve, months, accrual, notional in self.periods:
            if end <= observed.since:
                continue
            place = self.underlyings.index(curve)
            if curve == self.rates_curve:
                flows[end] += notional * self.spread * accrual
            if curve == self.underlying:
                past = start, min(end, today), self.calendar, self.floating_day_count
                grown = observed.compounded(curve, *past)
                flows[end] += notional * (grown - 1.0)
                if end > today:
                    coupons.append(Coupon(max(start, today), end, end, notional * grown, place))
            elif observed.is_fixed(curve, months, start):
                flows[end] += notional * accrual * observed.rate(curve, months, start, end, accrual)
            else:
                coupons.append(Coupon(start, end, end, notional, place))
        cash = sum(amount for day, amount in flows.items() if day <= today)
        last = self.days_of(12)[-1]
        if last <= today:
            return Aged(cash, None, "expired", last)
        left = {day: amount for day, amount in flows.items() if day > today}
        coupons = sorted(coupons, key=lambda x: x.end) or [Coupon(last, last, last, 0.0, 0)]
        return Aged(cash, self._as(FloatingBasisSwapTrade, **fields_of(left, coupons)))


class FloatingBasisSwapTrade(FloatingTrade, BasisSwapTrade):
    """The rest of a basis swap; see `BasisSwapTrade.aged`."""

    @property
    def num_dates(self) -> int:
        return sum(1 for _ in self.periods)
