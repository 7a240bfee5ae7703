"""Options on an average of spots: the ability, and the general form of an average over dates."""

import abc
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Numeric, between, dates, positive, word
from .product import AbstractProduct, Padded, Real, front, shared_weights

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # to checkers of types no argument of `__init__`
else:
    from equinox import AbstractVar


class Average(AbstractProduct):
    """Ability: pays max(side * (average - strike), 0) at expiry, the average over dates or over assets.

    The average is "arithmetic" (sum of weights * spots), "geometric" (product of spots ** weights), "max"
    or "min", over the fixing dates of one asset, or over several assets at expiry.

    Attributes:
        strike: The strike in units of the spot.
        side: +1 for a call, -1 for a put.
        average: One of the four words.
    """

    strike: AbstractVar[Real]
    side: AbstractVar[Real]
    average: AbstractVar[str]

    @property
    @abc.abstractmethod
    def fixings(self) -> Float[Array, "*batch dates"]:
        """The dates the spots are read at, in years, the expiry last."""

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.fixings[..., -1], self.strike

    @abc.abstractmethod
    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        """Return the weight of each spot: of each date, or of each asset."""


class AverageClaim(Average, Padded):
    """The general average of one asset's spots over dates: the spot at dates[j] has weight weights[j].

    Attributes:
        strike: The strike in units of the spot, above 0.
        dates: When the spot is read, in years, not decreasing, of shape (dates,). A date may come several
            times, each with its share of the weight.
        side: +1 for a call, -1 for a put.
        weights: The weight of each date, above 0, of shape (dates,).
        average: The word "arithmetic" or "geometric": another word is another program.

    Examples:
        >>> claim = AverageClaim(100.0, [0.5, 1.0], 1.0, [0.5, 0.5])
        >>> claim.padded(3).weights.tolist()
        [0.25, 0.25, 0.5]
    """

    strike: Numeric[Real] = positive("strike")
    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", today=True, repeated=True)
    side: Numeric[Real] = between("side", -1.0, 1.0)
    weights: Numeric[Float[Array, "*batch dates"]] = positive("weights", core=1)
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    @property
    def smile_point(self) -> tuple[Real, Real]:
        """The strike of an average whose weights sum to 1: what is left of a started one has lower weights."""
        total = jnp.sum(self.weights, axis=-1)
        is_geometric = self.average == "geometric"
        strike = self.strike ** (1.0 / total) if is_geometric else self.strike / total
        return self.dates[..., -1], strike

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        del num_spots
        return self.weights

    def padded(self, num_dates: int) -> "AverageClaim":
        """Return the same contract on `num_dates` dates: the first one repeated, its weight shared."""
        weights, extra = shared_weights(self.dates, self.weights, num_dates)
        return replace(self, dates=front(self.dates, extra), weights=weights)
