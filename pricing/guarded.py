"""Roots and divisors at the edge of where they are defined.

XLA may compute a number twice and round it otherwise each time (here with a fused multiply-add, there without),
so that two tests of one `x > 0` can differ where x is a rounded zero. What stands in for x where the test fails
is therefore next to zero: with a 1 there, a variance of 1e-19 has been seen to count as 1.
"""

import jax.numpy as jnp
from jaxtyping import Array


def safe_sqrt(x: Array) -> Array:
    """sqrt(x) with derivative 0 at 0 and below."""
    positive = x > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.finfo(x.dtype).eps ** 2)), 0.0)


def divisor(x: Array) -> Array:
    """x where it is positive, else the machine's epsilon: for quotients that are selected by x > 0."""
    return jnp.where(x > 0.0, x, jnp.finfo(x.dtype).eps)
