"""Single-barrier options, monitored continuously or on dates."""

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int8

from ..fields import choice, dates, non_negative, positive, time
from .european import European
from .product import CALL_OR_PUT, AbstractProduct, Monitored, Payoff, side_of

BARRIER_KINDS = {"down-and-out": 0, "up-and-out": 1, "down-and-in": 2, "up-and-in": 3}


class Barrier(AbstractProduct):
    """A European option that is knocked out, or comes to life, when the spot touches the barrier.

    kind: "down-and-out", "up-and-out", "down-and-in" or "up-and-in". The rebate (currency) is paid at
    the hit if the option is knocked out, and at expiry if it never came to life. dates: when the spot is
    looked at, years, the last one the expiry; None: at all times from today, so that a spot already beyond the
    barrier has touched it.
    """

    strike: Float[Array, "..."] = positive("strike")
    expiry: Float[Array, "..."] = time("expiry")
    barrier: Float[Array, "..."] = positive("barrier")
    kind: Int8[Array, "..."] = choice("kind", BARRIER_KINDS, default="down-and-out")
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="call")
    rebate: Float[Array, "..."] = non_negative("rebate", default=0.0)
    dates: Float[Array, "*batch dates"] | None = dates("dates", optional=True, default=None)

    def __check_init__(self):
        known = not isinstance(self.expiry, Tracer) and not isinstance(self.dates, Tracer)
        if self.dates is None or not known:
            return
        if not np.allclose(self.dates[..., -1], self.expiry, rtol=1e-6):
            raise ValueError(
                f"the last of the barrier's dates must be its expiry, got {self.dates[..., -1]} and "
                f"{self.expiry}: end the dates with the expiry"
            )

    @property
    def side(self) -> Float[Array, "..."]:
        """+1 for a call, -1 for a put."""
        return side_of(self.option, self.strike)

    @property
    def living_side(self) -> Float[Array, "..."]:
        """+1 if the option lives above its barrier (down), -1 if below (up)."""
        return jnp.where(self.kind % 2 == 0, 1.0, -1.0).astype(self.strike.dtype)

    @property
    def knocks_in(self) -> Bool[Array, "..."]:
        """Whether touching the barrier brings the option to life."""
        return jnp.asarray(self.kind >= 2)

    @property
    def vol_at(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.expiry, self.strike

    @property
    def vanilla(self) -> European:
        """The option without its barrier."""
        return European(self.strike, self.expiry, self.option)

    @property
    def canonical(self) -> AbstractProduct:
        """A knock-in is the vanilla option less its knock-out, and the rebate if the barrier was never hit."""
        if self.dates is None:
            return self
        one = jnp.ones_like(self.strike)
        asset, cash = self.vanilla.units
        out = jnp.where(self.knocks_in, -one, one)
        into = jnp.where(self.knocks_in, one, 0.0 * one)
        at_hit, at_end = (1.0 - into) * self.rebate, into * self.rebate
        everywhere = 1e-6 * self.strike  # the spot ends above it
        return monitored(
            self.dates,
            lower=jnp.where(self.living_side > 0.0, self.barrier, 0.0),
            upper=jnp.where(self.living_side > 0.0, jnp.inf, self.barrier),
            paid_below=at_hit,
            paid_above=at_hit,
            alive=Payoff.sum(
                (self.strike, self.side, out * asset, out * cash),
                (everywhere, one, 0.0 * one, at_end),
            ),
            always=Payoff.sum((self.strike, self.side, into * asset, into * cash)),
        )


class DoubleKnockOut(AbstractProduct):
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
    def canonical(self) -> Monitored:
        zero = jnp.zeros_like(self.strike)
        vanilla = European(self.strike, self.expiry, self.option)
        claim = (self.strike, vanilla.side, *vanilla.units)
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


def monitored(
    when: Float[Array, "*batch dates"],
    *,
    alive: Payoff,
    always: Payoff,
    **levels: Float[Array, "..."],
) -> Monitored:
    """The canonical form with the same corridor and payments at all dates."""
    constant = {name: _on_dates(level, when) for name, level in levels.items()}
    return Monitored(when, **constant, alive=alive, always=always)


def _on_dates(level: Float[Array, "..."], when: Float[Array, "..."]) -> Float[Array, "..."]:
    """One number a contract as one for each of its dates."""
    return jnp.broadcast_to(level[..., None], (*level.shape, when.shape[-1]))
