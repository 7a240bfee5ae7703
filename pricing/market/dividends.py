"""Dividends on known dates: cash amounts, and proportions of the spot."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Converted, between, finite_times, non_negative
from ..numbers_shown import repr_with_numbers

Times = Float[Array, "..."]


class Dividends(eqx.Module):
    """The dividends of one share: on each ex-date the spot S falls to S (1 - proportion) - cash.

    The spot on an ex-date already excludes the dividend, so a dividend with a time <= 0 has been paid and has
    no effect. Cash counts as paid on the ex-date.

    Attributes:
        times: The ex-dates in years from today (ACT/365), non-decreasing, of shape (dividends,).
        cash: The amounts in currency, at least 0, of shape (dividends,); None if all are proportional.
        proportions: The proportions of the spot, in [0, 1), of shape (dividends,); None if all are cash.

    Raises:
        ValueError: Neither is given, or one does not have one number for each time.

    Examples:
        >>> from pricing import Dividends
        >>> two = Dividends([0.25, 0.75], cash=[1.5, 1.5])
        >>> [float(x) for x in two.value_after(jnp.array([0.0, 0.5, 1.0]), jnp.ones_like)]
        [3.0, 1.5, 0.0]
    """

    __repr__ = repr_with_numbers

    times: Converted[Float[Array, " dividends"]] = finite_times("times")
    cash: Converted[Float[Array, " dividends"] | None] = non_negative(
        "cash", optional=True, core=1, default=None
    )
    proportions: Converted[Float[Array, " dividends"] | None] = between(
        "proportions", 0.0, 0.999, optional=True, core=1, default=None
    )

    def __check_init__(self):
        given = [x for x in (self.cash, self.proportions) if x is not None]
        if not given or any(x.shape != self.times.shape for x in given):
            shapes = [x.shape for x in given]
            raise ValueError(
                f"dividends at {self.times.size} times have amounts of shapes {shapes}: give cash or "
                "proportions (or both), one number for each time"
            )

    @property
    def quotes(self) -> tuple[Any, ...]:
        """The leaves of amounts; in a gradient, the derivatives to them."""
        return tuple(x for x in (self.cash, self.proportions) if x is not None)

    @property
    def owed(self) -> Float[Array, ""]:
        """The undiscounted sum of cash paid after today, in currency."""
        if self.cash is None:
            return jnp.zeros((), self.times.dtype)
        return jnp.sum(jnp.where(self.times > 0.0, self.cash, 0.0))

    def kept(self, t: Times) -> Times:
        """Return the fraction of the spot left after proportional dividends from today to `t` (years)."""
        if self.proportions is None:
            return jnp.ones_like(t)
        times, shares = (_beside(t, x) for x in (self.times, self.proportions))
        paid = (times > 0.0) & (times <= t[..., None])
        return jnp.prod(jnp.where(paid, 1.0 - shares, 1.0), axis=-1)

    def value_after(self, t: Times, growth: Callable[[Times], Times]) -> Times:
        """Return the value at `t` (years) of the cash paid after `t` and after today.

        Args:
            t: Times in years, of any shape.
            growth: The growth factor of the asset from today to given times, without cash dividends.
        """
        if self.cash is None:
            return jnp.zeros_like(t)
        times = jnp.where(self.times > 0.0, self.times, 1.0)
        today = jnp.where(self.times > 0.0, self.cash / growth(times), 0.0)
        later = jnp.where(_beside(t, self.times) > t[..., None], _beside(t, today), 0.0)
        return growth(t) * jnp.sum(later, axis=-1)


def _beside(t: Times, numbers: Float[Array, " dividends"]) -> Float[Array, "... dividends"]:
    """Return the numbers of dividends broadcast to an array of times."""
    return jnp.broadcast_to(numbers, (*t.shape, numbers.size))
