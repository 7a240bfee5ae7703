"""Implied Black volatility, vectorised and differentiable to any order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from .normal_law import cdf
from .safe_math import clipped, larger

Real = Float[Array, "..."]

_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))
_MOST_STEPS = 32  # third-order steps: 8 suffice up to 10 standard deviations


def implied_vol(value: Real, forward: Real, strike: Real, expiry: Real, side: Real) -> Real:
    """Return the vol sigma with black(forward, strike, sigma sqrt(expiry), side) = value.

    value: undiscounted, in units of the forward; expiry: years; side: +1 call, -1 put; shapes broadcast.
    It is NaN where no volatility gives the value: at or below intrinsic, at or above the forward (call) or
    strike (put).
    """
    numbers = value, forward, strike, expiry, side
    value, forward, strike, expiry, side = jnp.broadcast_arrays(*numbers)
    value = value / jnp.sqrt(forward * strike)
    return implied_std(value, jnp.log(forward / strike), side) / jnp.sqrt(expiry)


@jax.custom_jvp
def implied_std(value: Real, k: Real, side: Real) -> Real:
    """Return vol * sqrt(expiry) of an option's value over sqrt(F K), k = log(F / K).

    For precision, the root is computed for the out-of-the-money side; the derivatives are for the given side,
    which has no kink at the money.
    """
    x = -jnp.abs(k)
    otm = value - larger(2.0 * side * jnp.sinh(0.5 * k), 0.0)
    tiny = jnp.finfo(otm.dtype).tiny
    valid = (otm > tiny) & (otm < jnp.exp(0.5 * x))
    target = jnp.where(valid, otm, 0.5 * jnp.exp(0.5 * x))
    std = _solve(target, x)
    return jnp.where(valid, std, jnp.nan)


@functools.partial(implied_std.defjvp, symbolic_zeros=True)
def _implied_std_jvp(primals, tangents):
    """Apply the implicit function theorem to side (e^{k/2} N(side d1) - e^{-k/2} N(side d2)) = value."""
    value, k, side = primals
    value_dot, k_dot, _ = tangents
    std = implied_std(value, k, side)
    moved = jnp.zeros_like(std) if isinstance(value_dot, SymbolicZero) else value_dot
    if not isinstance(k_dot, SymbolicZero):
        d1, d2 = k / std + 0.5 * std, k / std - 0.5 * std
        parts = jnp.exp(0.5 * k) * cdf(side * d1) + jnp.exp(-0.5 * k) * cdf(side * d2)
        moved = moved - 0.5 * side * parts * k_dot
    # not divided by vega: where that is tiny, higher derivatives would divide by its powers
    return std, moved * _ROOT_TWO_PI * jnp.exp(0.5 * ((k / std) ** 2 + 0.25 * std**2))


def _normalised(x: Real, std: Real) -> Real:
    """Return b(x, s) = e^{x/2} N(x/s + s/2) - e^{-x/2} N(x/s - s/2), x <= 0: out of the money."""
    d1, d2 = x / std + 0.5 * std, x / std - 0.5 * std
    return jnp.exp(0.5 * x) * cdf(d1) - jnp.exp(-0.5 * x) * cdf(d2)


def _vega(x: Real, std: Real) -> Real:
    """Return db/ds."""
    return jnp.exp(-0.5 * ((x / std) ** 2 + 0.25 * std**2)) / _ROOT_TWO_PI


def _solve(target: Real, x: Real) -> Real:
    """Return the root by Halley's method on a nearly linear transform of b, from the inflection point.

    The transform is 1/log(b) below the inflection and log(b_max - b) above: Jaeckel (2015), sec. 3, with two
    regions.
    """
    tiny = jnp.finfo(target.dtype).tiny
    inflection = larger(jnp.sqrt(2.0 * -x), 1e-2)
    ceiling = jnp.exp(0.5 * x)
    below = target < _normalised(x, inflection)

    def step(search):
        std, _, count = search
        value = clipped(_normalised(x, std), tiny, ceiling * (1.0 - jnp.finfo(x.dtype).eps))
        vega = larger(_vega(x, std), tiny)
        curvature = (x / std) ** 2 / std - 0.25 * std  # b'' / b'
        log_value, log_target = jnp.log(value), jnp.log(target)
        # f, f', f''/f' of each transform
        low = (1.0 / log_value - 1.0 / log_target, -vega / (value * log_value**2))
        low_ratio = curvature - vega / value * (1.0 + 2.0 / log_value)
        gap = ceiling - value
        high = (jnp.log(gap) - jnp.log(ceiling - target), -vega / gap)
        high_ratio = curvature + vega / gap
        f, slope = (jnp.where(below, a, b) for a, b in zip(low, high, strict=True))
        ratio = jnp.where(below, low_ratio, high_ratio)
        newton = -f / slope
        halley = newton / larger(1.0 + 0.5 * newton * ratio, 0.3)
        new = clipped(std + halley, 0.3 * std, 3.0 * std)
        return new, jnp.abs(new - std) > last * std, count + 1

    # if its cube is below eps, the next step would change nothing
    last = jnp.finfo(x.dtype).eps ** 0.4
    go_on = lambda search: jnp.any(search[1]) & (search[2] < _MOST_STEPS)
    start = inflection, jnp.ones_like(inflection, bool), jnp.asarray(0)
    std, is_moving, _ = jax.lax.while_loop(go_on, step, start)
    return jnp.where(is_moving, jnp.nan, std)
