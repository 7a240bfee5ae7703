"""The JSON objects of quoted caps, as pydantic models."""

from datetime import date
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from pricing.ingestion.field_types import choice, number, problem
from pricing.ingestion.validation import ValidationIssue

from .cap_quotes import CapQuotes, first_unmet, strip_caps
from .caplet_vols import VOL_KINDS
from .conventions import MONTHS, Calendar, DayCount, Frequency, MonthPeriod, months_of
from .curve import ZeroCurve
from .dates import Leg, advance, leg
from .instrument_records import Lag
from .instruments import filled_in_front
from .outliers import check_outlier
from .records import Positive, Record, check_matrix, check_vol_unit, increasing

Premium = Annotated[float, number("premium", above=0.0, most=1.0)]
CapStrike = Annotated[float, number("strike", least=-1.0, most=1.0)]
Shift = Annotated[float, number("shift", least=0.0, most=1.0)]


class CapVolsRecord(Record):
    """Caps on the rates of a curve: flat vols or premiums, one row per maturity, one column per strike.

    A cap begins `lag` business days after the as-of date. Its first rate is fixed then and is excluded.
    """

    type: Annotated[str, choice(*VOL_KINDS)] = "lognormal"
    shift: Shift = 0.0
    frequency: Frequency = Field(description="a frequency of the periods, such as quarterly")
    maturities: list[MonthPeriod] = Field(description="maturities, a list such as 2Y, 5Y")
    strikes: list[CapStrike] = Field(description="strikes, a list of rates as decimals")
    vols_by_maturity: list[list[Positive]] | None = None
    premiums_by_maturity: list[list[Premium]] | None = None
    option: Annotated[str, choice("cap", "floor")] | None = None
    day_count: DayCount = "ACT/360"
    calendar: Calendar = "XECB"
    lag: Lag = 2

    @model_validator(mode="after")
    def _check(self, info):
        if (self.vols_by_maturity is None) == (self.premiums_by_maturity is None):
            remedy = "give one of vols_by_maturity and premiums_by_maturity"
            raise problem("needs either flat vols or premiums", remedy)
        self._check_words()
        increasing(self.strikes, "strikes")
        if not self.maturities:
            raise problem("the list is empty", "give at least one of maturities", "maturities")
        check_matrix(self.matrix, self.maturities, self.strikes, "strike", self.label)
        if self.vols_by_maturity is not None:
            check_vol_unit(self.type, self.vols_by_maturity, self.label)
            check_outlier(self.vols_by_maturity, self.label)
        if self.type == "lognormal" and self.strikes[0] <= -self.shift:
            message = f"{self.strikes[0]:g} is not above -shift, {0.0 - self.shift:g}"
            raise problem(message, "give a larger shift, or normal vols", "strikes", 0)
        ends = []
        for index, found in enumerate(self._legs(info.context["asof"])):
            if found.payment_dates.size < 2:
                message = (
                    f"{self.maturities[index]} is one period, whose rate is fixed at its start"
                )
                raise problem(message, "give a longer maturity", "maturities", index)
            ends.append(float(found.payment_dates[-2]))
        if late := [index + 1 for index, step in enumerate(np.diff(ends)) if step <= 0.0]:
            message = f"{self.maturities[late[0]]} adds no rate to the maturity before"
            remedy = "sort the maturities, and remove duplicates"
            raise problem(message, remedy, "maturities", late[0])
        return self

    def _check_words(self) -> None:
        if self.type == "normal" and self.shift:
            raise problem(f"{self.shift:g} is the shift of normal vols", "leave it out", "shift")
        if self.option is not None and self.premiums_by_maturity is None:
            remedy = "leave it out: caps and floors have the same vols"
            raise problem(f"{self.option} is given together with vols", remedy, "option")
        if self.option is None and self.premiums_by_maturity is not None:
            raise problem("is missing", "give cap or floor, whose premiums they are", "option")

    @property
    def label(self) -> str:
        """The field of the quotes."""
        return "premiums_by_maturity" if self.vols_by_maturity is None else "vols_by_maturity"

    @property
    def matrix(self) -> list[list[float]]:
        """The quotes, one row per maturity, one column per strike."""
        return getattr(self, self.label)

    def _legs(self, asof: date) -> list[Leg]:
        start = advance(asof, business_days=self.lag, calendar=self.calendar)
        ends = (advance(start, months=months_of(m), roll=None) for m in self.maturities)
        rules = {"calendar": self.calendar, "day_count": self.day_count}
        return [leg(asof, start, end, MONTHS[self.frequency], **rules) for end in ends]

    def quotes(self, asof: date) -> CapQuotes:
        """Return the quotes with the periods of the caps, except those already fixed."""
        legs = self._legs(asof)
        starts = [found.payment_dates[:-1] for found in legs]
        firsts = [float(own[0]) for own in starts]
        unit = "vols" if self.vols_by_maturity is not None else f"{self.option} premiums"
        terms: dict[str, Any] = {
            "starts": filled_in_front(starts, firsts),
            "ends": filled_in_front([found.payment_dates[1:] for found in legs], firsts),
            "accruals": filled_in_front([found.accruals[1:] for found in legs], [0.0] * len(legs)),
            "strikes": self.strikes,
            "quotes": self.matrix,
        }
        return CapQuotes(**terms, shift=self.shift, kind=self.type, unit=unit)

    def unmet(
        self, quotes: CapQuotes, discount: ZeroCurve, forward: ZeroCurve
    ) -> ValidationIssue | None:
        """Return the problem of the first quote that no caplet vol reprices, if there is one.

        quotes: those of this record; discount, forward: the discount and the forward curve.
        """
        found = first_unmet(strip_caps(quotes, discount, forward, throw=False))
        if found is None:
            return None
        message = (
            f"no caplet vol gives {self.matrix[found[0]][found[1]]:g} after the caps before it"
        )
        remedy = "correct it, or a quote before it; with lognormal vols, check the shift"
        return ValidationIssue((self.label, *found), "", message, remedy)

    def ids(self, name: str) -> tuple[str, ...]:
        """Return the quote ids, in row-major order."""
        if self.vols_by_maturity is None:
            kind = "PRICE"
        elif self.type == "normal":
            kind = "RATE_NVOL"
        else:
            kind = "RATE_SLNVOL" if self.shift else "RATE_LNVOL"
        option = f"/{self.option}" if kind == "PRICE" else ""
        return tuple(
            f"CAPFLOOR/{kind}/{name}/{maturity}/{strike:.12g}{option}"
            for maturity in self.maturities
            for strike in self.strikes
        )
