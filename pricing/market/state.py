"""The state of the market at a later time, as a contract reads it."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float


class MarketState(NamedTuple):
    """The market at one time, in one state of it; a model fills the fields that it knows.

    Attributes:
        spot: The spot of the one asset, or the spots of several, of shape (assets,); None under a model
            of rates.
        bonds: A function of maturities in years, of any shape, that returns the prices P(t, maturity) of
            zero-coupon bonds; None under a model of equities.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing import European
        >>> at, state = jnp.array(1.0), MarketState(spot=jnp.array(90.0))
        >>> float(European(100.0, 1.0, "put").exercise_value(at, state))
        10.0
    """

    spot: Float[Array, "*assets"] | None = None
    bonds: Callable[[Float[Array, "*maturities"]], Float[Array, "*maturities"]] | None = None
