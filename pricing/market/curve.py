"""Discount curves given by continuously compounded zero rates."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from ..fields import Converted, pillars, real_vector
from ..numbers_shown import repr_with_numbers
from .interpolation import as_floats, check_shape, interpolate


class ZeroCurve(eqx.Module):
    """Zero rates at pillar times; linear in the zero rate between the pillars, flat outside.

    With the zero rate z(t) the discount factor is exp(-z(t) t).

    Attributes:
        times: The times of the pillars in years from the as-of date (ACT/365), at least 0, strictly increasing,
            of shape (pillars,).
        zero_rates: The zero rates, continuously compounded, as decimals (0.035 is 3.5 %), finite, of shape
            (pillars,).

    Raises:
        ValueError: The shapes do not match, the times do not increase, or a number is not finite.

    Examples:
        >>> from pricing import ZeroCurve
        >>> curve = ZeroCurve([1.0, 3.0], [0.02, 0.04])
        >>> f"{curve.zero_rate(2.0):.3f} {curve.discount(2.0):.4f}"
        '0.030 0.9418'
    """

    __repr__ = repr_with_numbers

    times: Converted[Float[Array, " pillars"]] = pillars("times", "in years", from_zero=True)
    zero_rates: Converted[Float[Array, " pillars"]] = real_vector("zero_rates")

    def __check_init__(self):
        check_shape("a curve", "zero rate", self.zero_rates, times=self.times)

    @property
    def is_flat(self) -> bool:
        """Whether the curve has a single pillar, and therefore a constant zero rate."""
        return self.times.size == 1

    def zero_rate(self, t: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the zero rate to time `t`, in years, in the shape of `t`."""
        return interpolate(t, self.times, self.zero_rates)

    def discount(self, t: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the discount factor exp(-z(t) t) to time `t`, in years, in the shape of `t`."""
        return jnp.exp(-self.zero_rate(t) * as_floats(t))

    def shifted(self, rate: Num[ArrayLike, ""]) -> "ZeroCurve":
        """Return the curve with every zero rate shifted by `rate` (per 1.00)."""
        return ZeroCurve(self.times, self.zero_rates + rate)

    @property
    def quotes(self) -> tuple[Any, ...]:
        """The leaf of quotes, the zero rates; in a gradient, the derivatives to them."""
        return (self.zero_rates,)

    def bootstrapped(self, *, throw: bool = True) -> "ZeroCurve":
        """Return this curve itself: only `CurveQuotes` need a bootstrap."""
        del throw
        return self
