"""The formulas of Black (1976) and Bachelier, and exercise probabilities.

Black (1976), eq. 16, undiscounted, on the forward; `std` is vol * sqrt(expiry). If it is 0, the spot ends at
the forward: an option has its intrinsic value, and NaN derivatives if the forward equals the strike.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .normal_law import cdf, density
from .safe_math import divisor

Real = Float[Array, "..."]


def log_moneyness(forward: Real, strike: Real, std: Real) -> Real:
    """Return log(forward / strike) in standard deviations of the log-spot."""
    x = jnp.log(forward / strike)
    at_kink = (x == 0.0) & (std <= 0.0)
    no_slope = jnp.sqrt(jnp.square(jnp.where(at_kink, x, 1.0)))  # 0 at the kink, its derivative NaN
    return x / divisor(std) + jnp.where(at_kink, no_slope, 0.0)


def exercise_probabilities(forward: Real, strike: Real, std: Real, side: Real) -> tuple[Real, Real]:
    """Return P(side (S_T - K) > 0) under the share measure and the forward measure: N(side d1), N(side d2)."""
    d1 = log_moneyness(forward, strike, std) + 0.5 * std
    return cdf(side * d1), cdf(side * (d1 - std))


def black(forward: Real, strike: Real, std: Real, side: Real) -> Real:
    """Return the undiscounted value of a call (side = +1) or a put (side = -1)."""
    share, cash = exercise_probabilities(forward, strike, std, side)
    return side * (forward * share - strike * cash)


def bachelier(forward: Real, strike: Real, std: Real, side: Real) -> Real:
    """Return the undiscounted value of a call (side = +1) or a put (side = -1) on a normal forward."""
    d = side * (forward - strike) / divisor(std)
    return side * (forward - strike) * cdf(d) + std * density(d)
