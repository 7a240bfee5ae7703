"""Rows of forward rate agreements."""

from datetime import date

from pydantic import Field

from ..ingestion.field_types import problem
from ..market.conventions import DayCount
from ..market.dates import advance, year_fraction
from ..market.observed import Observed
from .floating_payments import Coupon, FloatingPayments, FloatingTrade, fields_of
from .rate_trade import ForwardCurveTrade
from .trade import Aged, IsoDate


class FraTrade(ForwardCurveTrade):
    """A forward rate agreement pays notional (F - K) accrual / (1 + F accrual) at the start of its period.

    K is the fixed rate, which the payer pays, and F the simple rate fixed at the start.

    Attributes:
        start: The day on which the rate is fixed and paid, unadjusted.
        day_count: The day count of the period.
    """

    type = "fra"
    product = FloatingPayments

    start: IsoDate = Field(
        description="a start, YYYY-MM-DD, the day on which the rate is fixed and paid"
    )
    day_count: DayCount = "ACT/360"

    @property
    def expiry(self) -> date:
        return advance(self.start, calendar=self.calendar)

    @property
    def swap_from(self) -> date:
        return self.start

    @property
    def period_end(self) -> date:
        """The end of the period of the rate."""
        return advance(self.maturity, calendar=self.calendar)

    @property
    def accrual(self) -> float:
        """The year fraction of the period."""
        return year_fraction(self.expiry, self.period_end, self.day_count)

    @property
    def months(self) -> int:
        """The length of the period in months, which names its fixing."""
        return 12 * (self.maturity.year - self.start.year) + self.maturity.month - self.start.month

    def check(self) -> None:
        super().check()
        if not 1 <= self.months <= 12:
            message = f"from {self.start} to {self.maturity} there are {self.months} months"
            raise problem(message, "give a period of 1 to 12 months", "maturity")
        if self.frequency != "annual":
            message = f"{self.frequency} is given, but an FRA has a single period"
            raise problem(message, "leave it empty", "frequency")

        if self.end_of_month == "yes":
            message = "an FRA has no dates between its start and its maturity"
            raise problem(message, "leave it empty", "end_of_month")

    def aged(self, observed: Observed) -> Aged:
        start, end = self.expiry, self.period_end
        if start > observed.until:
            owed = self.sign * self.fixed_rate * self.accrual
            coupon = Coupon(end, start, start, -self.sign - owed)
            return Aged(0.0, self._as(FloatingFraTrade, **fields_of({start: -owed}, [coupon])))
        return super().aged(observed)

    def payoff(self, observed: Observed) -> float:
        terms = self.rates_curve, self.months, self.expiry, self.period_end, self.accrual
        rate = observed.rate(*terms)
        return self.sign * (rate - self.fixed_rate) * self.accrual / (1.0 + rate * self.accrual)


class FloatingFraTrade(FloatingTrade, FraTrade):
    """The payment of an FRA; see `FraTrade.aged`."""
