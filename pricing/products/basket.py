"""Options on several assets at one date."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

from ..fields import choice, non_negative, positive, time, word
from .average import Average
from .exercise import SpotOption
from .product import CALL_OR_PUT, side_of


class Basket(Average, SpotOption):
    """Pays max(side * (B - strike), 0) at expiry, B made of the assets' spots as `kind` says.

    kind: "arithmetic" (sum of weights * spots), "geometric" (product of spots ** weights), "max" or "min"
    (weights do not enter). strike: units of the spot; expiry: years; option: "call" or "put"; weights: one for
    each asset, not below 0; None: equal, summing to 1.
    """

    multi_asset: ClassVar[bool] = True

    strike: Float[Array, "..."] = positive("strike")
    expiry: Float[Array, "..."] = time("expiry")
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="call")
    kind: str = word("kind", ("arithmetic", "geometric", "max", "min"), default="arithmetic")
    weights: Float[Array, "*batch assets"] | None = non_negative(
        "weights", core=1, optional=True, default=None
    )

    @property
    def average(self) -> str:
        return self.kind

    @property
    def side(self) -> Float[Array, "..."]:
        return side_of(self.option, self.strike)

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.expiry[..., None]

    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        del num_dates
        return self.fixings

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        if self.weights is None:
            return jnp.full(num_spots, 1.0 / num_spots, self.strike.dtype)
        if self.weights.shape[-1] != num_spots:
            raise ValueError(
                f"a basket with {self.weights.shape[-1]} weights under a model of {num_spots} assets: "
                "give one weight for each asset"
            )
        return self.weights
