"""The JSON objects of a market file, as pydantic models."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator

from pricing.ingestion.field_types import (
    check_increasing,
    choice,
    days,
    iso_date,
    name,
    number,
    problem,
    wrong_number,
)
from pricing.ingestion.validation import validate

from .outliers import check_outlier
from .quote_bounds import BOUNDS, MOST_NORMAL_VOL, Slip, rate_vol_slip, slip_of

Spot = Annotated[float, number("spot", **BOUNDS["spot"])]
Rate = Annotated[float, number("rate", **BOUNDS["rate"])]
Spread = Annotated[float, number("spread", **BOUNDS["spread"])]
Yield = Annotated[float, number("rate", **BOUNDS["dividend_yield"])]
Wing = Annotated[float, number("quote", least=-1.0, most=1.0)]
Strike = Annotated[float, number("strike", **BOUNDS["strike"])]
Correlation = Annotated[float, number("correlation", least=-1.0, most=1.0)]
Vol = Annotated[float, number("vol", **BOUNDS["vol"])]
Cash = Annotated[float, number("dividend", least=0.0)]
Proportion = Annotated[float, number("proportion", least=0.0, most=0.99)]
Positive = Annotated[float, number("vol", above=0.0)]
NormalVol = Annotated[float, number("normal vol", above=0.0, most=MOST_NORMAL_VOL)]
Years = Annotated[float, number("number of years", above=0.0, most=100.0)]
Tenor = Annotated[float, number("number of years", above=0.0, most=60.0)]
"""The largest number of payments of a swap in a calibration, at one payment per year."""
Days = Annotated[int, days]
IsoDate = Annotated[date, iso_date]
Name = Annotated[str, name]


class Record(BaseModel):
    """An object of a file: immutable, and without other fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImpliedVolsRecord(Record):
    """A matrix of implied vols, one row per expiry, one column per strike."""

    expiries: list[IsoDate] | None = None
    days: list[Days] | None = None
    strikes: list[Strike] = Field(description="strikes, a list of increasing prices")
    vols_by_expiry: list[list[Vol | None]] = Field(
        description="vols_by_expiry, one list for each expiry"
    )

    @model_validator(mode="after")
    def _check(self, info):
        expiries = self.pillars(info.context["asof"])
        increasing(self.strikes, "strikes")
        check_matrix(self.vols_by_expiry, expiries, self.strikes, "strike")
        for index, row in enumerate(self.vols_by_expiry):
            if all(vol is None for vol in row):
                remedy = "give a vol, or leave the expiry out"
                raise problem("an expiry has no vol", remedy, "vols_by_expiry", index)
        check_outlier(self.vols_by_expiry, "vols_by_expiry", "correct it, or give null")
        return self

    @property
    def vols(self) -> list[float]:
        """The quoted vols."""
        return [vol for row in self.vols_by_expiry for vol in row if vol is not None]

    def pillars(self, asof: date) -> tuple[date, ...]:
        """Return the expiry dates."""
        return pillar_dates(asof, "expiries", self.expiries, self.days, first=1)


class DividendYieldRecord(Record):
    """A flat dividend yield, given as a number, or yields at pillar dates."""

    rate: Yield | None = None
    dates: list[IsoDate] | None = None
    days: list[Days] | None = None
    rates: list[Yield] | None = None

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: object, info):
        if isinstance(value, dict | cls):
            return value
        found, problems = validate(RootModel[Yield], value, **(info.context or {}))
        if found is None:
            raise problem(problems[0].message, problems[0].remedy)
        return {"rate": found.root}

    @model_validator(mode="after")
    def _check(self, info):
        if (self.rate is None) == (self.rates is None):
            remedy = "give a number, or rates with dates (or days)"
            raise problem("needs either one rate or a list of rates", remedy)
        if self.rates is not None:
            pillars = self.pillars(info.context["asof"])
            check_same_length(self.rates, pillars, "rates", "rate", "pillar")
        return self

    def pillars(self, asof: date) -> tuple[date, ...]:
        """Return the pillar dates; a flat yield has none."""
        if self.rates is None:
            return ()
        return pillar_dates(asof, "dates", self.dates, self.days, first=0)


