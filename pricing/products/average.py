"""Options on an average of spots: the ability, and the general form of an average over dates."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import between, dates, positive, word
from .product import AbstractProduct, Padded, Real, extra_dates, front


class Average(AbstractProduct):
    """Ability: pays max(side * (average - strike), 0) at expiry, the average being one of

    "arithmetic" (sum of weights * spots), "geometric" (product of spots ** weights), "max" or "min", over the
    fixing dates of one asset, or over several assets at expiry.
    """

    strike: eqx.AbstractVar[Real]
    side: eqx.AbstractVar[Real]
    average: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def fixings(self) -> Float[Array, "*batch dates"]:
        """The dates the spots are read at, the last one being the expiry."""

    @property
    def vol_at(self) -> tuple[Real, Real]:
        return self.fixings[..., -1], self.strike

    @abc.abstractmethod
    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        """The weight of each spot: of each date, or of each asset."""


class AverageClaim(Average, Padded):
    """The general average of one asset's spots over dates: the spot at dates[j] has weight weights[j].

    strike: units of the spot; dates: years, not decreasing: a date may come several times, each with its
    share of the weight; side: +1 (call) or -1 (put); weights: above 0; average: "arithmetic" or "geometric".
    """

    strike: Real = positive("strike")
    dates: Float[Array, "*batch dates"] = dates("dates", today=True, repeated=True)
    side: Real = between("side", -1.0, 1.0)
    weights: Float[Array, "*batch dates"] = positive("weights", core=1)
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        del num_spots
        return self.weights

    def padded(self, num_dates: int) -> "AverageClaim":
        """The same contract on `num_dates` dates: the first one repeated, its weight shared."""
        extra = extra_dates(self.dates, num_dates)
        first = self.weights[..., :1] / (extra + 1)
        weights = jnp.concatenate([first, self.weights[..., 1:]], axis=-1)
        return AverageClaim(
            strike=self.strike,
            dates=front(self.dates, extra),
            side=self.side,
            weights=front(weights, extra),
            average=self.average,
        )
