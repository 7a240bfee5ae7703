"""Forwards on one asset, and on the average of its spots over dates."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from ..fields import Numeric, dates, positive, real
from ..ingestion.field_types import number
from ..market.observed import Observed
from .product import Padded, Real, front, shared_weights
from .trade import Column, IsoDate, Trade


class AverageForward(Padded):
    """A forward on an average pays units * (sum_j weights[j] S(dates[j]) - strike) at its last date.

    A call on an average becomes one when its past fixings alone exceed the strike: the remaining strike is then
    below 0, and the call is certain to be exercised.

    Attributes:
        strike: The strike in units of the spot, of any sign.
        dates: The observation times in years, non-decreasing, of shape (dates,).
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
        """Return the same contract on `num_dates` dates: the first is repeated and shares its weight."""
        weights, extra = shared_weights(self.dates, self.weights, num_dates)
        return replace(self, dates=front(self.dates, extra), weights=weights)


class ForwardTrade(Trade):
    """A forward on an equity or a pair of currencies pays the spot at expiry less the strike.

    Attributes:
        strike: The agreed price in units of the spot; 0 for a prepaid forward.
        expiry: The date on which the spot is read.

    Examples:
        >>> from pricing import Book
        >>> lines = "id,type,underlying,strike,expiry", "F1,forward,EURUSD,1.1,2003-03-18"
        >>> Book.from_text(chr(10).join(lines)).trades[0].level
        1.1
    """

    type = "forward"
    product = AverageForward

    strike: Annotated[float, number("strike", least=0.0)] = Field(description="a strike >= 0")
    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")

    @property
    def level(self) -> float | None:
        """The strike; None of a prepaid forward."""
        return self.strike or None

    def products(self, column: Column) -> AverageForward:
        expiry = np.asarray(column("expiry"))[:, None]
        return AverageForward(column("strike"), expiry, np.ones_like(expiry))

    def payoff(self, observed: Observed) -> float:
        return observed.spot(self.underlying, self.expiry) - self.strike
