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

_QUOTES = "at_the_money", "vols_by_maturity", "premiums_by_maturity"


class CapVolsRecord(Record):
    """Caps on the rates of a curve: flat vols or premiums, one row per maturity, one column per strike.

    Or caps at the money: one flat vol per maturity. A cap begins `lag` business days after the as-of date. Its
    first rate is fixed then and is excluded.
    """

    type: Annotated[str, choice(*VOL_KINDS)] = "lognormal"
    shift: Shift = 0.0
    frequency: Frequency = Field(description="a frequency of the periods, such as quarterly")
    maturities: list[MonthPeriod] = Field(description="maturities, a list such as 2Y, 5Y")
    at_the_money: list[Positive] | None = None
    strikes: list[CapStrike] | None = None
    vols_by_maturity: list[list[Positive]] | None = None
    premiums_by_maturity: list[list[Premium]] | None = None
    option: Annotated[str, choice("cap", "floor")] | None = None
    day_count: DayCount = "ACT/360"
    calendar: Calendar = "XECB"
    lag: Lag = 2

    @model_validator(mode="after")
    def _check(self, info):
        given = [label for label in _QUOTES if getattr(self, label) is not None]
        if len(given) != 1:
            remedy = f"give one of {', '.join(_QUOTES[:-1])} and {_QUOTES[-1]}"
            raise problem("needs either flat vols or premiums", remedy)
        self._check_words()
        if not self.maturities:
            raise problem("the list is empty", "give at least one of maturities", "maturities")
        self._check_strikes()
        if self.option is None:
            check_vol_unit(self.type, getattr(self, self.label), self.label)
            check_outlier(getattr(self, self.label), self.label)
        if self.type == "lognormal" and self.strikes and self.strikes[0] <= -self.shift:
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

    def _check_strikes(self) -> None:
        """Check the strikes, and the shape of the quotes.

        Raises:
            problem: They are wrong.
        """
        if self.at_the_money is not None:
            if self.strikes is not None:
                remedy = "leave them out: caps at the money have their own"
                raise problem("strikes are given together with at_the_money", remedy, "strikes")
            if len(self.at_the_money) != len(self.maturities):
                message = f"{len(self.at_the_money)} vols for {len(self.maturities)} maturities"
                raise problem(message, "give one vol for each maturity", self.label)
            return
        if self.strikes is None:
            raise problem("is missing", "give strikes, a list of rates as decimals", "strikes")
        increasing(self.strikes, "strikes")
        check_matrix(self.matrix, self.maturities, self.strikes, "strike", self.label)

    @property
    def label(self) -> str:
        """The field of the quotes."""
        return next(label for label in _QUOTES if getattr(self, label) is not None)

    @property
    def matrix(self) -> list[list[float]]:
        """The quotes, one row per maturity, one column per strike."""
        quotes = getattr(self, self.label)
        return quotes if self.at_the_money is None else [[vol] for vol in quotes]

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
        unit = "vols" if self.option is None else f"{self.option} premiums"
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
        place = found if self.at_the_money is None else found[:1]
        return ValidationIssue((self.label, *place), "", message, remedy)

    def ids(self, name: str) -> tuple[str, ...]:
        """Return the quote ids, in row-major order."""
        strikes = ["ATM"] if self.strikes is None else [f"{k:.12g}" for k in self.strikes]
        if self.option is not None:
            kind = "PRICE"
        elif self.type == "normal":
            kind = "RATE_NVOL"
        else:
            kind = "RATE_SLNVOL" if self.shift else "RATE_LNVOL"
        option = f"/{self.option}" if kind == "PRICE" else ""
        return tuple(
            f"CAPFLOOR/{kind}/{name}/{maturity}/{strike}{option}"
            for maturity in self.maturities
            for strike in strikes
        )
