"""Dividends of known dates: amounts of cash, and shares of the spot."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Converted, between, finite_times, non_negative

Times = Float[Array, "..."]


class Dividends(eqx.Module):
    """Dividends of one share: on each ex-date the spot S falls to S (1 - proportion) - cash.

    A spot on an ex-date is already without its dividend, so that a dividend whose time is 0 or less has been
    paid, and moves nothing. Cash counts as paid on its ex-date.

    Attributes:
        times: The ex-dates in years from today (ACT/365), not decreasing, of shape (dividends,).
        cash: The amounts in currency, not below 0, of shape (dividends,); None where all are proportional.
        proportions: The shares of the spot, from 0 to below 1, of shape (dividends,); None where all are cash.

    Raises:
        ValueError: Neither is given, or one of them has not one number for each time.

    Examples:
        >>> from pricing import Dividends
        >>> two = Dividends([0.25, 0.75], cash=[1.5, 1.5])
        >>> [float(x) for x in two.value_after(jnp.array([0.0, 0.5, 1.0]), jnp.ones_like)]
        [3.0, 1.5, 0.0]
    """

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
        """The leaves of amounts; of a gradient, the derivatives in their place."""
        return tuple(x for x in (self.cash, self.proportions) if x is not None)

    @property
    def owed(self) -> Float[Array, ""]:
        """The sum of the cash that is paid after today, in currency, not discounted."""
        if self.cash is None:
            return jnp.zeros((), self.times.dtype)
        return jnp.sum(jnp.where(self.times > 0.0, self.cash, 0.0))

    def kept(self, t: Times) -> Times:
        """Return the share of the spot that proportional dividends leave from today to `t` (years)."""
        if self.proportions is None:
            return jnp.ones_like(t)
        times, shares = (_beside(t, x) for x in (self.times, self.proportions))
        paid = (times > 0.0) & (times <= t[..., None])
        return jnp.prod(jnp.where(paid, 1.0 - shares, 1.0), axis=-1)

    def value_after(self, t: Times, growth: Callable[[Times], Times]) -> Times:
        """Return the value at `t` (years) of the cash that is paid after it, and after today.

        Args:
            t: Times in years, of any shape.
            growth: The growth of the asset from today to times, without cash dividends.
        """
        if self.cash is None:
            return jnp.zeros_like(t)
        times = jnp.where(self.times > 0.0, self.times, 1.0)
        today = jnp.where(self.times > 0.0, self.cash / growth(times), 0.0)
        later = jnp.where(_beside(t, self.times) > t[..., None], _beside(t, today), 0.0)
        return growth(t) * jnp.sum(later, axis=-1)


def _beside(t: Times, numbers: Float[Array, " dividends"]) -> Float[Array, "... dividends"]:
    """Return numbers of dividends for each of some times."""
    return jnp.broadcast_to(numbers, (*t.shape, numbers.size))
