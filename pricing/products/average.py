"""Options on an average of spots: the ability, and the canonical form of an average over dates."""

import abc
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Numeric, between, dates, non_negative, positive, word
from .product import AbstractProduct, Padded, Real, front, shared_weights

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


class Average(AbstractProduct):
    """Ability: pays max(side * (average - strike), 0) at expiry, with an average over dates or over assets.

    The average is "arithmetic" (sum of weights * spots), "geometric" (product of spots ** weights), "max"
    or "min", over the fixing dates of one asset, or over several assets at expiry.

    Attributes:
        strike: The strike in units of the spot.
        side: +1 for a call, -1 for a put.
        average: One of these four words.
    """

    strike: AbstractVar[Real]
    side: AbstractVar[Real]
    average: AbstractVar[str]

    @property
    @abc.abstractmethod
    def fixings(self) -> Float[Array, "*batch dates"]:
        """The fixing dates of the spots in years; the last is the expiry."""

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.fixings[..., -1], self.strike

    @abc.abstractmethod
    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        """Return the weight of each spot, by date or by asset."""


class AverageClaim(Average, Padded):
    """An option on the average of one asset's spots over dates: the spot at dates[j] has weight weights[j].

    Attributes:
        strike: The strike in units of the spot, above 0.
        dates: The observation times in years, non-decreasing, of shape (dates,). A date may be
            repeated, with its weight shared.
        side: +1 for a call, -1 for a put.
        weights: The weight of each date, above 0, of shape (dates,).
        average: The word "arithmetic" or "geometric"; each word compiles its own program.
        added: Cash paid at the last date in any case, for an arithmetic average of X (`above_cash`).

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
    added: Numeric[Real] = non_negative("added", default=0.0)

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    @property
    def smile_point(self) -> tuple[Real, Real]:
        """The strike divided by the sum of the weights, which is below 1 once the average has started."""
        total = jnp.sum(self.weights, axis=-1)
        is_geometric = self.average == "geometric"
        strike = self.strike ** (1.0 / total) if is_geometric else self.strike / total
        return self.dates[..., -1], strike

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        del num_spots
        return self.weights

    def padded(self, num_dates: int) -> "AverageClaim":
        """Return the same contract on `num_dates` dates: the first is repeated and shares its weight."""
        weights, extra = shared_weights(self.dates, self.weights, num_dates)
        return replace(self, dates=front(self.dates, extra), weights=weights)
