"""Roots, divisors and maxima whose derivatives tolerate inconsistent rounding.

XLA may compute a number twice and round it differently each time (here with a fused multiply-add, there
without), so that two tests of one `x > 0` can differ where x is a rounded zero. So the number that replaces x
where the test fails is next to zero: with a 1 there, a variance of 1e-19 has been seen to count as 1.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..fields import Number


def safe_sqrt(x: Array) -> Array:
    """Return sqrt(x) with derivative 0 at 0 and below."""
    positive = x > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.finfo(x.dtype).eps ** 2)), 0.0)


def divisor(x: Array) -> Array:
    """Return x where it is positive, else the machine's epsilon: for quotients that are selected by x > 0."""
    return jnp.where(x > 0.0, x, jnp.finfo(x.dtype).eps)


def larger(x: Number, y: Number) -> Array:
    """Return max(x, y); at a tie, it has the derivative of x.

    The derivative of `jnp.maximum` asks which argument equals the result: neither may, if XLA computes them
    again and rounds otherwise, and then it is 0. Here a comparison decides, as it does for the value.
    """
    return jnp.where((y > x) | (y != y), y, x)


def smaller(x: Number, y: Number) -> Array:
    """Return min(x, y), as `larger`."""
    return jnp.where((y < x) | (y != y), y, x)


def clipped(x: Number, low: Number, high: Number) -> Array:
    """Return min(max(x, low), high), as `larger`."""
    return smaller(larger(x, low), high)


def nan_where(failed: Bool[Array, "..."], x: Array) -> Array:
    """Return x, or NaN where it failed, in every derivative too."""
    return x * jnp.where(failed, jnp.nan, 1.0).astype(x.dtype)
