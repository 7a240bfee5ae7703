"""Autocallable notes with coupons and a knock-in, on the worst of several assets, by one-step survival."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

import jaxtape

from ..models import ConditionallyGaussian
from ..numerics import normal_law
from ..numerics.differentiable_once import differentiable_once
from ..numerics.mixing import mixed, unmixed
from ..numerics.safe_math import divisor, larger, nan_where, safe_sqrt, smaller
from ..products import AbstractProduct, CallableNote, Payoff
from ..sampling.time_grid import refined
from .corridor import deviations, payoff_inside, truncated_normal
from .estimator import AbstractEstimator, Draw, Needs, smooth

Paths = Float[Array, "*legs paths"]
Steps = Float[Array, "dates paths"]
Levels = Float[Array, "dates legs paths"]

_WHY_ONCE = (
    "Monte Carlo samples of a note on the worst of several assets have a kink where two of them "
    "are equal: their second derivative is wrong. Differentiate once."
)


class WorstNote(AbstractEstimator):
    """Three walks per path, each weighted by its survival within a corridor, so that samples are smooth.

    Conditional on all noise except the common move of the log-spots, the log of the worst level is Gaussian,
    for one or several assets, and each step is truncated as in `OneStepSurvival`. The value is a sum over three
    corridors: below the call levels, for coupons, redemption and the loss without a knock-in; also above the
    knock-in, for the loss that is then avoided; and one for missed coupons. Each missed coupon is lost or paid
    on a single date, so a path follows one of them, drawn at random, and weights it by their number.

    A continuously monitored knock-in uses Brownian bridge probabilities between dates above it, with the last
    step integrated. Samples are smooth for one asset; for several, the minimum has kinks, and a second
    derivative raises. (Glasserman and Staum 2001, sec. 2; Alm et al. 2013, sec. 4, for several assets.)
    """

    all_times: bool = eqx.field(static=True, default=False)

    @property
    def dates_are_declared(self) -> bool:
        return not self.all_times

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, CallableNote) and product.all_times == self.all_times

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return frozenset() if model.underlying.ndim else smooth(model)

    def dates(self, product: CallableNote, num_steps: int) -> Float[Array, " dates"]:
        return refined(product.dates, -(-num_steps // product.dates.size) if self.all_times else 1)

    def needs(self, product: CallableNote, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product
        several = model.underlying.ndim > 0
        return Needs((num_dates, *model.underlying.shape) if several else (0,), num_dates)

    def values(
        self, product: CallableNote, model: ConditionallyGaussian, draw: Draw
    ) -> Float[Array, " paths"]:
        sampled = differentiable_once(_values, _WHY_ONCE) if model.underlying.ndim else _values
        return sampled(product, model, draw)


class _Worst(NamedTuple):
    """log P at date k is mean_k plus the sum of std_j z_j up to k, z standard normal."""

    mean: Steps
    std: Steps
    bridge_variance: Steps

    @classmethod
    def of(cls, note: CallableNote, model: ConditionallyGaussian, draw: Draw) -> "_Worst":
        walk = draw.walk
        forward = jax.vmap(model.forward)(note.dates)
        if not model.underlying.ndim:
            scale = note.scales[0]
            mean = jnp.log(scale * forward)[:, None] + jnp.cumsum(walk.mean, axis=0)
            std = safe_sqrt(walk.variance)
            return cls(mean, std, walk.bridge_variance)
        std = safe_sqrt(walk.variance)
        factor = jnp.linalg.cholesky(model.residual_correlation)
        alike = jax.vmap(lambda std: unmixed(factor, 1.0 / divisor(std)))(std)
        length = jnp.sqrt(jnp.sum(alike**2, axis=1, keepdims=True))
        direction = alike / length
        normals = draw.normals
        rest = normals - direction * jnp.sum(direction * normals, axis=1, keepdims=True)
        moves = walk.mean + std * mixed(factor, rest)
        logs = jnp.log(note.scales[None] * forward)[..., None] + jnp.cumsum(moves, axis=0)
        worst = functools.reduce(smaller, jnp.moveaxis(logs, 1, 0))
        is_still = std <= 0.0
        common = jnp.where(jnp.any(is_still, axis=1), 0.0, 1.0 / length[:, 0])
        one_alone = jnp.any(is_still, axis=1) & ~jnp.all(is_still, axis=1)
        return cls(worst, nan_where(one_alone, common), jnp.zeros_like(common))


class _Legs(NamedTuple):
    """The corridors of the three walks in logs, and the discounted payments for leaving above, at each date."""

    lower: Levels
    upper: Levels
    paid_above: Levels

    @classmethod
    def of(cls, note: CallableNote, discount: Array, uniform: Array) -> "_Legs":
        coupon, missed = (x[None] for x in _missed_coupon(note, uniform))
        date = jnp.arange(note.dates.size)[:, None]
        call, level = (_log(x)[:, None] for x in (note.call_levels, note.coupon_levels))
        until_paid = jnp.where(date < missed - 1, call, level)
        call = jnp.broadcast_to(call, until_paid.shape)
        below = jnp.full_like(call, _log(jnp.zeros_like(note.knock_in[0])))
        knock_in = jnp.broadcast_to(_log(note.knock_in)[:, None], call.shape)
        redeemed = jnp.broadcast_to((discount * note.notional)[:, None], call.shape)
        paid = jnp.where(date >= missed, discount[:, None] * coupon, 0.0)
        return cls(
            jnp.stack([below, knock_in, below], axis=1),
            jnp.stack([call, call, until_paid], axis=1),
            jnp.stack([redeemed, jnp.zeros_like(call), paid], axis=1),
        )


def _values(
    product: CallableNote, model: ConditionallyGaussian, draw: Draw
) -> Float[Array, " paths"]:
    note = product
    if product.all_times:
        note = product.refined(refined(product.dates, draw.walk.length.size // product.dates.size))
    discount = jax.vmap(model.discount)(note.dates)
    law = _Worst.of(note, model, draw)
    legs = _Legs.of(note, discount, draw.uniforms[-1])
    coupon_level = _log(note.coupon_levels)

    def left(law: _Worst, legs: _Legs, coupon: Array, coupon_level: Array, moved: Paths):
        """Return the corridor in standard deviations of the step, and each leg's mean payment at its date."""
        mean = law.mean[None] + moved
        low, high = (deviations(level - mean, law.std[None]) for level in legs[:2])
        paid = legs.paid_above * normal_law.cdf(-high)
        from_coupon = deviations(coupon_level - mean[0], law.std)
        return low, high, paid.at[0].add(coupon * normal_law.cdf(-from_coupon))

    def step(carry, of_date):
        moved, weight, before = carry
        law, legs, coupon, level, watched, uniform = of_date
        low, high, paid = left(law, legs, coupon, level, moved)
        inside, chance = truncated_normal(low, high, jnp.broadcast_to(uniform, low.shape))
        moved = moved + law.std[None] * inside
        here = law.mean + moved[1]
        survival = weight * chance
        if product.all_times:
            survival = survival.at[1].multiply(1.0 - _touched(law, before, here, watched))
        return (moved, survival, here), weight * paid

    coupons = discount * note.coupons
    dates = law, legs, coupons, coupon_level, _log(note.knock_in)
    early, last = (jax.tree.map(lambda x, at=at: x[at], dates) for at in (slice(-1), -1))
    still = jnp.zeros_like(legs.upper[0])
    weight = jnp.ones_like(still)
    start = functools.reduce(smaller, jnp.log(note.scales * jnp.atleast_1d(model.spot)))
    before = jnp.broadcast_to(start, law.mean[0].shape)
    if product.all_times:  # a level touched today has been touched
        weight = weight.at[1].multiply((start > _log(note.knock_in[0])).astype(weight.dtype))
    uniforms = draw.uniforms[: note.dates.size - 1]
    (moved, weight, before), paid = jaxtape.scan(step, (still, weight, before), (*early, uniforms))
    law, legs, coupon, level, _ = last
    low, high, ended = left(law, legs, coupon, level, moved)
    spared = _lost(note, law, moved[1], low[1], high[1])
    if product.all_times:
        spared = spared - _lost_after_a_touch(note, law, legs, moved[1], before)
    at_end = note.notional * normal_law.cdf(high[0])
    at_end = at_end - _lost(note, law, moved[0], low[0], high[0])
    total = jnp.sum(paid, axis=(0, 1)) + jnp.sum(weight * ended, axis=0)
    saved = note.needs_knock_in * weight[1] * spared
    return total + discount[-1] * (weight[0] * at_end + saved)