class DividendsRecord(Record):
    """Dividends on ex-dates: cash, proportions of the spot, or both."""

    dates: list[IsoDate] | None = None
    days: list[Days] | None = None
    cash: list[Cash] | None = None
    proportions: list[Proportion] | None = None

    @model_validator(mode="after")
    def _check(self, info):
        days = self.ex_dates(info.context["asof"])
        if self.cash is None and self.proportions is None:
            remedy = "give cash (amounts) or proportions (shares of the spot), one for each date"
            raise problem("needs cash or proportions", remedy)
        for label in ("cash", "proportions"):
            if (values := getattr(self, label)) is not None:
                check_same_length(values, days, label, "number", "date")
        return self

    def owed(self, asof: date) -> float:
        """Return the sum of the cash still to be paid."""
        paid = zip(self.ex_dates(asof), self.cash or [0.0] * len(self.ex_dates(asof)), strict=True)
        return sum((cash for day, cash in paid if day > asof), 0.0)

    def ex_dates(self, asof: date) -> tuple[date, ...]:
        """Return the ex-dates, some of which may have passed."""
        first = -(10**6) if self.dates is not None else 0
        return pillar_dates(asof, "dates", self.dates, self.days, first=first)


class EquityRecord(Record):
    """A share or index."""

    curve: Name = Field(description="curve, the name of a curve in this file")
    spot: Spot = Field(description="spot, the price of one share or index point")
    dividend_yield: DividendYieldRecord = DividendYieldRecord(rate=0.0)
    dividends: DividendsRecord | None = None
    currency: Name | None = None
    implied_vols: ImpliedVolsRecord | None = None
    option_quotes: list[Any] | None = None

    @model_validator(mode="after")
    def _check(self, info):
        asof, quotes = info.context["asof"], self.implied_vols
        given = (quotes, self.option_quotes, info.context.get("table"))
        if all(each is None for each in given):
            remedy = "give implied_vols, an object with expiries, strikes and vols_by_expiry, or option_quotes"
            raise problem("is missing", remedy, "implied_vols")
        if quotes is not None and self.option_quotes is not None:
            raise problem(
                "is given together with implied_vols", "keep one of them", "option_quotes"
            )
        if quotes is not None:
            slip = slip_of(self.spot, quotes.strikes, quotes.vols)
            field = "strikes" if slip and slip.field == "strike" else "vols_by_expiry"
            check_slip(slip, "implied_vols", field)
        if self.dividends is not None and (owed := self.dividends.owed(asof)) >= self.spot:
            message = f"the dividends are {owed:g}, more than the spot, {self.spot:g}"
            remedy = (
                "give those of the next years as cash, and later ones as proportions or a yield"
            )
            raise problem(message, remedy, "dividends", "cash")
        return self


class SwaptionVolsRecord(Record):
    """A matrix of at-the-money swaption vols, one row per expiry, one column per tenor."""

    type: Annotated[str, choice("lognormal", "normal")] = "lognormal"
    curve: Name | None = None
    expiries_years: list[Years] = Field(description="expiries_years, a list of years to exercise")
    tenors_years: list[Tenor] = Field(description="tenors_years, a list of years of the swap")
    vols_by_expiry: list[list[Positive]] = Field(
        description="vols_by_expiry, one list for each expiry"
    )

    @model_validator(mode="after")
    def _check(self):
        increasing(self.expiries_years, "expiries_years")
        increasing(self.tenors_years, "tenors_years")
        check_matrix(self.vols_by_expiry, self.expiries_years, self.tenors_years, "tenor")
        check_vol_unit(self.type, self.vols_by_expiry, "vols_by_expiry")
        check_outlier(self.vols_by_expiry, "vols_by_expiry")
        return self

    def ids(self, currency: str) -> tuple[str, ...]:
        """Return the quote ids of the vols of a currency, in row-major order."""
        kind = "RATE_LNVOL" if self.type == "lognormal" else "RATE_NVOL"
        return tuple(
            f"SWAPTION/{kind}/{currency}/{_period(expiry)}/{_period(tenor)}"
            for expiry in self.expiries_years
            for tenor in self.tenors_years
        )


