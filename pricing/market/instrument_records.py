"""The JSON objects of curve instruments, as pydantic models."""

import abc
import itertools
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from pricing.ingestion.field_types import choice, number, problem, whole_number

from .basis_swaps import BasisSwaps
from .conventions import (
    MONTHS,
    Calendar,
    DayCount,
    ForwardPeriod,
    Frequency,
    MonthPeriod,
    Period,
    end_of,
    months_of,
)
from .dates import Leg, advance, leg, schedule, year_fraction
from .floating_swaps import FloatingSwaps
from .instruments import CurveInstruments, Deposits, Futures, ParSwaps
from .records import IsoDate, Name, Rate, Record, Spread, check_same_length

Price = Annotated[float, number("price", above=0.0, most=200.0)]
Convexity = Annotated[float, number("convexity", least=-0.1, most=0.1)]
Lag = Annotated[int, whole_number("number of business days", 0, 10)]
SpreadLeg = Annotated[str, choice("own", "other")]
Months = Annotated[int, whole_number("number of months", 1, 12)]


class QuotesRecord(Record, abc.ABC):
    """Instruments of one kind: their names, and a quote for each.

    kind: the prefix of their quote ids; names, quotes: the fields with the names and the quotes.
    """

    kind: ClassVar[str]
    names: ClassVar[str]
    quotes: ClassVar[str]

    calendar: Calendar = "XECB"

    @model_validator(mode="after")
    def _check(self, info):
        if not self.ids:
            raise problem("the list is empty", f"give at least one of {self.names}", self.names)
        if (count := len(getattr(self, self.quotes))) != len(self.ids):
            message = f"{count} {self.quotes} for {len(self.ids)} {self.names}"
            raise problem(message, f"give one quote for each of {self.names}", self.quotes)
        for index in range(len(self.ids)):
            try:
                self._leg(info.context["asof"], index)
            except ValueError as error:
                what, _, remedy = str(error).partition(": ")
                remedy = remedy or "give a later or a shorter one"
                raise problem(what, remedy, self.names, index) from None
        return self

    @property
    def ids(self) -> list[str]:
        """The names of the instruments, which end their quote ids."""
        return [str(name) for name in getattr(self, self.names)]

    @property
    def simple_rates(self) -> list[float]:
        """The quotes as rates; none of spreads."""
        return getattr(self, self.quotes)

    def legs(self, asof: date) -> list[Leg]:
        """Return the accrual periods and payment times of each instrument."""
        return [self._leg(asof, index) for index in range(len(self.ids))]

    @abc.abstractmethod
    def _leg(self, asof: date, index: int) -> Leg:
        """Return the accrual periods and payment times of one instrument."""

    @abc.abstractmethod
    def instruments(self, asof: date, *, is_forward: bool) -> CurveInstruments:
        """Return the quoted instruments. is_forward: whether another curve discounts them."""


class OnePeriodRecord(QuotesRecord):
    """Instruments on the simple rate of one period each."""

    rates: list[Rate] = Field(description="rates, one for each tenor")
    day_count: DayCount = "ACT/360"
    lag: Lag = 2

    @abc.abstractmethod
    def _period(self, spot: date, index: int) -> tuple[date, date]:
        """Return the first and last day of a period; spot: `lag` business days after the as-of date."""

    def _leg(self, asof: date, index: int) -> Leg:
        spot = advance(asof, business_days=self.lag, calendar=self.calendar)
        period = self._period(spot, index)
        start, end = _years(asof, period)
        accrual = year_fraction(*period, self.day_count)
        return Leg(float(start), np.array([end]), np.array([accrual]))

    def instruments(self, asof: date, *, is_forward: bool) -> CurveInstruments:
        del is_forward
        rates: Any = self.rates
        return Deposits(**_periods(self.legs(asof)), rates=rates)


