"""Barriers on dates: the corridor of a path, and the distribution at the next monitoring date."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian, LogSpotSteps
from ..numerics import normal_law
from ..numerics.safe_math import clipped, divisor, larger, safe_sqrt, smaller
from ..products import DiscreteBarrier, Payoff

Paths = Float[Array, "*paths"]

_FARTHEST = 35.0  # standard deviations, in all precisions: all choose the same side


def far(dtype) -> float:
    """Return the number of standard deviations to truncate at, before the tail underflows."""
    return _FARTHEST if dtype == jnp.float64 else 12.5


def deviations(away: Array, std: Array) -> Array:
    """Return away / std, truncated far out; where std is 0, the truncation with the sign of `away`."""
    still, most = std <= 0.0, _FARTHEST
    scaled = away / divisor(std)
    return clipped(jnp.where(still, jnp.sign(away) * most, scaled), -most, most)


class MonitoringDate(NamedTuple):
    """A monitoring date: the step to it, and the corridor in log(S / forward) with its discounted payments."""

    mean: Paths
    std: Paths
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    below: Float[Array, ""]
    above: Float[Array, ""]

    def bounds(self, position: Paths) -> tuple[Paths, Paths]:
        """Return the corridor in standard deviations of the step from `position`."""
        start = position + self.mean
        return deviations(self.lower - start, self.std), deviations(self.upper - start, self.std)

    def paid_outside(self, low: Paths, high: Paths) -> Paths:
        """Return the mean exit payment, discounted to today."""
        below, above = normal_law.cdf(jnp.stack([low, -high]))
        return self.below * below + self.above * above

    def moved(self, position: Paths, normal: Paths) -> Paths:
        """Return the position after the step."""
        return position + self.mean + self.std * normal


def monitoring_dates(
    product: DiscreteBarrier, model: ConditionallyGaussian, walk: LogSpotSteps
) -> MonitoringDate:
    """Return the monitoring dates of a contract, stacked."""
    forward = jax.vmap(model.forward)(product.dates)
    discount = jax.vmap(model.discount)(product.dates)
    tiny = float(jnp.finfo(forward.dtype).tiny) ** 0.5
    lower = jnp.log(larger(product.lower, tiny)) - jnp.log(forward)
    upper = jnp.log(smaller(product.upper, 1.0 / tiny)) - jnp.log(forward)
    paid = discount * product.paid_below, discount * product.paid_above
    return MonitoringDate(walk.mean, safe_sqrt(walk.variance), lower, upper, *paid)


def truncated_normal(low: Paths, high: Paths, uniform: Paths) -> tuple[Paths, Paths]:
    """Return a standard normal truncated to (low, high), by inversion, and the probability of the interval.

    The tail with the smaller distribution function is used, so that nothing cancels far out.
    """
    mirror = jnp.where(low + high > 0.0, -1.0, 1.0).astype(low.dtype)
    nearest = jnp.where(mirror > 0.0, low, -high)
    farthest = jnp.where(mirror > 0.0, high, -low)
    ends = jnp.stack([nearest, farthest])
    if (most := far(low.dtype)) < _FARTHEST:
        ends = clipped(ends, -most, most)
    start, end = normal_law.cdf(ends)
    chance = end - start
    return mirror * normal_law.quantile(start + uniform * chance), chance


def payoff_inside(payoff: Payoff, forward: Paths, std: Paths, low: Paths, high: Paths) -> Paths:
    """Return the undiscounted mean of a payoff of a lognormal spot over normals in (low, high)."""

    def mean(piece: Payoff) -> Paths:
        away = jnp.log(piece.strike / forward) + 0.5 * std**2
        strike = clipped(deviations(away, std), low, high)
        above = piece.side > 0.0
        begin, end = jnp.where(above, strike, low), jnp.where(above, high, strike)
        edges = jnp.stack([begin, end, begin - std, end - std])
        until_begin, until_end, share_begin, share_end = normal_law.cdf(edges)
        shares = piece.asset_units * forward * (share_end - share_begin)
        return shares + piece.cash_units * (until_end - until_begin)

    return jnp.sum(jax.vmap(mean)(payoff), axis=0)


def paid_always(payoff: Payoff, forward: Float[Array, ""], walk: LogSpotSteps) -> Paths:
    """Return the undiscounted mean of a payoff without barriers, given the variance path."""
    mean, variance = jnp.sum(walk.mean, axis=0), jnp.sum(walk.variance, axis=0)
    most = jnp.full_like(mean, far(mean.dtype))
    ends = forward * jnp.exp(mean + 0.5 * variance)
    return payoff_inside(payoff, ends, safe_sqrt(variance), -most, most)
