"""The common part of rows of swaps and swaptions."""

import abc
import functools
import itertools
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from ..ingestion.field_types import choice, number, problem
from ..market.conventions import MONTHS, Calendar, DayCount, Frequency, YesOrNo
from ..market.dates import schedule, year_fraction
from .trade import IsoDate, Name, Notional, Trade

FixedRate = Annotated[float, number("fixed_rate", least=-1.0, most=1.0)]
Side = Annotated[Literal["payer", "receiver"], choice("payer", "receiver")]


class OnForwardCurve(Trade, abc.ABC):
    """The common part of rows whose floating rates may come from a separate forward curve.

    Attributes:
        forward_curve: The curve of the floating rates; None for the underlying.
    """

    forward_curve: Name | None = None

    @property
    def rates_curve(self) -> str:
        """The name of the curve of the floating rates."""
        return self.forward_curve or self.underlying

    @property
    def underlyings(self) -> tuple[str, ...]:
        """The discount curve, and the curve of the floating rates if it is another."""
        return tuple(dict.fromkeys((self.underlying, self.rates_curve)))


class RateTrade(Trade, abc.ABC):
    """The common part of swaps and swaptions: fixed coupons against a floating leg, from one day to `maturity`.

    Its dates are counted back from the maturity and adjusted to business days (modified following). Under the
    end-of-month rule, if the maturity ends a month, so do the dates in between.
    """

    in_rates = True

    underlying: Name = Field(description="an underlying, the name of a curve of the market")
    side: Side = Field(description="a side: payer or receiver, of the fixed rate")
    fixed_rate: FixedRate = Field(description="a fixed_rate, as a decimal")
    maturity: IsoDate = Field(description="a maturity, YYYY-MM-DD, the day of the last payment")
    notional: Notional = 1.0
    frequency: Frequency = "annual"
    day_count: DayCount = "30E/360"
    calendar: Calendar = "XECB"
    end_of_month: YesOrNo = "no"

    @property
    def shape(self) -> int:
        return len(self.payment_dates)

    @property
    @abc.abstractmethod
    def swap_from(self) -> date:
        """The first day from which interest may accrue, unadjusted."""

    @functools.cached_property
    def swap_dates(self) -> tuple[date, ...]:
        """The start of the swap, and its payment dates."""
        return self.days_of(MONTHS[self.frequency], self.swap_from)

    def days_of(self, months: int, start: date) -> tuple[date, ...]:
        """Return the start dates of the periods from a day to the maturity, and the end of the last period.

        Args:
            months: The length of a period in months.
            start: The first day, unadjusted.
        """
        rules = {"calendar": self.calendar, "end_of_month": self.end_of_month == "yes"}
        return tuple(schedule(start, self.maturity, months, **rules))

    @property
    def swap_start(self) -> date:
        return self.swap_dates[0]

    @property
    def payment_dates(self) -> tuple[date, ...]:
        return self.swap_dates[1:]

    @property
    def accruals(self) -> tuple[float, ...]:
        """The year fraction of each coupon."""
        periods = itertools.pairwise(self.swap_dates)
        return tuple(year_fraction(*period, self.day_count) for period in periods)

    @property
    def sign(self) -> float:
        """The notional, negative if the fixed rate is received."""
        return self.notional * (1.0 if self.side == "payer" else -1.0)

    def check(self) -> None:
        if self.maturity <= self.swap_from or len(self.swap_dates) < 2:
            message = f"there is no business day after {self.swap_from} up to {self.maturity}"
            raise problem(message, "give a maturity that leaves a payment", "maturity")


class ForwardCurveTrade(OnForwardCurve, RateTrade, abc.ABC):
    """The common part of swaps and FRAs."""
