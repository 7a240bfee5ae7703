"""Implied normal (Bachelier) volatility, vectorised and differentiable.

With the distance m = |F - K|, the out-of-the-money value is v = m h(x), h(x) = density(x) / x - N(-x), at x = m
/ (vol sqrt(expiry)). In the wings the relative error of log h grows like x^2, but so does its slope, so the
root keeps full precision.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .normal_law import cdf, scaled_cdf
from .safe_math import larger

Real = Float[Array, "..."]

_STEPS = 8  # third-order steps: 5 suffice for values from 1e-300 to 1e10 distances
_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))


def implied_normal_vol(value: Real, forward: Real, strike: Real, expiry: Real, side: Real) -> Real:
    """Return the vol sigma with bachelier(forward, strike, sigma sqrt(expiry), side) = value.

    value: undiscounted; expiry: years; side: +1 call, -1 put; shapes broadcast. NaN at or below intrinsic.
    """
    value, moneyness, expiry, side = jnp.broadcast_arrays(value, forward - strike, expiry, side)
    return implied_std(value, moneyness, side) / jnp.sqrt(expiry)


@jax.custom_jvp
def implied_std(value: Real, moneyness: Real, side: Real) -> Real:
    """Return vol * sqrt(expiry) of an option's value, moneyness F - K."""
    distance = jnp.abs(moneyness)
    otm = value - larger(side * moneyness, 0.0)
    is_valid = otm > jnp.finfo(otm.dtype).tiny
    otm = jnp.where(is_valid, otm, 1.0)
    # far enough from the money for the second term of the expansion to matter
    is_away = distance > float(jnp.finfo(otm.dtype).eps) ** 0.5 * otm
    near = _ROOT_TWO_PI * (otm + 0.5 * distance)
    away = jnp.where(is_away, distance, 1.0)
    ratio = jnp.where(is_away, otm, 1.0) / away
    std = jnp.where(
        is_away, away / _root(jnp.log(ratio), away / jnp.where(is_away, near, 1.0)), near
    )
    return jnp.where(is_valid, std, jnp.nan)


@implied_std.defjvp
def _implied_std_jvp(primals, tangents):
    """Apply the implicit function theorem to side m N(side d) + s density(d) = value, d = m / s."""
    value, moneyness, side = primals
    value_dot, moneyness_dot, _ = tangents
    std = implied_std(value, moneyness, side)
    d = moneyness / std
    moved = value_dot - side * cdf(side * d) * moneyness_dot
    # not divided by the density: where that is tiny, higher derivatives would divide by its powers
    return std, moved * _ROOT_TWO_PI * jnp.exp(0.5 * d * d)


def _root(log_ratio: Real, least: Real) -> Real:
    """Return x with log h(x) = log_ratio by Halley's method, from the wing asymptotics or `least`."""
    wing = -2.0 * log_ratio - 1.84  # x^2 + 6 log x where x is large
    x = larger(least, jnp.sqrt(larger(wing - 3.0 * jnp.log(larger(wing, 1.0)), 0.0)))

    def step(_, x: Real) -> Real:
        power = 0.5 * x * x
        gap = 1.0 / x - _ROOT_TWO_PI * scaled_cdf(power, -x)  # h over the density
        slope = -1.0 / (x * x * gap)  # of log h
        newton = -(jnp.log(gap / _ROOT_TWO_PI) - power - log_ratio) / slope
        bend = -(x + 2.0 / x) - slope  # its second derivative over the first
        return larger(x + newton / larger(1.0 + 0.5 * newton * bend, 0.3), 0.3 * x)

    return jax.lax.fori_loop(0, _STEPS, step, x)