def check_vol_unit(kind: str, vols: Sequence[Any], label: str) -> None:
    """Check that normal vols are decimals, and lognormal vols are neither percentages nor normal vols.

    vols: a list, or a list of rows of equal length; label: its field.

    Raises:
        problem: They are not.
    """
    numbers = np.array(vols, float)
    if kind == "lognormal":
        for place, vol in np.ndenumerate(numbers):
            if wrong := wrong_number("vol", float(vol), **BOUNDS["vol"]):
                raise problem(*wrong, label, *place)
    check_slip(rate_vol_slip(kind, numbers.ravel()), label)


def check_slip(slip: Slip | None, *path: str) -> None:
    """Raise a slip, if there is one, as the problem of a record.

    Raises:
        problem: There is one.
    """
    if slip is not None:
        raise problem(slip.message, slip.remedy, *path)


def pillar_dates(
    asof: date, label: str, dates: list[date] | None, offsets: list[int] | None, *, first: int
) -> tuple[date, ...]:
    """Return the dates, given as dates or as days from `asof`, increasing and at least day `first`.

    Raises:
        problem: They are missing, inconsistent, or do not increase.
    """
    if dates is None and offsets is None:
        raise problem(f"needs {label} or days", f"give {label} (dates) or days from the as-of date")
    if dates is None:
        dates, label = [asof + timedelta(days=offset) for offset in offsets or ()], "days"
    elif offsets is not None:
        check_same_length(offsets, dates, "days", "number of days", label)
        for index, (pillar, offset) in enumerate(zip(dates, offsets, strict=True)):
            if (actual := (pillar - asof).days) != offset:
                raise problem(
                    f"{offset} days do not lead from {asof} to {pillar}, which is {actual} days on",
                    f"correct one of the two, or give {label} only",
                    "days",
                    index,
                )
    increasing(dates, label)
    if (dates[0] - asof).days < first:
        raise problem(
            f"{dates[0]} is {'not after' if first else 'before'} the as-of date {asof}",
            f"give {label} from {asof + timedelta(days=first)} on",
            label,
            0,
        )
    return tuple(dates)


def increasing(values: Sequence, label: str):
    """Check that a list is not empty and strictly increasing.

    Raises:
        problem: If it is not.
    """
    if not values:
        raise problem("the list is empty", f"give at least one of {label}", label)
    remedy = f"sort {label} (and the numbers that belong to them) in increasing order"
    check_increasing(values, remedy, label)


def check_matrix(
    matrix: Sequence[Sequence],
    rows: Sequence,
    columns: Sequence,
    column: str,
    label: str = "vols_by_expiry",
):
    """Check that a matrix has the shape of its pillars; label: its field, such as vols_by_expiry.

    Raises:
        problem: The shapes differ.
    """
    what, _, pillar = label.split("_")
    pillars = {"expiry": "expiries", "maturity": "maturities"}[pillar]
    if len(matrix) != len(rows):
        raise problem(
            f"{len(matrix)} rows of {what} for {len(rows)} {pillars}",
            f"give one row of {what} for each {pillar}",
            label,
        )
    for index, row in enumerate(matrix):
        if len(row) != len(columns):
            raise problem(
                f"a row of {len(row)} {what} for {len(columns)} {column}s",
                f"give one {what[:-1]} for each {column}",
                label,
                index,
            )


def check_same_length(values: Sequence, pillars: Sequence, label: str, value: str, pillar: str):
    """Check that there is one value for each pillar.

    Raises:
        problem: The counts differ.
    """
    if len(values) != len(pillars):
        raise problem(
            f"{len(values)} {label} for {len(pillars)} pillars",
            f"give one {value} for each {pillar}",
            label,
        )


def plain_number(value: float) -> str:
    """Return a strike as plain text: no exponent, no trailing zeros."""
    return str(int(value)) if value.is_integer() else repr(value)


def _period(years: float) -> str:
    months = years * 12
    whole_months = months.is_integer() and not years.is_integer()
    return f"{months:.0f}M" if whole_months else f"{plain_number(years)}Y"
