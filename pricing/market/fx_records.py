"""The JSON objects of FX pairs, as pydantic models."""

from datetime import date
from typing import Annotated

from pydantic import Field, model_validator

from pricing.ingestion.field_types import choice, problem

from .fx_vols import STRANGLES
from .outliers import check_outlier, check_wing
from .quote_bounds import slip_of
from .records import (
    Days,
    IsoDate,
    Name,
    Record,
    Spot,
    Vol,
    Wing,
    check_same_length,
    check_slip,
    pillar_dates,
)

_WINGS = "risk_reversals_25", "butterflies_25", "risk_reversals_10", "butterflies_10"


class FxVolsRecord(Record):
    """FX option quotes, one of each kind per expiry."""

    expiries: list[IsoDate] | None = None
    days: list[Days] | None = None
    at_the_money: list[Vol] = Field(description="at_the_money, one vol for each expiry")
    risk_reversals_25: list[Wing] = Field(description="risk_reversals_25, one for each expiry")
    butterflies_25: list[Wing] = Field(description="butterflies_25, one for each expiry")
    risk_reversals_10: list[Wing] | None = None
    butterflies_10: list[Wing] | None = None
    delta: Annotated[str, choice("spot", "forward")] = "spot"
    premium_adjusted: bool = False
    at_the_money_strike: Annotated[str, choice("delta-neutral", "forward")] = "delta-neutral"
    strangles: Annotated[str, choice(*STRANGLES)] = "smile"

    @model_validator(mode="after")
    def _check(self, info):
        expiries = self.pillars(info.context["asof"])
        for label in ("at_the_money", *_WINGS):
            if (quotes := getattr(self, label)) is not None:
                check_same_length(quotes, expiries, label, "quote", "expiry")
                check_wing(quotes, self.at_the_money, label)
        if (self.risk_reversals_10 is None) != (self.butterflies_10 is None):
            missing = "butterflies_10" if self.butterflies_10 is None else "risk_reversals_10"
            raise problem("is missing", "give both 10-delta quotes, or neither", missing)
        check_slip(slip_of(1.0, [], self.at_the_money), "at_the_money")
        check_outlier(self.at_the_money, "at_the_money")
        return self

    def pillars(self, asof: date) -> tuple[date, ...]:
        """Return the expiry dates."""
        return pillar_dates(asof, "expiries", self.expiries, self.days, first=1)

    def columns(self, kind: str) -> list[list[float]]:
        """Return risk reversals or butterflies, one row per expiry, one column per delta."""
        wings = [getattr(self, name) for name in _WINGS if name.startswith(kind)]
        return [list(row) for row in zip(*(x for x in wings if x is not None), strict=True)]


class FxRecord(Record):
    """An FX pair."""

    spot: Spot | None = None
    foreign_curve: Name | None = None
    domestic_curve: Name | None = None
    vols: FxVolsRecord | None = None


def fx_labels(name: str, record: FxRecord, asof: date) -> dict[str, tuple[str, ...]]:
    """Return the quote ids of a pair, by the path of a market leaf."""
    path, pair = f".fx[{name!r}]", f"{name[:3]}/{name[3:]}"
    labels: dict[str, tuple[str, ...]]
    labels = {} if record.spot is None else {f"{path}.spot": (f"FX/RATE/{pair}",)}
    if record.vols is None:
        return labels
    days = record.vols.pillars(asof)
    deltas = ("25",) if record.vols.butterflies_10 is None else ("25", "10")
    labels[f"{path}.vols.at_the_money"] = tuple(
        f"FX_OPTION/RATE_LNVOL/{pair}/{day}/ATM" for day in days
    )
    for field_name, kind in (("risk_reversals", "RISK_REVERSAL"), ("butterflies", "BUTTERFLY")):
        ids = (f"FX_OPTION/{kind}/{pair}/{day}/{delta}" for day in days for delta in deltas)
        labels[f"{path}.vols.{field_name}"] = tuple(ids)
    return labels
