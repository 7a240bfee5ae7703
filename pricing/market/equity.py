"""The market data of a share or an index."""

import equinox as eqx
from jaxtyping import Array, Float

from ..fields import Converted, positive, real
from .surface import VolSurface


class Equity(eqx.Module):
    """The market data of one share or index.

    Attributes:
        spot: The price of one share, or the level of the index, above 0, in `currency`.
        dividend_yield: The dividend yield, continuously compounded, as a decimal per year.
        surface: The implied vols of its options.
        curve: The name of its discount curve in the market.
        currency: The ISO code of its currency.

    Examples:
        >>> from pricing.market import Equity, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.24, 0.2], [0.23, 0.21]])
        >>> Equity(100.0, 0.01, surface, "EUR").curve
        'EUR'
    """

    spot: Converted[Float[Array, ""]] = positive("spot")
    dividend_yield: Converted[Float[Array, ""]] = real("dividend_yield")
    surface: VolSurface  # pyright: ignore[reportGeneralTypeIssues]
    curve: str = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    currency: str = eqx.field(static=True, default="")
