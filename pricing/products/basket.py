"""Options on several assets at one date."""

import math
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, non_negative, positive, time, word
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import numbers
from ..market.observed import Observed
from .average import Average
from .exercise_rights import SpotOption
from .product import CALL_OR_PUT, CallOrPut
from .several_equities import SeveralEquities
from .trade import IsoDate, OptionTrade

MEANS = ("arithmetic", "geometric", "max", "min")


class Basket(CallOrPut, Average, SpotOption):
    """A basket option pays max(side * (B - strike), 0) at expiry, with B the `average` of the assets' spots.

    Attributes:
        strike: The strike in units of the spot, above 0.
        expiry: The time of payment in years, above 0.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        average: One of "arithmetic" (sum of weights * spots), "geometric" (product of spots ** weights), "max"
            and "min" (which ignore the weights); each word compiles its own program.
        weights: One weight for each asset, at least 0, of shape (assets,); None for equal weights that sum to
            1.

    Examples:
        >>> Basket(100.0, 1.0).weights_of(4).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    multi_asset: ClassVar[bool] = True

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    average: str = word("average", MEANS, default="arithmetic")
    weights: Numeric[Float[Array, "*batch assets"] | None] = non_negative(
        "weights", core=1, optional=True, default=None
    )

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


class BasketTrade(OptionTrade, SeveralEquities):
    """A European option on the arithmetic or geometric average, the best or the worst of several equities."""

    type = "basket"
    product = Basket
    renamed: ClassVar[dict[str, str]] = {"weights": "all_weights"}
    neutral = ("average",)

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    average: Annotated[str, one_of(*MEANS)] = "arithmetic"
    weights: Annotated[tuple[float, ...], numbers("weight", above=0.0)] | None = None

    @property
    def all_weights(self) -> tuple[float, ...]:
        """The given weights, or equal weights that sum to 1."""
        count = len(self.underlyings)
        return self.weights or (1.0 / count,) * count

    @property
    def shape(self) -> tuple[int, str]:
        return len(self.underlyings), self.average

    def payoff(self, observed: Observed) -> float:
        spots = [observed.spot(name, self.expiry) for name in self.underlyings]
        weighted = list(zip(self.all_weights, spots, strict=True))
        level = {
            "arithmetic": math.fsum(weight * spot for weight, spot in weighted),
            "geometric": math.prod(spot**weight for weight, spot in weighted),
            "max": max(spots),
            "min": min(spots),
        }
        return self.intrinsic(level[self.average])
