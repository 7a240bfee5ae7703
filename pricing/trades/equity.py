"""Trades on equities."""

from datetime import date
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ..ingestion.fields import choice, problem
from .trade import (
    Amount,
    Barrier,
    Coupons,
    IsoDate,
    IsoDates,
    Notional,
    OptionTrade,
    Rebate,
    Spot,
    Trade,
    Weights,
    last_of,
)

Payout = Annotated[Literal["cash", "asset"], choice("cash", "asset")]
AverageKind = Annotated[Literal["arithmetic", "geometric"], choice("arithmetic", "geometric")]
BasketKind = Annotated[
    Literal["arithmetic", "geometric", "max", "min"],
    choice("arithmetic", "geometric", "max", "min"),
]
BarrierType = Annotated[
    Literal["down-and-out", "down-and-in", "up-and-out", "up-and-in"],
    choice("down-and-out", "down-and-in", "up-and-out", "up-and-in"),
]
_NO_FIXINGS = "fixings of the past are not kept: give averages that are still to begin"


class EuropeanTrade(OptionTrade):
    """A European call or put."""

    type: ClassVar[str] = "european"

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")


class DigitalTrade(OptionTrade):
    """A European option that pays `amount` of cash, or `amount` shares, when in the money."""

    type: ClassVar[str] = "digital"

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    payout: Payout = "cash"
    amount: Amount = 1.0


class AmericanTrade(OptionTrade):
    """A call or put that may be exercised at any time."""

    type: ClassVar[str] = "american"

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")


class BermudanTrade(OptionTrade):
    """A call or put that may be exercised on some dates."""

    type: ClassVar[str] = "bermudan"
    dates_name: ClassVar[str] = "exercise_dates"

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-03-18|2003-06-15")
    expiry: IsoDate = last_of("exercise_dates")


class AsianTrade(OptionTrade):
    """A call or put on the average of the spots on some dates."""

    type: ClassVar[str] = "asian"
    dates_name: ClassVar[str] = "averaging_dates"
    why_not_past: ClassVar[str] = _NO_FIXINGS

    averaging_dates: IsoDates = Field(description="averaging_dates, such as 2003-03-18|2003-06-15")
    average: AverageKind = "arithmetic"
    expiry: IsoDate = last_of("averaging_dates")


class BarrierTrade(OptionTrade):
    """A European option that a barrier knocks in or out, watched on dates or, without any, all the time."""

    type: ClassVar[str] = "barrier"
    dates_name: ClassVar[str] = "monitoring_dates"

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    barrier: Barrier = Field(description="a barrier > 0")
    barrier_type: BarrierType = Field(
        description="a barrier_type: down-and-out, down-and-in, up-and-out or up-and-in"
    )
    rebate: Rebate = 0.0
    monitoring_dates: IsoDates | None = None


class DoubleKnockOutTrade(OptionTrade):
    """A European option that ends if the spot is not between two barriers on one of some dates."""

    type: ClassVar[str] = "double_knock_out"
    dates_name: ClassVar[str] = "monitoring_dates"

    lower: Barrier = Field(description="a lower barrier > 0")
    upper: Barrier = Field(description="an upper barrier > lower")
    rebate: Rebate = 0.0
    monitoring_dates: IsoDates = Field(
        description="monitoring_dates, such as 2003-03-18|2003-06-15"
    )
    expiry: IsoDate = last_of("monitoring_dates")

    @model_validator(mode="after")
    def _is_open(self):
        if self.lower >= self.upper:
            message = (
                f"the upper barrier, {self.upper:g}, is not above the lower one, {self.lower:g}"
            )
            raise problem(message, "give an upper barrier > lower", "upper")
        return self


class AutocallableTrade(Trade):
    """A note that is redeemed with a coupon on the first date with the spot at `barrier` or above.

    At maturity it pays the notional if the spot is at `protection` or above, else its share of `initial_spot`.
    """

    type: ClassVar[str] = "autocallable"
    dates_name: ClassVar[str] = "exercise_dates"
    why_not_past: ClassVar[str] = "take the dates out that have passed, with their coupons"

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-03-18|2003-06-15")
    coupons: Coupons = Field(description="coupons, one for each date, such as 0.05|0.1")
    barrier: Barrier = Field(description="a barrier > 0, the level of the early redemption")
    protection: Barrier = Field(
        description="a protection > 0, the level below which capital is lost"
    )
    initial_spot: Spot = Field(description="an initial_spot > 0")
    notional: Notional = 1.0
    expiry: IsoDate = last_of("exercise_dates")

    @property
    def level(self) -> float:
        return self.barrier

    @model_validator(mode="after")
    def _has_a_coupon_a_date(self):
        check_count(self.coupons, self.exercise_dates, "coupons", "exercise_dates")
        return self


class BasketTrade(OptionTrade):
    """A European option on the weighted sum of several equities, a product of powers, the best or the worst."""

    type: ClassVar[str] = "basket"

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    kind: BasketKind = "arithmetic"
    weights: Weights | None = None

    @property
    def underlyings(self) -> tuple[str, ...]:
        return tuple(self.underlying.split("|"))

    @property
    def all_weights(self) -> tuple[float, ...]:
        """The weights given, or equal ones that sum to 1."""
        count = len(self.underlyings)
        return self.weights or (1.0 / count,) * count

    @property
    def level(self) -> None:
        return None

    @field_validator("underlying", mode="after")
    @classmethod
    def _are_several(cls, value: str) -> str:
        names = [name.strip() for name in value.split("|")]
        if len(names) < 2 or not all(names):
            raise problem(f"{value!r} is no basket", "give two equities or more, such as DAX|SX5E")
        if len(set(names)) < len(names):
            raise problem(f"{value!r} names an equity twice", "give every equity once")
        return "|".join(names)

    @model_validator(mode="after")
    def _has_a_weight_an_equity(self):
        check_count(self.weights, self.underlyings, "weights", "equities")
        return self


def check_count(
    values: tuple[float, ...] | None, places: tuple[str | date, ...], label: str, place: str
) -> None:
    """Raise the problem of a list that has not one value for each place."""
    if values is not None and len(values) != len(places):
        message = f"there are {len(values)} {label} and {len(places)} {place}"
        raise problem(message, f"give as many {label} as {place}", label)
