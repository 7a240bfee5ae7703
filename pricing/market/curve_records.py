"""The JSON object of a curve, as a pydantic model: zero rates, or instrument quotes."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any

import numpy as np
from pydantic import model_validator

from pricing.ingestion.errors import listed
from pricing.ingestion.field_types import choice, problem

from .bootstrap import CurveQuotes, first_overlap
from .curve import ZeroCurve
from .dates import year_fraction
from .instrument_records import (
    BasisSwapsRecord,
    DepositsRecord,
    FrasRecord,
    FuturesRecord,
    OvernightSwapsRecord,
    QuotesRecord,
    SwapsRecord,
)
from .outliers import odd_rate
from .records import Days, IsoDate, Name, Rate, Record, check_same_length, pillar_dates

_SINGULAR = {
    "deposits": "deposit",
    "fras": "FRA",
    "futures": "future",
    "overnight_swaps": "overnight swap",
    "swaps": "swap",
    "basis_swaps": "basis swap",
}
_SECTIONS = tuple(_SINGULAR)


class CurveRecord(Record):
    """Zero rates at pillar dates, one flat `zero_rate`, or instrument quotes.

    A curve with a `discount_curve` is a forward curve: it gives floating rates, and the other curve discounts.
    """

    currency: Name | None = None
    discount_curve: Name | None = None
    day_count: Annotated[str, choice("ACT/365")] = "ACT/365"
    compounding: Annotated[str, choice("continuous")] = "continuous"
    interpolation: Annotated[str, choice("linear zero")] = "linear zero"
    dates: list[IsoDate] | None = None
    days: list[Days] | None = None
    zero_rates: list[Rate] | None = None
    flat_from: IsoDate | None = None
    zero_rate: Rate | None = None
    deposits: DepositsRecord | None = None
    fras: FrasRecord | None = None
    futures: FuturesRecord | None = None
    overnight_swaps: OvernightSwapsRecord | None = None
    swaps: SwapsRecord | None = None
    basis_swaps: BasisSwapsRecord | None = None

    @model_validator(mode="after")
    def _check(self, info):
        ways = (self.zero_rate, self.zero_rates, self.sections or None)
        if sum(way is not None for way in ways) != 1:
            raise problem(
                "needs either zero_rates or zero_rate, or quotes of instruments",
                "give zero_rates with dates (or days), or one flat zero_rate, or quotes of "
                + listed(_SECTIONS),
            )
        if self.zero_rates is not None:
            pillars = self.pillars(info.context["asof"])
            check_same_length(self.zero_rates, pillars, "zero_rates", "zero rate", "pillar")
            if odd := odd_rate(self.zero_rates):
                raise problem(odd.message, "correct it", "zero_rates", odd.place)
        if self.sections:
            self._check_quotes(info.context["asof"])
        return self

    def _check_quotes(self, asof: date) -> None:
        """Check that the ends of the instruments increase, and that nothing else is given.

        Raises:
            problem: They do not increase, or another field is given.
        """
        for field in ("dates", "days", "flat_from"):
            if getattr(self, field) is not None:
                remedy = f"leave out {field}: the pillars are where the instruments end"
                raise problem("does not belong to a curve of quotes", remedy, field)
        if self.discount_curve and self.swaps is not None and not self.swaps.floating_frequency:
            message = "is missing, and the value of a floating leg on a forward curve depends on it"
            remedy = "give that of the forward rates, such as semiannual"
            raise problem(message, remedy, "swaps", "floating_frequency")
        if self.basis_swaps is not None and not self.discount_curve:
            message = "needs a discount_curve: a basis swap has two floating rates"
            remedy = "name the curve that discounts, which may be that of the other leg"
            raise problem(message, remedy, "basis_swaps")
        legs = [leg for section in self.sections.values() for leg in section.legs(asof)]
        ends = np.array([leg.payment_dates[-1] for leg in legs])
        if late := first_overlap(ends):
            day, before = (asof + timedelta(round(365.0 * ends[at])) for at in (late, late - 1))
            (*_, other), (*path, name) = self.places[late - 1], self.places[late]
            raise problem(
                f"{name} ends on {day}, not after {other}, which ends on {before}",
                f"sort each kind by ends, and let {listed(_SECTIONS)} end one kind after the other; leave out "
                "one of two that overlap",
                *path,
            )

        places = [
            (name, section.quotes, index, rate)
            for name, section in self.sections.items()
            for index, rate in enumerate(section.simple_rates)
        ]
        if odd := odd_rate([rate for *_, rate in places]):
            raise problem(odd.message, "correct its quote", *places[odd.place][:3])

    @property
    def basis_curve(self) -> str | None:
        """The curve of the other leg of basis swaps; None for the discount curve, or without basis swaps."""
        other = self.basis_swaps and self.basis_swaps.other_curve
        return None if other == self.discount_curve else other

    @property
    def sections(self) -> dict[str, QuotesRecord]:
        """The quoted instruments, by kind."""
        kinds = {name: getattr(self, name) for name in _SECTIONS}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    @property
    def places(self) -> list[tuple[str, str, int, str]]:
        """The section, field, index and description of each instrument's name."""
        return [
            (name, section.names, index, f"the {_SINGULAR[name]} {section.ids[index]}")
            for name, section in self.sections.items()
            for index in range(len(section.ids))
        ]

    def curve(self, asof: date) -> ZeroCurve | CurveQuotes:
        """Return the curve."""
        if self.sections:
            rules = {"is_forward": self.discount_curve is not None}
            kinds = (section.instruments(asof, **rules) for section in self.sections.values())
            names = self.discount_curve or "", self.basis_curve or ""
            return CurveQuotes(*kinds, discount_curve=names[0], basis_curve=names[1])
        times = [year_fraction(asof, day, "ACT/365") for day in self.pillars(asof)]
        return ZeroCurve(times, self.rates())

    def labels(self, name: str, asof: date) -> dict[str, tuple[str, ...]]:
        """Return the quote ids of the curve under this name, by the path of a leaf."""
        if not self.sections:
            return {".zero_rates": tuple(f"ZERO/RATE/{name}/{day}" for day in self.pillars(asof))}
        return {
            f".instruments[{index}].{section.quotes}": tuple(
                f"{section.kind}/{name}/{instrument}" for instrument in section.ids
            )
            for index, section in enumerate(self.sections.values())
        }

    def pillars(self, asof: date) -> tuple[date, ...]:
        """Return the pillar dates; a flat curve has a single one, `flat_from` or the as-of date."""
        if self.zero_rates is None:
            return (self.flat_from or asof,)
        return pillar_dates(asof, "dates", self.dates, self.days, first=0)

    def rates(self) -> list[float]:
        """Return one zero rate for each pillar."""
        return [self.zero_rate] if self.zero_rate is not None else self.zero_rates or []


def reading_depths(curves: Mapping[str, object]) -> dict[str, int]:
    """Return the depth of each curve in the graph of dependencies, which gives the order of reading."""

    def depth(name: object, above: tuple[object, ...] = ()) -> int:
        value = curves.get(name) if isinstance(name, str) else None
        if not isinstance(value, dict) or name in above:
            return 0
        swaps: Any = value.get("basis_swaps")
        other = swaps.get("other_curve") if isinstance(swaps, dict) else None
        before = [x for x in (value.get("discount_curve"), other) if x is not None]
        return max((1 + depth(x, (*above, name)) for x in before), default=0)

    return {name: depth(name) for name in curves}
