"""Payoffs that depend on the spots on some dates: the ability."""

import abc
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from .product import AbstractProduct, Padded, extra_dates, front

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


class PathClaim(AbstractProduct):
    """Ability: pays, on the last of some dates, a function of the spots on these dates.

    Attributes:
        dates: The observation times of the spots, in years, above 0, of shape (dates,); None for `all_times`.
        has_jumps: Whether the payoff may be discontinuous in the spots; kinks do not count.

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
        """Whether the payoff depends on the spots at all times, and `dates` is None."""
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
    """Ability: a `PathClaim` whose list of dates can be padded; a repeated date counts once.

    Examples:
        >>> from pricing import AverageStrike
        >>> [float(x) for x in AverageStrike([0.5, 1.0]).padded(3).is_new]
        [1.0, 0.0, 1.0]
    """

    @property
    def is_new(self) -> Float[Array, "*batch dates"]:
        """1 for the first date and each date later than the one before; 0 for a repeated date."""
        assert self.dates is not None
        later = jnp.diff(self.dates, axis=-1) > 0.0
        first = jnp.ones_like(self.dates[..., :1])
        return jnp.concatenate([first, later.astype(first.dtype)], axis=-1)

    def padded(self, num_dates: int) -> "PaddedPathClaim":
        """Return the same contract on `num_dates` dates, padded by repeating the first."""
        assert self.dates is not None
        return replace(self, dates=front(self.dates, extra_dates(self.dates, num_dates)))  # pyright: ignore
