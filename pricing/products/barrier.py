"""Single-barrier options, continuously monitored."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int8

from ..fields import choice, non_negative, positive
from .european import European
from .product import CALL_OR_PUT, AbstractProduct, side_of

BARRIER_KINDS = {"down-and-out": 0, "up-and-out": 1, "down-and-in": 2, "up-and-in": 3}


class Barrier(AbstractProduct):
    """A European option that is knocked out, or comes to life, when the spot touches the barrier.

    kind: "down-and-out", "up-and-out", "down-and-in" or "up-and-in". The rebate (currency) is paid at
    the hit if the option is knocked out, and at expiry if it never came to life. Monitoring is
    continuous from today to expiry. A spot already beyond the barrier has touched it.
    """

    strike: Float[Array, "..."] = positive("strike")
    expiry: Float[Array, "..."] = positive("expiry")
    barrier: Float[Array, "..."] = positive("barrier")
    kind: Int8[Array, "..."] = choice("kind", BARRIER_KINDS, default="down-and-out")
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="call")
    rebate: Float[Array, "..."] = non_negative("rebate", default=0.0)

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
    def vanilla(self) -> European:
        """The option without its barrier."""
        return European(self.strike, self.expiry, self.option)
