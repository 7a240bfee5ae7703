"""The delta of an FX option in market conventions, and the strike for a delta.

Reiswich and Wystup, A guide to FX options quoting conventions, The Journal of Derivatives 18 (2010) 58-68.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float, Num

from ..fields import word
from ..numerics.safe_math import nan_where
from .interpolation import as_floats

_STEPS = 24
"""Newton steps for the strike of a premium-adjusted delta; convergence is monotone."""

Real = Float[Array, "..."]
Given = Num[ArrayLike, "..."]


class DeltaConvention(eqx.Module):
    """Conventions for deltas and for at-the-money strikes.

    Let F be the forward, D the foreign discount factor and s the vol times sqrt(t). The spot delta is D N(d1)
    for a call and -D N(-d1) for a put, with d1 = log(F/K) / s + s/2; the forward delta omits D. A
    premium-adjusted delta is reduced by the premium, paid in the foreign currency: D (K/F) N(d2) and -D (K/F)
    N(-d2), with d2 = d1 - s. The at-the-money strike is the delta-neutral strike of a straddle, F exp(s^2/2) (F
    exp(-s^2/2) if premium-adjusted), or the forward.

    Attributes:
        delta: "spot" or "forward".
        premium_adjusted: Whether the delta includes the premium, paid in the foreign currency.
        at_the_money: "delta-neutral" or "forward".

    Examples:
        >>> from pricing.market import DeltaConvention
        >>> f"{DeltaConvention('forward').strike(0.25, 1.0, 1.3, 0.1, 0.99):.4f}"
        '1.3977'
    """

    delta: str = word("delta", ("spot", "forward"), default="spot")
    premium_adjusted: bool = eqx.field(static=True, default=False)
    at_the_money: str = word("at_the_money", ("delta-neutral", "forward"), default="delta-neutral")

    def delta_of(
        self, strike: Given, side: Given, forward: Given, deviation: Given, discount: Given
    ) -> Real:
        """Return the delta of an option on one unit of the foreign currency; negative for a put.

        Args:
            strike: The strike K.
            side: +1 for a call, -1 for a put.
            forward: The forward F at expiry.
            deviation: s, the vol times the square root of the time.
            discount: The foreign discount factor D.
        """
        given = strike, side, forward, deviation, discount
        strike, side, forward, deviation, discount = map(as_floats, given)
        shift = -0.5 if self.premium_adjusted else 0.5
        d = jnp.log(forward / strike) / deviation + shift * deviation
        share = strike / forward if self.premium_adjusted else 1.0
        return side * share * ndtr(side * d) * self._factor(discount)

    def strike(
        self, delta: Given, side: Given, forward: Given, deviation: Given, discount: Given
    ) -> Real:
        """Return the strike for a delta; the higher of two for a premium-adjusted call.

        It is NaN if no strike has the delta, and twice differentiable.

        Args:
            delta: The delta without its sign, above 0.
            side: +1 for a call, -1 for a put.
            forward: The forward F at expiry.
            deviation: s, the vol times the square root of the time.
            discount: The foreign discount factor D.
        """
        delta, forward, discount = map(as_floats, (delta, forward, discount))
        given = delta / self._factor(discount), as_floats(side), as_floats(deviation)
        size, side, deviation = jnp.broadcast_arrays(*given)
        unadjusted = 0.5 * deviation**2 - side * deviation * ndtri(size)
        if not self.premium_adjusted:
            return forward * jnp.exp(unadjusted)
        return forward * jnp.exp(_adjusted(size, side, deviation, unadjusted))

    def money_strike(self, forward: Given, deviation: Given) -> Real:
        """Return the at-the-money strike.

        Args:
            forward: The forward F at expiry.
            deviation: s, the vol times the square root of the time.
        """
        forward, deviation = as_floats(forward), as_floats(deviation)
        sign = -0.5 if self.premium_adjusted else 0.5
        sign = 0.0 if self.at_the_money == "forward" else sign
        return forward * jnp.exp(sign * deviation**2)

    def _factor(self, discount: Real) -> Real:
        return discount if self.delta == "spot" else jnp.ones_like(discount)


def _adjusted(size: Real, side: Real, deviation: Real, start: Real) -> Real:
    """Return k = log(K/F) with exp(k) N(side d2) = size, by Newton on its logarithm, concave in k.

    From the strike of the unadjusted delta, the iteration is monotone. The last two steps are differentiated:
    they give the first two derivatives of the solution.
    """

    def step(k: Real, size: Real, deviation: Real) -> Real:
        d = -k / deviation - 0.5 * deviation
        log_share = log_ndtr(side * d)
        miss = k + log_share - jnp.log(size)
        density = jnp.exp(-0.5 * d**2 - log_share) / jnp.sqrt(2.0 * jnp.pi)
        return k - miss / (1.0 - side * density / deviation)

    held = jax.lax.stop_gradient((size, deviation))
    start = jax.lax.stop_gradient(start)
    near = jax.lax.stop_gradient(jax.lax.fori_loop(0, _STEPS, lambda _, k: step(k, *held), start))
    found = step(step(near, size, deviation), size, deviation)
    miss = jnp.exp(near) * ndtr(side * (-near / held[1] - 0.5 * held[1])) - held[0]
    is_found = jnp.abs(miss) < 1e3 * jnp.finfo(found.dtype).eps
    return nan_where(~is_found, found)
