"""Spread and exchange options."""

import math
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, real, time
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import number, numbers
from ..market.observed import Observed
from ..numerics.safe_math import larger
from .path_claim import PathClaim
from .product import CALL_OR_PUT, Real, side_of
from .several_equities import SeveralEquities
from .trade import IsoDate


class Spread(PathClaim):
    """A spread option pays max(side * (sum of weights * spots - strike), 0); weights may be negative.

    With two assets, weights 1 and -1, and strike 0, it is the right to exchange one asset for the other.

    Attributes:
        strike: The strike in currency, of any sign.
        expiry: The time of payment in years, above 0.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        weights: One weight for each asset, of shape (assets,); None for the first asset less the mean of the
            others.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> model = BlackScholes([22.0, 20.0], 0.1, [0.2, 0.15], [0.06, 0.04])
        >>> f"{price(Spread(0.0, 0.5), model).value:.3f}"
        '2.479'
    """

    multi_asset: ClassVar[bool] = True
    has_jumps: ClassVar[bool] = False

    strike: Numeric[Real] = real("strike")
    expiry: Numeric[Real] = time("expiry")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    weights: Numeric[Float[Array, "*batch assets"] | None] = real(
        "weights", core=1, optional=True, default=None
    )

    @property
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""
        return side_of(self.option, self.expiry)

    @property
    def dates(self) -> Float[Array, "*batch dates"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.expiry[..., None]

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        """Return the weight of each asset's spot.

        Raises:
            ValueError: The numbers of weights and assets differ.
        """
        if self.weights is None:
            others = jnp.full(num_spots, -1.0 / max(num_spots - 1, 1), self.strike.dtype)
            return others.at[0].set(1.0)
        if self.weights.shape[-1] != num_spots:
            raise ValueError(
                f"a spread with {self.weights.shape[-1]} weights under a model of {num_spots} assets: give one "
                "weight for each asset"
            )
        return self.weights

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        level = jnp.sum(self.weights_of(spots.shape[-1]) * spots[-1])
        return larger(self.side * (level - self.strike), 0.0)


class SpreadTrade(SeveralEquities):
    """A European option on a weighted sum of several equities; weights may be negative."""

    type = "spread"
    product = Spread
    renamed: ClassVar[dict[str, str]] = {"strike": "spread_strike", "weights": "all_weights"}

    option: Annotated[str, one_of("call", "put")] = Field(description="an option, call or put")
    spread_strike: Annotated[float, number("spread_strike")] = 0.0
    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    weights: Annotated[tuple[float, ...], numbers("weight")] | None = None

    @property
    def all_weights(self) -> tuple[float, ...]:
        """The given weights, or those of the first equity less the mean of the others."""
        others = len(self.underlyings) - 1
        return self.weights or (1.0, *(-1.0 / others,) * others)

    def payoff(self, observed: Observed) -> float:
        spots = [observed.spot(name, self.expiry) for name in self.underlyings]
        level = math.fsum(w * spot for w, spot in zip(self.all_weights, spots, strict=True))
        side = 1.0 if self.option == "call" else -1.0
        return max(side * (level - self.spread_strike), 0.0)
