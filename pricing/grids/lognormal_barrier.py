"""Continuous barriers under lognormal spots with time-dependent rate and vol, by finite differences.

With y = s log(S / B), where s = +1 if the option is alive above the barrier B, else -1, the value w, discounted
to today, solves w_t + sigma(t)^2 / 2 (w_yy - s w_y) + s (r(t) - q) w_y = 0. Each step uses the integrals of
sigma^2 and r - q, so that curves and term structures add no error. A step is TR-BDF2 (Bank et al. 1985; Hosea
and Shampine 1996): second order, and it damps the oscillations that Crank-Nicolson has near a barrier where the
volatility jumps.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..models import LognormalSpots
from ..numerics.black import black
from ..numerics.safe_math import larger, smaller
from ..numerics.tridiagonal import Tridiagonal
from ..products import SingleBarrier, TwoBarriers
from .stencil import averaged_payoff, interpolation, rounded

Scalar = Float[Array, ""]
Nodes = Float[Array, " nodes"]

_REACH = 6.5  # standard deviations from the spot
_SHARE = 2.0 - math.sqrt(2.0)
"""The fraction of a step for the trapezoidal rule, for which both stages have the same matrix."""


def lognormal_barrier_value(
    product: SingleBarrier | TwoBarriers,
    model: LognormalSpots,
    num_nodes: int,
    num_steps: int,
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the value in currency, extrapolated from a grid and one with half its nodes and steps.

    Both errors are second order, so (4 fine - coarse) / 3 cancels them (Richardson). A spot on or beyond the
    barrier has touched it.
    """
    alive = product.is_inside(model.spot)
    spot = jnp.where(alive, model.spot, product.spot_inside)
    fine = _living_value(product, model, spot, num_nodes, num_steps, schedule)
    coarse = _living_value(product, model, spot, num_nodes // 2, num_steps // 2, schedule)
    solution = fine + (fine - coarse) / 3.0
    t = product.expiry
    if product.cash is None:
        std = jnp.sqrt(model.state_variance(t))
        vanilla = black(model.forward(t), product.strike, std, product.side)
    else:
        vanilla = product.cash
    vanilla = model.discount(t) * vanilla
    living_value = jnp.where(product.knocks_in, vanilla + solution, solution)
    return jnp.where(alive, living_value, jnp.where(product.knocks_in, vanilla, product.rebate))


def _living_value(
    product: SingleBarrier | TwoBarriers,
    model: LognormalSpots,
    spot: Scalar,
    num_nodes: int,
    num_steps: int,
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the knock-out at a spot inside the region, or the knock-in less the vanilla option."""
    side, expiry = product.barrier_direction, product.expiry
    shares = jnp.arange(num_steps + 1, dtype=expiry.dtype) / num_steps
    times = expiry * (1.0 - shares**2)  # dense at expiry, where the payoff has a kink and a jump
    variances = model.state_variance(times)
    log_growth = jnp.log(jax.vmap(model.forward)(times) / model.spot)
    discounts = jax.vmap(model.discount)(times)
    at = side * jnp.log(spot / product.barrier)
    first, last = _ends(at, variances[0], log_growth)
    width = (
        jnp.inf if product.far_barrier is None else jnp.log(product.far_barrier / product.barrier)
    )
    is_far, last = last >= width, smaller(last, width)
    gap = (last - first) / num_nodes
    y = first + gap * jnp.arange(num_nodes + 1, dtype=gap.dtype)

    to_strike = discounts[0] * product.strike
    growth = discounts[0] * jnp.exp(log_growth[0] - log_growth)

    def exercised(y: Scalar) -> Array:
        """Return today's value, at all times, of certain exercise, of none, or of the cash."""
        if product.cash is not None:
            return jnp.broadcast_to(discounts[0] * product.cash, growth.shape)
        spots = product.barrier * jnp.exp(side * y)
        return larger(product.side * (spots * growth - to_strike), 0.0)

    def less_rebate(value: Array) -> Array:
        return jnp.where(product.knocks_in, product.rebate * discounts[0] - value, value)

    at_barrier = jnp.where(product.knocks_in, 0.0, product.rebate * discounts)
    low = jnp.where(first > 0.0, less_rebate(exercised(y[0])), at_barrier)
    high = jnp.where(is_far, at_barrier, less_rebate(exercised(y[-1])))
    payoff = averaged_payoff(product, y)
    start = less_rebate(discounts[0] * payoff).at[0].set(low[0]).at[-1].set(high[0])

    interior = jnp.ones_like(y).at[0].set(0.0).at[-1].set(0.0)[:, None]

    def step(w: Array, of_step: tuple[Array, ...]) -> tuple[Array, None]:
        # low, high: the values at both ends after each of the two stages
        variance, drift, low, high = of_step
        spread = 0.5 * variance / gap**2
        slope = 0.5 * side * (drift - 0.5 * variance) / gap
        bands = spread - slope, -2.0 * spread, spread + slope
        operator = Tridiagonal.with_sums(0.0, *(interior * band for band in bands))
        half = jnp.full_like(gap, 0.5 * _SHARE)
        factors = operator.identity_minus(half).factored()
        with_ends = lambda w, stage: w.at[0, 0].set(low[stage]).at[-1, 0].set(high[stage])
        between = factors.solve(with_ends(w + half * (operator @ w), 0))
        backward = (between - (1.0 - _SHARE) ** 2 * w) / (_SHARE * (2.0 - _SHARE))
        return factors.solve(with_ends(backward, 1)), None

    at_stages = lambda x: jnp.stack([x[:-1] + _SHARE * jnp.diff(x), x[1:]], axis=1)
    steps = -jnp.diff(variances), -jnp.diff(log_growth), at_stages(low), at_stages(high)
    w, _ = jaxtape.scan(step, start[:, None], steps, schedule=schedule)
    place, weights = interpolation(y, at, 6)
    return weights @ jax.lax.dynamic_slice(w[:, 0], (place,), (6,))


def _ends(at: Scalar, variance: Scalar, log_growth: Array) -> tuple[Scalar, Scalar]:
    """Return the first and last node around the spot, starting at the barrier if it is near.

    They are constant under small bumps, and are not differentiated.
    """
    at, log_growth = jax.lax.stop_gradient((at, log_growth))
    reach = _REACH * jnp.sqrt(jax.lax.stop_gradient(variance)) + jnp.max(jnp.abs(log_growth))
    unit = rounded(reach) / 8.0
    first = unit * jnp.floor(larger(at - reach, 0.0) / unit)
    last = unit * jnp.ceil((at + reach) / unit)
    return first, last
