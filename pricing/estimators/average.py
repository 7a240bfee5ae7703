"""Options on averages: one direction of the Gaussian noise is integrated in closed form."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian, LognormalSpots
from ..numerics import normal_law
from ..numerics.safe_math import safe_sqrt
from ..products import AbstractProduct, Average, AverageClaim, Claim
from .estimator import AbstractEstimator, Draw, Needs, smooth
from .points import Points
from .terminal import claim_samples

Paths = Float[Array, " paths"]
Spots = Float[Array, "spots paths"]

_NEWTON_STEPS = 12
_FAR = 40.0  # standard deviations beyond which the normal density is negligible


class AverageEstimator(AbstractEstimator):
    """An estimator of options on averages of one or two kinds."""

    averages: eqx.AbstractClassVar[tuple[str, ...]]

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, Average) and product.average in self.averages

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return smooth(model)

    def dates(self, product: Average, num_steps: int) -> Float[Array, " dates"]:
        del num_steps
        return product.fixings


class ArithmeticAverage(AverageEstimator):
    """Conditional on all noise except one direction, an option on an arithmetic average has a known mean.

    The payoff is max(side (sum_j w_j S_j - K), 0), with log S_j = m_j + a_j z + b_j, and z standard normal,
    independent of b. All a_j are positive, so the sum exceeds K where z > z*, and given b the mean over z is
    side (sum_j w_j exp(m_j + b_j + a_j^2 / 2) N(side (a_j - z*)) - K N(-side z*)), smooth in all numbers. The
    direction of z in the noise is the gradient of the sum (preintegration: Griebel, Kuo and Sloan 2013; Liu and
    Owen 2023).
    """

    averages: ClassVar[tuple[str, ...]] = ("arithmetic",)

    def needs(self, product: Average, model: ConditionallyGaussian, num_dates: int) -> Needs:
        return Needs((1, model.underlying.size) if product.multi_asset else (num_dates,))

    def values(self, product: Average, model: ConditionallyGaussian, draw: Draw) -> Paths:
        points = Points.of(product, model, draw.walk)
        direction = _direction(points)
        normals = draw.normals[0] if product.multi_asset else draw.normals
        along = jnp.sum(direction * normals, axis=0)
        slope = points.apply_factor(direction)
        level = points.log_mean + points.apply_factor(normals - direction * along[None])
        root = _crossing(level, slope, jnp.log(product.strike))
        side, strike = product.side, product.strike
        spots = jnp.exp(level + 0.5 * slope**2) * normal_law.cdf(side * (slope - root[None]))
        payoff = side * (jnp.sum(spots, axis=0) - strike * normal_law.cdf(-side * root))
        if isinstance(product, AverageClaim):
            payoff = payoff + product.added
        return model.discount(product.fixings[-1]) * payoff


class GeometricAverage(AverageEstimator):
    """A geometric average is lognormal given the variance path: samples are Black's formula."""

    averages: ClassVar[tuple[str, ...]] = ("geometric",)

    def last_step_is_enough(self, product: AbstractProduct) -> bool:
        del product
        return True

    def needs(self, product: Average, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product, num_dates
        return Needs((1,) if isinstance(model, LognormalSpots) else (0,))

    def values(self, product: Average, model: ConditionallyGaussian, draw: Draw) -> Paths:
        points = Points.of(product, model, draw.walk)
        strike, side, expiry = product.strike, product.side, product.fixings[-1]
        claim = Claim(strike, expiry, side, side, -side * strike)
        one = jnp.ones_like(strike)
        return model.discount(expiry) * claim_samples(claim, one, *points.geometric(), draw.normals)


def _direction(points: Points) -> Spots:
    """Return the direction of noise in which the sum grows fastest, or the common one if that lowers a spot."""
    steepest = points.transpose(jnp.exp(points.log_mean))
    lowers = jnp.any(points.apply_factor(steepest) < 0.0, axis=0)
    direction = jnp.where(lowers[None], points.common_direction(), steepest)
    return direction / safe_sqrt(jnp.sum(direction**2, axis=0))[None]


def _crossing(level: Spots, slope: Spots, log_strike: Float[Array, ""]) -> Paths:
    """Return z with sum_j exp(level_j + slope_j z) = strike, by Newton on the convex log of the sum.

    The last step is differentiable. Because the integrand vanishes at the crossing, the value depends on the
    derivative of z only from second order on, where one Newton step gives it exactly.
    """

    def newton(z, level, slope, log_strike):
        parts = level + slope * z[None]
        log_sum = jax.nn.logsumexp(parts, axis=0)
        weights = jnp.exp(parts - log_sum[None])
        step = (log_sum - log_strike) / jnp.sum(weights * slope, axis=0)
        return jnp.clip(z - step, -_FAR, _FAR)

    held = jax.lax.stop_gradient((level, slope, log_strike))
    enough = float(jnp.finfo(level.dtype).eps) ** 0.5  # a step squares the error

    def step(state):
        count, _, z = state
        return count + 1, z, newton(z, *held)

    def is_far(state):
        count, before, z = state
        return (count < _NEWTON_STEPS) & jnp.any(jnp.abs(z - before) > enough)

    start = jnp.zeros_like(held[0][0])
    *_, z = jax.lax.while_loop(is_far, step, (0, start + 1.0, start))
    return newton(z, level, slope, log_strike)
