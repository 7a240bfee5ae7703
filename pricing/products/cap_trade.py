"""Rows of caps and floors."""

import functools
import itertools
from datetime import date
from typing import Annotated, Any

from pydantic import Field

from ..ingestion.field_types import number, problem
from ..market.caplet_vols import caps_of
from ..market.conventions import MONTHS, Calendar, DayCount, Frequency, YesOrNo
from ..market.dates import schedule, year_fraction
from ..market.observed import Observed
from .cap import CAP_OR_FLOOR, Cap
from .rate_trade import OnForwardCurve
from .trade import Aged, Column, IsoDate, Name, Notional, Trade

RateStrike = Annotated[float, number("strike", least=-1.0, most=1.0)]


class CapTrade(OnForwardCurve):
    """A cap on the rates of a curve, each fixed at the start and paid at the end of its period.

    Periods are counted back from the maturity and adjusted to business days (modified following).

    Attributes:
        strike: The strike, a rate per year.
        start: The start of the first period, unadjusted.
        maturity: The day of the last payment.
        notional: The notional in currency.
        frequency: The frequency of the periods.
        day_count: The day count of the periods.
        calendar: The market identifier code of the business-day calendar.
        end_of_month: "yes" or "no", as for a swap.
    """

    type = "cap"
    product = Cap
    in_rates = True

    underlying: Name = Field(description="an underlying, the name of a curve of the market")
    strike: RateStrike = Field(description="a strike, a rate as a decimal")
    start: IsoDate = Field(description="a start, YYYY-MM-DD")
    maturity: IsoDate = Field(description="a maturity, YYYY-MM-DD, the day of the last payment")
    frequency: Frequency = Field(description="a frequency, such as quarterly")
    notional: Notional = 1.0
    day_count: DayCount = "ACT/360"
    calendar: Calendar = "XECB"
    end_of_month: YesOrNo = "no"

    @property
    def expiry(self) -> date:
        return self.maturity

    @functools.cached_property
    def days(self) -> tuple[date, ...]:
        """The start dates of the periods, and the end of the last period."""
        rules = {"calendar": self.calendar, "end_of_month": self.end_of_month == "yes"}
        return tuple(schedule(self.start, self.maturity, MONTHS[self.frequency], **rules))

    @property
    def num_dates(self) -> int:
        return len(self.days) - 1

    def check(self) -> None:
        if self.maturity <= self.start or len(self.days) < 2:
            message = f"there is no business day after {self.start} up to {self.maturity}"
            raise problem(message, "give a maturity that leaves a payment", "maturity")

    def aged(self, observed: Observed) -> Aged:
        """Return the remaining caplets, the payments of rates already fixed, and the amount paid.

        A period that begins today is still open if today's rate has no fixing.

        Args:
            observed: The levels up to the later day.
        """
        cash, left = 0.0, []
        for start, end in itertools.pairwise(self.days):
            if end <= observed.since:
                continue
            accrual = year_fraction(start, end, self.day_count)
            if not observed.is_fixed(self.rates_curve, MONTHS[self.frequency], start):
                left.append((start, end, accrual, 0.0))
                continue
            paid = self._paid(observed, start, end, accrual)
            if end > observed.until:
                left.append((end, end, 0.0, paid))
            else:
                cash += paid
        if not left:
            return Aged(cash, None, "expired", self.days[-1])
        names = "starts", "period_ends", "accruals", "amounts"
        found: dict[str, Any] = dict(zip(names, zip(*left, strict=True), strict=True))
        found["has_cap_vols"] = observed.has_cap_vols(self.rates_curve)
        if all(getattr(self, name, None) == value for name, value in found.items()):
            return Aged(cash, self)
        kind = LeftFloorTrade if self.type == "floor" else LeftCapTrade
        return Aged(cash, self._as(kind, **found))

    def _paid(self, observed: Observed, start: date, end: date, accrual: float) -> float:
        """Return the payment of a caplet whose rate has been fixed."""
        rate = observed.rate(self.rates_curve, MONTHS[self.frequency], start, end, accrual)
        side = CAP_OR_FLOOR[self.type]
        return self.notional * accrual * max(side * (rate - self.strike), 0.0)


class FloorTrade(CapTrade):
    """A floor: like a cap, but it pays when the rate is below the strike."""

    type = "floor"


class _LeftTrade(Trade):
    """The common part of the remainders of caps and floors.

    has_cap_vols: whether the market quotes caps on these rates.
    """

    dates_name = "period_ends"

    starts: tuple[date, ...]
    period_ends: tuple[date, ...]
    accruals: tuple[float, ...]
    amounts: tuple[float, ...]
    has_cap_vols: bool = False

    @property
    def model_names(self) -> tuple[str, ...]:
        """The underlyings; if the market quotes caps on the rates, the last name is that of `caps_of`."""
        *discount, rates = self.underlyings
        return (*discount, caps_of(rates)) if self.has_cap_vols else self.underlyings

    @property
    def shape(self) -> str:
        return "caplets"

    def products(self, column: Column) -> Cap:
        names = "strike", "starts", "period_ends", "accruals", "type", "notional", "amounts"
        return Cap(*map(column, names))


class LeftCapTrade(_LeftTrade, CapTrade):
    """The rest of a cap; see `CapTrade.aged`."""


class LeftFloorTrade(_LeftTrade, FloorTrade):
    """The rest of a floor."""
