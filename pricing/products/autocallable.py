"""Autocallable notes."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import dates, non_negative, positive
from .monitored import Monitored, Payoff
from .product import AbstractProduct


class Autocallable(AbstractProduct):
    """A note that is redeemed early, with a coupon, on the first date at which the spot is at its call level.

    At dates[k] with spot >= call_level it pays notional * (1 + coupons[k]) and ends. If it was never redeemed
    it pays at the last date the notional where spot >= protection, and notional * spot / initial_spot below.

    dates: years; coupons: fractions of the notional, one for each date; call_level, protection, initial_spot:
    units of the spot; notional: currency.
    """

    dates: Float[Array, "*batch dates"] = dates("dates")
    coupons: Float[Array, "*batch dates"] = non_negative("coupons", core=1)
    call_level: Float[Array, "..."] = positive("call_level")
    protection: Float[Array, "..."] = positive("protection")
    initial_spot: Float[Array, "..."] = positive("initial_spot")
    notional: Float[Array, "..."] = positive("notional", default=1.0)

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def canonical(self) -> Monitored:
        one = jnp.ones_like(self.notional)
        zero = 0.0 * one
        redeemed = self.notional[..., None] * (1.0 + self.coupons)
        lost = (self.protection, -one, self.notional / self.initial_spot, zero)
        kept = (self.protection, one, zero, self.notional)
        nowhere = jnp.zeros_like(redeemed)
        return Monitored(
            self.dates,
            lower=nowhere,
            upper=self.call_level[..., None] + nowhere,
            paid_below=nowhere,
            paid_above=redeemed,
            alive=Payoff.sum(lost, kept),
            always=Payoff.sum((self.protection, one, zero, zero)),
        )
