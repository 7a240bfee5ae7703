"""Forwards on the average of one asset's spots over dates."""

from dataclasses import replace

from jaxtyping import Array, Float

from ..fields import Numeric, dates, positive, real
from .product import Padded, Real, front, shared_weights


class AverageForward(Padded):
    """A forward on an average pays units * (sum_j weights[j] S(dates[j]) - strike) at its last date.

    It is what a call on an average becomes when the fixings so far alone exceed its strike: the strike that is
    left is then below 0, and the call is exercised for certain.

    Attributes:
        strike: The strike in units of the spot, of any sign.
        dates: When the spot is read, in years, not decreasing, of shape (dates,).
        weights: The weight of each date, above 0, of shape (dates,).
        units: The number of forwards.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> forward = AverageForward(-5.0, [0.5, 1.0], [0.25, 0.25])
        >>> f"{price(forward, BlackScholes(100.0, 0.0, 0.2)).value:.2f}"
        '55.00'
    """

    strike: Numeric[Real] = real("strike")
    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", today=True, repeated=True)
    weights: Numeric[Float[Array, "*batch dates"]] = positive("weights", core=1)
    units: Numeric[Real] = real("units", default=1.0)

    def padded(self, num_dates: int) -> "AverageForward":
        """Return the same contract on `num_dates` dates: the first one repeated, its weight shared."""
        weights, extra = shared_weights(self.dates, self.weights, num_dates)
        return replace(self, dates=front(self.dates, extra), weights=weights)
