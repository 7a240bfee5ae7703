"""Payoffs of the spots on some dates: the ability."""

import abc
from typing import TYPE_CHECKING

from jaxtyping import Array, Float

from .product import AbstractProduct

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # to checkers of types no argument of `__init__`
else:
    from equinox import AbstractVar


class PathClaim(AbstractProduct):
    """Ability: pays a function of the spots on some dates, on the last of them.

    Attributes:
        dates: When the spots are read, in years, above 0, of shape (dates,); None for `all_times`.
        has_jumps: Whether the function may jump as the spots move. Kinks are no jumps.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing import Lookback
        >>> float(Lookback(1.0, dates=[0.5, 1.0]).payoff(jnp.array([90.0, 100.0])))
        10.0
    """

    dates: AbstractVar[Float[Array, "*batch dates"] | None]
    has_jumps: AbstractVar[bool]

    @property
    def all_times(self) -> bool:
        """Whether the payment is by the spots of all times, and not by those of `dates`, which are None."""
        return False

    @abc.abstractmethod
    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        """Return the payment of one contract for the spots of one path, in currency.

        Args:
            spots: The spot on each date, of shape (dates,), or (dates, assets) of several assets.

        Returns:
            The payment at the last date; continuous in the spots and in the numbers of the contract, unless
            `has_jumps`.
        """