def _lost(note: CallableNote, law: _Worst, moved: Paths, low: Paths, high: Paths) -> Paths:
    """Return the mean capital loss in the last step, in currency, for steps within (low, high)."""
    one = jnp.ones_like(note.protection)
    units = note.notional / note.initial
    loss = Payoff.sum((note.protection, -one, -units, note.notional - units * note.added))
    forward = jnp.exp(law.mean + moved + 0.5 * law.std**2)
    return payoff_inside(loss, forward, law.std, low, high)


def _lost_after_a_touch(
    note: CallableNote, law: _Worst, legs: _Legs, moved: Paths, before: Paths
) -> Paths:
    """Return the mean loss on paths whose bridge touched the knock-in b in the last step, x -> x'.

    E[loss(x') exp(tilt (x' - b))], tilt = -2 (x - b) / variance of the bridge: under the tilted measure the
    mean of x' is higher by tilt times its variance.
    """
    level = _log(note.knock_in[-1])
    moves = law.bridge_variance > 0.0
    tilt = -2.0 * (before - level) / divisor(law.bridge_variance)
    variance = law.std**2
    away = law.mean + moved - level
    chance = jnp.exp(jnp.where(moves, tilt * away + 0.5 * tilt**2 * variance, 0.0))
    shifted = moved + tilt * variance
    mean = law.mean + shifted
    low, high = (deviations(x[1] - mean, law.std) for x in (legs.lower, legs.upper))
    return jnp.where(moves, chance * _lost(note, law, shifted, low, high), 0.0)


