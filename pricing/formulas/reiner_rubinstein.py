"""Reiner and Rubinstein's formulas for single barriers under constant coefficients, as one expression.

Reiner and Rubinstein (1991), as tabulated in Haug, The Complete Guide to Option Pricing Formulas (1998),
sec. 2.10.1. All eight kinds are one branch-free formula, so that a batch of mixed kinds is one program. Its
probabilities are separate values, not a stack: each is a flat array over the batch, for which XLA's CPU loops
are three times as fast. Terms that a contract does not need are masked before they are computed.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics.normal_law import cdf, scaled_cdf
from ..numerics.safe_math import safe_sqrt
from ..products import SingleBarrier

Scalar = Float[Array, ""]
Real = Float[Array, "..."]


def barrier_value(
    product: SingleBarrier, spot: Scalar, rate: Scalar, dividend_yield: Scalar, vol: Scalar
) -> Scalar:
    """Return the value in currency; a spot on or beyond the barrier has touched it (rebate now)."""
    t, living = product.expiry, product.barrier_direction
    alive = living * (spot - product.barrier) > 0.0
    # the formula does not hold beyond the barrier: evaluate it at a harmless spot there
    inside = jnp.where(alive, spot, product.barrier * (1.0 + 0.1 * living))
    discount, std = jnp.exp(-rate * t), vol * jnp.sqrt(t)
    per_std = 1.0 / std
    mu = (rate - dividend_yield) * t * jnp.square(per_std) - 0.5
    law = Law(std, per_std, mu, jnp.log(product.barrier / inside))

    if product.cash is None:
        forwards = spot * jnp.exp(-dividend_yield * t), product.strike * discount
        terms = Terms(product.side, living, product.strike, product.barrier)
        vanilla, survivor = claims(terms, law, forwards, jnp.log(product.strike / spot), alive)
    else:
        at_end = _cash_unit(product, law, rate * t, discount, jnp.ones_like(product.knocks_in))
        vanilla, survivor = product.cash * discount, product.cash * at_end
    living_value = jnp.where(product.knocks_in, vanilla - survivor, survivor)
    rebate_unit = _cash_unit(product, law, rate * t, discount, product.knocks_in)
    living_value = living_value + product.rebate * rebate_unit
    return jnp.where(alive, living_value, jnp.where(product.knocks_in, vanilla, product.rebate))


class Terms(NamedTuple):
    """A call (side = +1) or put (-1) with a barrier below (direction = +1) or above (-1) the spot."""

    side: Scalar
    direction: Scalar
    strike: Scalar
    barrier: Scalar


class Law(NamedTuple):
    """The law of x = log(S_T / spot), and of x reflected at the barrier, h = log(barrier / spot).

    std: the standard deviation of x, per_std its reciprocal; mu: the mean of x over its variance, under the
        forward measure.
    """

    std: Scalar
    per_std: Scalar
    mu: Scalar
    h: Scalar

    def beyond(self, side: Scalar, level: Scalar) -> tuple[Scalar, Scalar]:
        """Return P(side (x - level) > 0) under the share measure and the forward measure."""
        d = (self.mu + 1.0) * self.std - level * self.per_std
        return cdf(side * d), cdf(side * (d - self.std))

    def reflected(self, side: Scalar, level: Scalar) -> tuple[Scalar, Scalar]:
        """Return the same for 2 h + x, weighted by the reflection."""
        d = (self.mu + 1.0) * self.std + (2.0 * self.h - level) * self.per_std
        of_share = scaled_cdf(2.0 * (self.mu + 1.0) * self.h, side * d)
        return of_share, scaled_cdf(2.0 * self.mu * self.h, side * (d - self.std))


def claims(
    terms: Terms, law: Law, forwards: tuple[Scalar, Scalar], k: Scalar, alive: Bool[Array, ""]
) -> tuple[Scalar, Scalar]:
    """Return the option without its barrier, and the knock-out without its rebate (Haug's A to D).

    forwards: the discounted forwards of spot and strike; k: log(strike / spot). Where the strike is irrelevant
        because it lies beyond the barrier, the barrier replaces it.
    """
    phi, eta, h = terms.side, terms.direction, law.h
    strike_inside = eta * (terms.strike - terms.barrier) > 0.0
    value = lambda share, cash: phi * (forwards[0] * share - forwards[1] * cash)
    a, b = value(*law.beyond(phi, k)), value(*law.beyond(phi, h))
    c = value(*law.reflected(eta, jnp.where(strike_inside & alive, k, h)))
    d = value(*law.reflected(eta, h))
    from_barrier = jnp.where(strike_inside, a, b) - c  # down call, up put
    to_barrier = jnp.where(strike_inside, a - b + c - d, 0.0)  # up call, down put
    return a, jnp.where(eta * phi > 0.0, from_barrier, to_barrier)


def has_complex_exponent(
    product: SingleBarrier, rate: Real, dividend_yield: Real, vol: Real
) -> Bool[Array, "..."]:
    """Return True where the closed form of cash at the hit is complex: at sufficiently negative rates."""
    drift = rate - dividend_yield - 0.5 * jnp.square(vol)
    pays_at_hit = (product.rebate != 0.0) & ~product.knocks_in
    return (jnp.square(drift) + 2.0 * rate * jnp.square(vol) < 0.0) & pays_at_hit


def _cash_unit(
    product: SingleBarrier, law: Law, interest: Scalar, discount: Scalar, into: Bool[Array, ""]
) -> Scalar:
    """Return the value of 1 in cash, paid at the hit (Haug's F), or at expiry without a hit (E).

    interest: rate * expiry; into: whether to return E, the rebate of a knock-in.
    """
    std, per_std, mu, h = law
    eta = product.barrier_direction
    square = jnp.square(mu) + 2.0 * interest * jnp.square(per_std)
    lam = safe_sqrt(square)
    away = h * per_std
    level = jnp.where(into, mu * std - away, lam * std + away)
    first = scaled_cdf(jnp.where(into, 0.0, (mu + lam) * h), eta * level)
    level = away + jnp.where(into, mu, -lam) * std
    second = scaled_cdf(jnp.where(into, 2.0 * mu, mu - lam) * h, eta * level)
    # below 0 there is no real formula for a rebate at the hit, which is not needed without a rebate
    unknown = (square < 0.0) & (product.rebate != 0.0)
    at_hit = jnp.where(unknown, jnp.nan, first + second)
    return jnp.where(into, discount * (first - second), at_hit)
