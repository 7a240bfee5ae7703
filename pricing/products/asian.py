"""Options on the average of one asset's spots over dates."""

import statistics
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, positive, word
from ..ingestion.fields import choice as one_of
from ..market.observed import Observed
from .average import Average, AverageClaim
from .product import CALL_OR_PUT, CallOrPut
from .trade import IsoDate, IsoDates, OptionTrade, last_of


class Asian(CallOrPut, Average):
    """An Asian option pays max(side * (A - strike), 0) at its last date, A the average spot of all dates.

    Attributes:
        strike: The strike in units of the spot, above 0.
        dates: When the spot is read, in years, increasing, of shape (dates,); the first may be today.
        option: The word "call" (side = +1) or "put" (side = -1), kept as that code.
        average: The word "arithmetic" or "geometric": another word is another program.

    Examples:
        >>> float(Asian(100.0, [0.25, 0.5]).expiry)
        0.5
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", today=True)
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    def weights_of(self, num_spots: int) -> Float[Array, " spots"]:
        return jnp.full(num_spots, 1.0 / num_spots, self.strike.dtype)

    @property
    def canonical(self) -> AverageClaim:
        weights = jnp.broadcast_to(self.weights_of(self.dates.shape[-1]), self.dates.shape)
        return AverageClaim(
            strike=self.strike,
            dates=self.dates,
            side=self.side,
            weights=weights,
            average=self.average,
        )


class AsianTrade(OptionTrade):
    """A call or put on the average of the spots on some dates."""

    type = "asian"
    product = Asian
    renamed: ClassVar[dict[str, str]] = {"dates": "averaging_dates"}
    neutral = ("average",)
    pads_dates = True
    dates_name = "averaging_dates"
    why_not_past = "fixings of the past are not kept: give averages that are still to begin"

    averaging_dates: IsoDates = Field(description="averaging_dates, such as 2003-03-18|2003-06-15")
    average: Annotated[str, one_of("arithmetic", "geometric")] = "arithmetic"
    expiry: IsoDate = last_of("averaging_dates")

    @property
    def shape(self) -> str:
        return self.average

    def payoff(self, observed: Observed) -> float:
        spots = [observed.spot(self.underlying, day) for day in self.averaging_dates]
        mean = statistics.geometric_mean if self.average == "geometric" else statistics.fmean
        return self.intrinsic(mean(spots))
