"""Options that end outside two barriers."""

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int8

from ..fields import choice, dates, non_negative, positive
from .barrier_option import BarrierOption
from .european import European
from .monitored import Monitored, Payoff, monitored
from .product import CALL_OR_PUT


class DoubleBarrier(BarrierOption):
    """A European option that ends when the spot is outside (lower, upper) on one of its dates.

    strike, lower, upper: units of the spot; dates: years, the last one the expiry; option: "call" or "put";
    rebate: currency, paid at the hit.
    """

    strike: Float[Array, "..."] = positive("strike")
    lower: Float[Array, "..."] = positive("lower")
    upper: Float[Array, "..."] = positive("upper")
    dates: Float[Array, "*batch dates"] = dates("dates")
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="call")
    rebate: Float[Array, "..."] = non_negative("rebate", default=0.0)

    def __check_init__(self):
        known = not isinstance(self.lower, Tracer) and not isinstance(self.upper, Tracer)
        if known and not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def monitoring_dates(self) -> Float[Array, "*batch dates"]:
        return self.dates

    @property
    def knocks_in(self) -> Bool[Array, "..."]:
        return jnp.zeros_like(self.strike, bool)

    @property
    def vanilla(self) -> European:
        return European(self.strike, self.expiry, self.option)

    def is_inside(self, spot: Float[Array, "..."]) -> Bool[Array, "..."]:
        return (self.lower < spot) & (spot < self.upper)

    @property
    def canonical(self) -> Monitored:
        zero = jnp.zeros_like(self.strike)
        claim = (self.strike, self.vanilla.side, *self.vanilla.units)
        nothing = (self.strike, zero + 1.0, zero, zero)
        return monitored(
            self.dates,
            lower=self.lower,
            upper=self.upper,
            paid_below=self.rebate,
            paid_above=self.rebate,
            alive=Payoff.sum(claim, nothing),
            always=Payoff.sum(nothing),
        )
