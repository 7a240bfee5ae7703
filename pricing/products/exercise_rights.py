"""Exercise rights: the abilities of products whose holder may exercise."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..market.state import MarketState
from .product import AbstractProduct, Real

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

_LEVELS: dict[str, Callable[[Array, Array], Array]] = {
    "arithmetic": lambda weights, spots: weights @ spots,
    "geometric": lambda weights, spots: jnp.exp(weights @ jnp.log(spots)),
    "max": lambda weights, spots: jnp.max(spots),
    "min": lambda weights, spots: jnp.min(spots),
}


class Exercisable(AbstractProduct):
    """Ability: the holder may take the exercise value at one of some times, and does so only if it is positive.

    Attributes:
        any_time: Whether the contract may be exercised at any time from today; `exercise_times` are then a
            grid.
    """

    any_time: ClassVar[bool] = False

    @abc.abstractmethod
    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        """Return the exercise times in years, ascending; the contract ends at the last one.

        Args:
            num_dates: The number of equal steps that discretize a right to exercise at any time; other rights
                ignore it.
        """

    @property
    def has_own_payoff(self) -> bool:
        """Whether a subclass overrides `exercise_value`, so that strike and side no longer give the payoff."""
        return False

    @abc.abstractmethod
    def exercise_value(self, t: Float[Array, ""], market: MarketState) -> Float[Array, ""]:
        """Return the payoff of exercise at t (years) in a market state, in currency at t.

        It takes one contract and one state; use `jax.vmap` over contracts, states or times. The payoff is
        negative where exercise would cost more than it brings.
        """


class EarlyExercise(Exercisable):
    """Ability: the holder chooses when to exercise, on one of some dates or at any time."""


class SpotOption(Exercisable):
    """Ability: exercise pays side * (A - strike), with A the spot or an average of several assets' spots.

    `average` is the kind of average: "arithmetic" (sum of weights * spots), "geometric" (product of spots **
    weights), "max" or "min".

    Attributes:
        strike: The strike in units of the spot.

    Examples:
        >>> from pricing import Basket
        >>> from pricing.market import MarketState
        >>> state = MarketState(spot=jnp.array([90.0, 120.0]))
        >>> float(Basket(100.0, 1.0, average="max").exercise_value(jnp.array(1.0), state))
        20.0
    """

    strike: AbstractVar[Real]

    @property
    @abc.abstractmethod
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.exercise_times()[..., -1], self.strike

    @property
    def average(self) -> str:
        """The kind of average."""
        return "arithmetic"

    @property
    def has_own_payoff(self) -> bool:
        return type(self).exercise_value is not SpotOption.exercise_value

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        """Return the weight of each asset's spot: 1 for a single asset."""
        return jnp.ones(num_spots, self.strike.dtype)

    def exercise_value(self, t: Float[Array, ""], market: MarketState) -> Float[Array, ""]:
        del t
        assert market.spot is not None
        spots = jnp.atleast_1d(market.spot)
        level = _LEVELS[self.average](self.weights_of(spots.size), spots)
        return self.side * (level - self.strike)
