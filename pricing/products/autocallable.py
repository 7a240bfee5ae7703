"""Autocallable notes."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from ..fields import Numeric, dates, non_negative, positive
from ..market.observed import Observed
from .discrete_barrier import DiscreteBarrier, Payoff
from .product import AbstractProduct, check_levels
from .trade import (
    Aged,
    Coupons,
    IsoDate,
    IsoDates,
    Level,
    Notional,
    Spot,
    Trade,
    check_count,
    last_of,
)


class Autocallable(AbstractProduct):
    """A note that is redeemed early, with a coupon, on the first date with the spot at its call level.

    At dates[k] with spot >= call_level it pays notional * (1 + coupons[k]) and ends. If it was never
    redeemed it pays, at the last date, the notional where spot >= protection, and notional * spot /
    initial_spot below.

    Attributes:
        dates: When the spot is compared with the call level, in years, increasing, of shape (dates,).
        coupons: The coupon at each date as a fraction of the notional, of shape (dates,).
        call_level: The level of the early redemption in units of the spot, above 0.
        protection: The level below which capital is lost, in units of the spot, above 0.
        initial_spot: The spot that the loss is measured from, above 0.
        notional: The notional in currency, above 0.

    Raises:
        ValueError: If coupons and dates differ in number, or a level is given for each date.

    Examples:
        >>> note = Autocallable([0.5, 1.0], [0.03, 0.06], 105.0, 80.0, 100.0)
        >>> [f"{float(paid):.2f}" for paid in note.canonical.paid_above]
        ['1.03', '1.06']
    """

    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates")
    coupons: Numeric[Float[Array, "*batch dates"]] = non_negative("coupons", core=1)
    call_level: Numeric[Float[Array, "..."]] = positive("call_level")
    protection: Numeric[Float[Array, "..."]] = positive("protection")
    initial_spot: Numeric[Float[Array, "..."]] = positive("initial_spot")
    notional: Numeric[Float[Array, "..."]] = positive("notional", default=1.0)

    def __check_init__(self):
        check_levels(self.dates, call_level=self.call_level, protection=self.protection)
        if self.coupons.shape[-1:] != self.dates.shape[-1:]:
            raise ValueError(
                f"coupons of shape {list(self.coupons.shape)} and dates of shape {list(self.dates.shape)}: "
                "give one coupon for each date"
            )

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def canonical(self) -> DiscreteBarrier:
        one = jnp.ones_like(self.notional)
        zero = 0.0 * one
        redeemed = self.notional[..., None] * (1.0 + self.coupons)
        lost = (self.protection, -one, self.notional / self.initial_spot, zero)
        kept = (self.protection, one, zero, self.notional)
        nowhere = jnp.zeros_like(redeemed)
        return DiscreteBarrier(
            self.dates,
            lower=nowhere,
            upper=self.call_level[..., None] + nowhere,
            paid_below=nowhere,
            paid_above=redeemed,
            alive=Payoff.sum(lost, kept),
            always=Payoff.sum((self.protection, one, zero, zero)),
        )


class AutocallableTrade(Trade):
    """A note that is redeemed with a coupon on the first date with the spot at `barrier` or above.

    At maturity it pays the notional if the spot is at `protection` or above, else its share of `initial_spot`.
    """

    type = "autocallable"
    product = Autocallable
    renamed: ClassVar[dict[str, str]] = {"dates": "exercise_dates", "call_level": "barrier"}
    pads_dates = True
    dates_name = "exercise_dates"
    drops_dates = True

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-03-18|2003-06-15")
    coupons: Coupons = Field(description="coupons, one for each date, such as 0.05|0.1")
    barrier: Level = Field(description="a barrier > 0, the level of the early redemption")
    protection: Level = Field(description="a protection > 0, the level below which capital is lost")
    initial_spot: Spot = Field(description="an initial_spot > 0")
    notional: Notional = 1.0
    expiry: IsoDate = last_of("exercise_dates")

    @property
    def level(self) -> float:
        return self.barrier

    def check(self) -> None:
        check_count(self.coupons, self.exercise_dates, "coupons", "exercise_dates")

    def aged(self, observed: Observed) -> Aged:
        past = [day for day in self.exercise_dates if day <= observed.until]
        spots = [observed.spot(self.underlying, day) for day in past]
        for day, spot, coupon in zip(past, spots, self.coupons, strict=False):
            if spot >= self.barrier:
                return Aged(self.notional * (1.0 + coupon), None, "called", day)
        if self.expiry > observed.until:
            left = self._with_dates(observed.until, coupons=self.coupons[len(past) :])
            return Aged(0.0, left)
        share = 1.0 if spots[-1] >= self.protection else spots[-1] / self.initial_spot
        return Aged(self.notional * share, None, "expired", self.expiry)
