"""Barriers on dates, by one-step survival."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape

from .. import normal_law
from ..models import ConditionallyGaussian, Walk
from ..products import AbstractProduct, Monitored, Payoff
from .estimator import AbstractEstimator, Draw, Needs, safe_sqrt, smooth

Paths = Float[Array, " paths"]

_FAR = 35.0  # standard deviations: nothing of the normal law is left beyond


class OneStepSurvival(AbstractEstimator):
    """Given where it is, the chance that a path leaves the corridor at the next date is known.

    The path pays that chance times what leaving pays, goes on with the rest as its weight, and draws its next
    position among those inside: it never leaves, so its samples are smooth. The last step is integrated.
    (Glasserman and Staum 2001, sec. 2; Alm et al. 2013 for derivatives.)
    """

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, Monitored)

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return smooth(model)

    def dates(self, product: Monitored, num_steps: int) -> Float[Array, " dates"]:
        del num_steps
        return product.dates

    def needs(self, product: Monitored, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product, model
        return Needs((0,), num_dates - 1)

    def values(self, product: Monitored, model: ConditionallyGaussian, draw: Draw) -> Paths:
        walk = draw.walk(model, product.dates)
        looks = _looks(product, model, walk)

        def step(carry, of_date):
            (position, weight), (look, uniform) = carry, of_date
            low, high = look.bounds(position)
            paid = weight * look.paid_outside(low, high)
            inside, chance = _truncated_normal(low, high, uniform)
            return (look.moved(position, inside), weight * chance), paid

        early, last = (jax.tree.map(lambda x, cut=cut: x[cut], looks) for cut in (slice(-1), -1))
        start = jnp.zeros_like(walk.mean[0]), jnp.ones_like(walk.mean[0])
        (position, weight), paid = jaxtape.scan(step, start, (early, draw.uniforms))

        bounds = last.bounds(position)
        forward = model.forward(product.dates[-1])
        ends = forward * jnp.exp(position + last.mean + 0.5 * last.std**2)
        alive = _payoff_inside(product.alive, ends, last.std, *bounds)
        discount = model.discount(product.dates[-1])
        ended = jnp.sum(paid, axis=0) + weight * (last.paid_outside(*bounds) + discount * alive)
        return ended + discount * _always(product.always, forward, walk)


class _Look(NamedTuple):
    """One date: the step to it, and the corridor in log(S / forward) with its discounted payments."""

    mean: Paths
    std: Paths
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    below: Float[Array, ""]
    above: Float[Array, ""]

    def bounds(self, position: Paths) -> tuple[Paths, Paths]:
        """The corridor in standard deviations of the step from `position`."""
        still = self.std <= 0.0
        std = jnp.where(still, 1.0, self.std)

        def scaled(level: Float[Array, ""]) -> Paths:
            away = level - position - self.mean
            deviations = jnp.where(still, jnp.sign(away) * _FAR, away / std)
            return jnp.clip(deviations, -_FAR, _FAR)

        return scaled(self.lower), scaled(self.upper)

    def paid_outside(self, low: Paths, high: Paths) -> Paths:
        return self.below * normal_law.cdf(low) + self.above * normal_law.cdf(-high)

    def moved(self, position: Paths, normal: Paths) -> Paths:
        return position + self.mean + self.std * normal


def _looks(product: Monitored, model: ConditionallyGaussian, walk: Walk) -> _Look:
    """The looks at all dates, stacked."""
    forward = jax.vmap(model.forward)(product.dates)
    discount = jax.vmap(model.discount)(product.dates)
    tiny = float(jnp.finfo(forward.dtype).tiny) ** 0.5
    lower = jnp.log(jnp.maximum(product.lower, tiny)) - jnp.log(forward)
    upper = jnp.log(jnp.minimum(product.upper, 1.0 / tiny)) - jnp.log(forward)
    paid = discount * product.paid_below, discount * product.paid_above
    return _Look(walk.mean, safe_sqrt(walk.variance), lower, upper, *paid)


def _truncated_normal(low: Paths, high: Paths, uniform: Paths) -> tuple[Paths, Paths]:
    """A standard normal inside (low, high) by inversion, and the chance to be there.

    On the side where the distribution function is small, so that nothing cancels far out.
    """
    mirror = jnp.where(low + high > 0.0, -1.0, 1.0).astype(low.dtype)
    near = jnp.where(mirror > 0.0, low, -high)
    far = jnp.where(mirror > 0.0, high, -low)
    start = normal_law.cdf(near)
    chance = normal_law.cdf(far) - start
    return mirror * normal_law.quantile(start + uniform * chance), chance


def _payoff_inside(payoff: Payoff, forward: Paths, std: Paths, low: Paths, high: Paths) -> Paths:
    """Undiscounted mean of a payoff of a lognormal spot over (low, high) of its normal."""
    total = jnp.zeros_like(forward)
    for i in range(payoff.strike.shape[-1]):
        strike = (jnp.log(payoff.strike[i] / forward) + 0.5 * std**2) / jnp.where(
            std > 0.0, std, 1.0
        )
        strike = jnp.clip(strike, low, high)
        above = payoff.side[i] > 0.0
        begin, end = jnp.where(above, strike, low), jnp.where(above, high, strike)
        share = normal_law.cdf(end - std) - normal_law.cdf(begin - std)
        cash = normal_law.cdf(end) - normal_law.cdf(begin)
        total = total + payoff.asset_units[i] * forward * share + payoff.cash_units[i] * cash
    return total


def _always(payoff: Payoff, forward: Float[Array, ""], walk: Walk) -> Paths:
    """Undiscounted mean of a payoff that no barrier can end, given the variance path."""
    mean, variance = jnp.sum(walk.mean, axis=0), jnp.sum(walk.variance, axis=0)
    far = jnp.full_like(mean, _FAR)
    ends = forward * jnp.exp(mean + 0.5 * variance)
    return _payoff_inside(payoff, ends, safe_sqrt(variance), -far, far)
