"""Reiner and Rubinstein's formulas for single barriers under constant coefficients, as one expression.

Reiner and Rubinstein (1991), as tabulated in Haug, The Complete Guide to Option Pricing Formulas (1998),
sec. 2.10.1. All eight kinds are one branch-free formula, so that a batch of mixed kinds is one program.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from ..black import black
from ..guarded import safe_sqrt
from ..products import Barrier

Scalar = Float[Array, ""]


def barrier_value(
    product: Barrier, spot: Scalar, rate: Scalar, dividend_yield: Scalar, vol: Scalar
) -> Scalar:
    """Value in currency; a spot on or beyond the barrier has touched it (a knock-out's rebate is paid now)."""
    living = product.living_side
    alive = living * (spot - product.barrier) > 0.0
    # off the living side the formula is not meant; evaluate it at a harmless spot there
    inside = jnp.where(alive, spot, product.barrier * (1.0 + 0.1 * living))
    survivor, rebate_at_hit, rebate_at_expiry = _parts(product, inside, rate, dividend_yield, vol)

    t = product.expiry
    forward = spot * jnp.exp((rate - dividend_yield) * t)
    vanilla = jnp.exp(-rate * t) * black(forward, product.strike, vol * jnp.sqrt(t), product.side)
    knocked_in = vanilla - survivor + rebate_at_expiry
    living_value = jnp.where(product.knocks_in, knocked_in, survivor + rebate_at_hit)
    touched_value = jnp.where(product.knocks_in, vanilla, product.rebate)
    return jnp.where(alive, living_value, touched_value)


def _parts(product: Barrier, spot, rate, dividend_yield, vol) -> tuple[Scalar, Scalar, Scalar]:
    """(knock-out without rebate, rebate paid at the hit, rebate paid at expiry if there was no hit).

    Haug's A to F, each a sum of exp(power) N(d): d below in the order asset A-D, cash A-D, rebates.
    """
    t, strike, barrier = product.expiry, product.strike, product.barrier
    phi, eta = product.side, product.living_side
    std, carry = vol * jnp.sqrt(t), rate - dividend_yield
    mu = carry / vol**2 - 0.5
    square = mu**2 + 2.0 * rate / vol**2  # below 0: the rebate at the hit has no real formula
    lam = safe_sqrt(square)
    h = jnp.log(barrier / spot)
    k = jnp.log(strike / spot)

    drift = (1.0 + mu) * std
    sides = jnp.stack([phi, phi, eta, eta])
    asset_d = sides * (jnp.stack([-k, -h, 2.0 * h - k, h]) / std + drift)
    cash_d = asset_d - sides * std
    survival_d = eta * (jnp.stack([-h, h]) / std + mu * std)
    hit_d = eta * (h / std + jnp.stack([lam, -lam]) * std)
    zero, mirror = jnp.zeros_like(h), 2.0 * mu * h
    powers = jnp.stack(
        [
            *(zero, zero, mirror + 2.0 * h, mirror + 2.0 * h, zero, zero, mirror, mirror),
            *(zero, mirror, (mu + lam) * h, (mu - lam) * h),
        ]
    )
    terms = _scaled_ndtr(powers, jnp.concatenate([asset_d, cash_d, survival_d, hit_d]))

    discount = jnp.exp(-rate * t)
    asset, cash = spot * jnp.exp(-dividend_yield * t), strike * discount
    a, b, c, d = phi * (asset * terms[:4] - cash * terms[4:8])
    strike_inside = eta * (strike - barrier) > 0.0
    from_barrier = jnp.where(strike_inside, a - c, b - d)  # down call, up put
    to_barrier = jnp.where(strike_inside, a - b + c - d, 0.0)  # up call, down put
    survivor = jnp.where(eta * phi > 0.0, from_barrier, to_barrier)
    without = jnp.where(product.rebate == 0.0, 0.0, jnp.nan)
    rebate_at_hit = jnp.where(square < 0.0, without, product.rebate * (terms[10] + terms[11]))
    rebate_at_expiry = product.rebate * discount * (terms[8] - terms[9])
    return survivor, rebate_at_hit, rebate_at_expiry


def _scaled_ndtr(power: Float[Array, " n"], d: Float[Array, " n"]) -> Float[Array, " n"]:
    """exp(power) N(d) without overflow times underflow: by the asymptotic series far in the tail."""
    edge = -10.0 if d.dtype == np.float32 else -30.0
    tail = d < edge
    near = jnp.where(tail, edge, d)
    far = jnp.where(tail, d, edge)
    inverse = 1.0 / far**2
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))
    in_tail = jnp.exp(power - 0.5 * far**2) * series / (-far * np.sqrt(2.0 * np.pi))
    at_ease = jnp.exp(jnp.where(tail, 0.0, power)) * ndtr(near)
    return jnp.where(tail, in_tail, at_ease)
