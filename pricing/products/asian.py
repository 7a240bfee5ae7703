"""Options on the average of one asset's spots over dates."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

from ..fields import choice, dates, positive, word
from .average import Average, AverageClaim
from .product import CALL_OR_PUT, side_of


class Asian(Average):
    """Pays max(side * (A - strike), 0) at the last date, A the average of the spots at `dates`.

    strike: units of the spot; dates: increasing, years; option: "call" or "put"; average: "arithmetic" or
    "geometric".
    """

    strike: Float[Array, "..."] = positive("strike")
    dates: Float[Array, "*batch dates"] = dates("dates", today=True)
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="call")
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def side(self) -> Float[Array, "..."]:
        return side_of(self.option, self.strike)

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    def weights_of(self, num_spots: int) -> Float[Array, " spots"]:
        return jnp.full(num_spots, 1.0 / num_spots, self.strike.dtype)

    @property
    def canonical(self) -> AverageClaim:
        weights = jnp.full(self.dates.shape, 1.0 / self.dates.shape[-1], self.strike.dtype)
        return AverageClaim(
            strike=self.strike,
            dates=self.dates,
            side=self.side,
            weights=weights,
            average=self.average,
        )
