"""Payoffs of the spots on some dates: the ability."""

import abc
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from .product import AbstractProduct, Padded, extra_dates, front

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


class PaddedPathClaim(PathClaim, Padded):
    """Ability: the same, and a date that is repeated is read once.

    Examples:
        >>> from pricing import AverageStrike
        >>> [float(x) for x in AverageStrike([0.5, 1.0]).padded(3).is_new]
        [1.0, 0.0, 1.0]
    """

    @property
    def is_new(self) -> Float[Array, "*batch dates"]:
        """1 on each date that is later than the one before it, and on the first; 0 on a repeated one."""
        assert self.dates is not None
        later = jnp.diff(self.dates, axis=-1) > 0.0
        first = jnp.ones_like(self.dates[..., :1])
        return jnp.concatenate([first, later.astype(first.dtype)], axis=-1)

    def padded(self, num_dates: int) -> "PaddedPathClaim":
        """Return the same contract on `num_dates` dates: the first one repeated."""
        assert self.dates is not None
        return replace(self, dates=front(self.dates, extra_dates(self.dates, num_dates)))  # pyright: ignore
