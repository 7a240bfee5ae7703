"""The lognormal building blocks: asset-or-nothing, cash-or-nothing, and their combination.

Black (1976), eq. 16. Undiscounted, on the forward; `std` is vol * sqrt(expiry).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics.normal_law import cdf

Real = Float[Array, "..."]


def exercise_probabilities(forward: Real, strike: Real, std: Real, side: Real) -> tuple[Real, Real]:
    """Return P(side (S_T - K) > 0) under the share measure and the forward measure: N(side d1), N(side d2)."""
    d1 = jnp.log(forward / strike) / std + 0.5 * std
    return cdf(side * d1), cdf(side * (d1 - std))


def black(forward: Real, strike: Real, std: Real, side: Real) -> Real:
    """Return the undiscounted value of a call (side = +1) or a put (side = -1)."""
    share, cash = exercise_probabilities(forward, strike, std, side)
    return side * (forward * share - strike * cash)
