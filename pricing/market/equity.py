"""A share or index: what the market says of it."""

import equinox as eqx
from jaxtyping import Array, Float

from .interpolation import as_leaf
from .surface import VolSurface


class Equity(eqx.Module):
    """Spot, dividend yield and implied vols of one underlying.

    `spot`: price in `currency`, scalar. `dividend_yield`: continuous, decimal a year, scalar.
    `curve`: the name of the discount curve in the market; `currency`: ISO code. Both are static.
    """

    spot: Float[Array, ""] = eqx.field(converter=as_leaf)
    dividend_yield: Float[Array, ""] = eqx.field(converter=as_leaf)
    surface: VolSurface
    curve: str = eqx.field(static=True)
    currency: str = eqx.field(static=True, default="")
