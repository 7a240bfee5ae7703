"""The state of the market at a future time, for payoffs."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float


class MarketState(NamedTuple):
    """The market at one time in one state; a model fills the fields that it provides.

    Attributes:
        spot: The spot of one asset, or the spots of several, of shape (assets,); None under a rate model.
        bonds: A function from maturities in years, of any shape, to the prices P(t, maturity) of zero-coupon
            bonds; None under an equity model.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing import European
        >>> at, state = jnp.array(1.0), MarketState(spot=jnp.array(90.0))
        >>> float(European(100.0, 1.0, "put").exercise_value(at, state))
        10.0
    """

    spot: Float[Array, "*assets"] | None = None
    bonds: Callable[[Float[Array, "*maturities"]], Float[Array, "*maturities"]] | None = None