def _touched(law: _Worst, before: Paths, here: Paths, level: Array) -> Paths:
    """Return the probability that the bridge between two points above a level touches it."""
    distances = larger(before - level, 0.0) * larger(here - level, 0.0)
    moves = law.bridge_variance > 0.0
    return jnp.where(moves, jnp.exp(-2.0 * distances / divisor(law.bridge_variance)), 0.0)


def _missed_coupon(
    note: CallableNote, uniform: Float[Array, " paths"]
) -> tuple[Float[Array, " paths"], Integer[Array, " paths"]]:
    """Return one missable coupon per path, times their number, and the first date that may pay it.

    They are the coupons missed before today, which date 0 may pay, and those of all dates except the last.
    """
    coupons = jnp.concatenate([note.missed[None], note.coupons[:-1]])
    there: Bool[Array, " dates"] = coupons > 0.0
    count = jnp.sum(there)
    number = count.astype(uniform.dtype)
    rank = jnp.minimum((uniform * number).astype(count.dtype), count - 1)
    chosen = jnp.argmax(jnp.cumsum(there)[:, None] > rank[None], axis=0)
    return note.memory * number * coupons[chosen], chosen


def _log(level: Array) -> Array:
    """Return the logarithm of a level, finite where that is 0 or infinite."""
    tiny = float(jnp.finfo(level.dtype).tiny) ** 0.5
    return jnp.log(smaller(larger(level, tiny), 1.0 / tiny))