class DepositsRecord(OnePeriodRecord):
    """Deposits that start `lag` business days after the as-of date."""

    kind, names, quotes = "MM/RATE", "tenors", "rates"

    tenors: list[Period] = Field(description="tenors, a list such as 1W, 3M")

    def _period(self, spot: date, index: int) -> tuple[date, date]:
        return spot, end_of(spot, self.tenors[index], self.calendar)


class FrasRecord(OnePeriodRecord):
    """Forward rate agreements; 3x9 runs from 3 to 9 months after the spot date (`lag` business days)."""

    kind, names, quotes = "FRA/RATE", "tenors", "rates"

    tenors: list[ForwardPeriod] = Field(description="tenors, a list such as 3x6, 6x9")

    def _period(self, spot: date, index: int) -> tuple[date, date]:
        first, last = map(int, self.tenors[index].split("x"))
        start, end = (advance(spot, months=n, calendar=self.calendar) for n in (first, last))
        return start, end


class FuturesRecord(QuotesRecord):
    """Futures on the rate over `months` from each start."""

    kind, names, quotes = "MM_FUTURE/PRICE", "starts", "prices"

    starts: list[IsoDate] = Field(description="starts, a list of dates")
    prices: list[Price] = Field(description="prices, 100 less the rate in percent, one for each")
    convexity: list[Convexity] | None = None
    months: Months = 3
    day_count: DayCount = "ACT/360"

    @property
    def simple_rates(self) -> list[float]:
        return [1.0 - price / 100.0 for price in self.prices]

    @model_validator(mode="after")
    def _check_convexity(self):
        if self.convexity is not None:
            counted = "convexity", "convexity adjustment", "future"
            check_same_length(self.convexity, self.starts, *counted)
        return self

    def _leg(self, asof: date, index: int) -> Leg:
        start = self.starts[index]
        end = advance(start, months=self.months, roll=None)
        rules: dict[str, Any] = {"calendar": self.calendar, "day_count": self.day_count}
        return leg(asof, start, end, self.months, **rules)

    def instruments(self, asof: date, *, is_forward: bool) -> CurveInstruments:
        del is_forward
        convexity = self.convexity or [0.0] * len(self.starts)
        prices: Any = self.prices
        return Futures(**_periods(self.legs(asof)), prices=prices, convexity=convexity)


class OvernightSwapsRecord(QuotesRecord):
    """Overnight index swaps that start `lag` business days after the as-of date.

    Both legs pay `payment_lag` business days after each period. Swaps of up to one year have one period.
    """

    kind, names, quotes = "OIS/RATE", "tenors", "rates"

    tenors: list[Period] = Field(description="tenors, a list such as 1M, 5Y")
    rates: list[Rate] = Field(description="rates, one for each tenor")
    frequency: Frequency = "annual"
    day_count: DayCount = "ACT/360"
    lag: Lag = 2
    payment_lag: Lag = 0

    def _days(self, asof: date, index: int) -> list[date]:
        """Return the boundaries of the periods of a swap."""
        start, tenor = (
            advance(asof, business_days=self.lag, calendar=self.calendar),
            self.tenors[index],
        )
        if tenor[-1] in "DW":
            end = end_of(start, tenor, self.calendar)
        else:
            end = advance(start, months=months_of(tenor), roll=None)
        return schedule(start, end, MONTHS[self.frequency], calendar=self.calendar)

    def _leg(self, asof: date, index: int) -> Leg:
        days = self._days(asof, index)
        accruals = [year_fraction(*period, self.day_count) for period in itertools.pairwise(days)]
        lagged = {"business_days": self.payment_lag, "calendar": self.calendar}
        paid = _years(asof, [advance(day, **lagged) for day in days[1:]])
        return Leg(float(_years(asof, days[:1])[0]), paid, np.array(accruals))

    def instruments(self, asof: date, *, is_forward: bool) -> CurveInstruments:
        del is_forward
        legs = self.legs(asof)
        days = (_years(asof, self._days(asof, index)) for index in range(len(legs)))
        floating = [(own, leg.payment_dates) for own, leg in zip(days, legs, strict=True)]
        return FloatingSwaps.of_legs(legs, floating, self.rates)


