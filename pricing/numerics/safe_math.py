"""Roots, divisors and maxima whose derivatives tolerate inconsistent rounding.

XLA may compute a number twice with different rounding (once with a fused multiply-add, once without), so two
tests of the same `x > 0` can disagree where x is a rounded zero. The number that replaces x where the test
fails is therefore tiny: with 1 instead, a variance of 1e-19 was once treated as 1.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..fields import Number


def safe_sqrt(x: Array) -> Array:
    """Return sqrt(x) with derivative 0 at 0 and below."""
    positive = x > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.finfo(x.dtype).eps ** 2)), 0.0)


def divisor(x: Array) -> Array:
    """Return x where positive, else machine epsilon: a divisor for quotients selected by x > 0."""
    return jnp.where(x > 0.0, x, jnp.finfo(x.dtype).eps)


def larger(x: Number, y: Number) -> Array:
    """Return max(x, y); at a tie, it has the derivative of x.

    The derivative of `jnp.maximum` tests which argument equals the result. If XLA recomputes them with
    different rounding, neither may, and the derivative is 0. Here a comparison decides, as for the value.
    """
    return jnp.where((y > x) | (y != y), y, x)


def maximum(x: Number, y: Number) -> Array:
    """Return max(x, y); at a tie, it has the mean of both derivatives, like `jnp.maximum`.

    At the money this is the slope of a payoff that functions of a regression contain. See `larger`. It has no
    custom derivative, which would make a function of a `Problem` compile again for every problem.
    """
    return 0.5 * (larger(x, y) + larger(y, x))


def smaller(x: Number, y: Number) -> Array:
    """Return min(x, y), with derivatives like `larger`."""
    return jnp.where((y < x) | (y != y), y, x)


def clipped(x: Number, low: Number, high: Number) -> Array:
    """Return min(max(x, low), high), with derivatives like `larger`."""
    return smaller(larger(x, low), high)


def nan_where(failed: Bool[Array, "..."], x: Array) -> Array:
    """Return x, or NaN where it failed, also in every derivative."""
    return x * jnp.where(failed, jnp.nan, 1.0).astype(x.dtype)