class SwapsRecord(QuotesRecord):
    """Swaps that start `lag` business days after the as-of date."""

    kind, names, quotes = "IR_SWAP/RATE", "tenors", "rates"

    tenors: list[MonthPeriod] = Field(description="tenors, a list such as 18M, 5Y")
    rates: list[Rate] = Field(description="rates, one for each tenor")
    frequency: Frequency = "annual"
    day_count: DayCount = "30E/360"
    floating_frequency: Frequency | None = None
    lag: Lag = 2

    def _leg(self, asof: date, index: int, frequency: str | None = None) -> Leg:
        start = advance(asof, business_days=self.lag, calendar=self.calendar)
        end = advance(start, months=months_of(self.tenors[index]), roll=None)
        rules: dict[str, Any] = {"calendar": self.calendar, "day_count": self.day_count}
        return leg(asof, start, end, MONTHS[frequency or self.frequency], **rules)

    def instruments(self, asof: date, *, is_forward: bool) -> CurveInstruments:
        legs = self.legs(asof)
        if not is_forward:  # the floating leg is worth P(start) - P(end) for any periods
            return ParSwaps.of_legs(legs, self.rates)
        of_rates = (self._leg(asof, index, self.floating_frequency) for index in range(len(legs)))
        floating = [(np.array([x.start, *x.payment_dates]), x.payment_dates) for x in of_rates]
        return FloatingSwaps.of_legs(legs, floating, self.rates)


class BasisSwapsRecord(QuotesRecord):
    """Basis swaps that start `lag` business days after the as-of date, with a spread on one leg."""

    kind, names, quotes = "BASIS_SWAP/BASIS_SPREAD", "tenors", "spreads"

    tenors: list[MonthPeriod] = Field(description="tenors, a list such as 18M, 5Y")
    spreads: list[Spread] = Field(description="spreads, one for each tenor")
    floating_frequency: Frequency = Field(
        description="a floating_frequency, of the curve's own rates"
    )
    other_frequency: Frequency = Field(
        description="an other_frequency, of the rates of the other leg"
    )
    other_curve: Name | None = None
    spread_on: SpreadLeg = "own"
    day_count: DayCount = "ACT/360"
    lag: Lag = 2

    @property
    def simple_rates(self) -> list[float]:
        return []

    def _leg(self, asof: date, index: int, frequency: str | None = None) -> Leg:
        start = advance(asof, business_days=self.lag, calendar=self.calendar)
        end = advance(start, months=months_of(self.tenors[index]), roll=None)
        rules: dict[str, Any] = {"calendar": self.calendar, "day_count": self.day_count}
        return leg(asof, start, end, MONTHS[frequency or self.floating_frequency], **rules)

    def instruments(self, asof: date, *, is_forward: bool) -> CurveInstruments:
        del is_forward

        def legs(
            frequency: str, has_spread: bool
        ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            found = (self._leg(asof, index, frequency) for index in range(len(self.ids)))
            return [
                (
                    np.array([x.start, *x.payment_dates[:-1]]),
                    x.payment_dates,
                    x.accruals * has_spread,
                )
                for x in found
            ]

        own = legs(self.floating_frequency, self.spread_on == "own")
        other = legs(self.other_frequency, self.spread_on == "other")
        return BasisSwaps.of_legs(own, other, self.spreads)


def _years(asof: date, days: Sequence[date]) -> np.ndarray:
    return np.array([year_fraction(asof, day, "ACT/365") for day in days])


def _periods(legs: Sequence[Leg]) -> dict[str, Any]:
    """Return the starts, ends and accruals of legs with a single payment."""
    ends, accruals = zip(*((x.payment_dates[0], x.accruals[0]) for x in legs), strict=True)
    return {"start": [x.start for x in legs], "end": ends, "accruals": accruals}
