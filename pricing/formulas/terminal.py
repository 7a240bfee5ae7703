"""Payoffs of the spot at a single time, under the distribution implied by a smile.

With C(K) = Black(K, sigma(K)) the undiscounted call at every strike, P(S_T > K) = -dC/dK and
E[S_T; S_T > K] = C + K P(S_T > K) (Breeden and Litzenberger 1978, eq. 1), so that

    P(S_T > K) = N(d2) - vega sigma'(K),    E[S_T; S_T > K] = F N(d1) - K vega sigma'(K).

A payoff without a jump at its strike has the value at the vol of that strike. At a kink of the smile, such as a
strike of a `VolSurface`, the slope is the mean of both sides, the limit of symmetric call spreads.

A power of the spot, such as a geometric average over one date with a weight w other than 1, is an integral of
calls (Carr and Madan 1998, eq. 1): E[S_T^w; S_T > K] and similar terms exceed those at the vol of K by

    int_K^inf w (w - 1) k^(w - 2) [Black(k, sigma(k)) - Black(k, sigma(K))] dk.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, BlackScholes, BlackVol
from ..numerics.black import black, exercise_probabilities, log_moneyness
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.normal_law import density
from ..numerics.safe_math import larger, smaller
from ..products import (
    AbstractProduct,
    Average,
    AverageClaim,
    Claim,
    DiscreteBarrier,
    Payoff,
    TerminalClaim,
)

Scalar = Float[Array, ""]

_POINTS = gauss_legendre(128)
_REACH = 9.0  # standard deviations of the log-spot from the peak to the end of an integral


def reads_spot_once(product: AbstractProduct, model: AbstractModel) -> bool:
    """Return True if a product, in canonical form, reads one spot at a single time."""
    if isinstance(product, Average) and product.multi_asset:
        return model.underlying.size == 1
    if isinstance(product, AverageClaim | DiscreteBarrier):
        return product.dates.shape[-1] == 1
    return isinstance(product, TerminalClaim)


def terminal_value(product: Any, model: BlackVol) -> Scalar:
    """Return the value, in currency, of a product that satisfies `reads_spot_once`."""
    product = product.canonical
    if isinstance(model, BlackScholes):
        model = model.alone
    if isinstance(product, DiscreteBarrier):
        return _corridor_value(product, model)
    if isinstance(product, Average) and product.average == "geometric":
        return _power_value(product, model)
    if isinstance(product, AverageClaim):
        added = model.discount(product.fixings[-1]) * product.added
        return _claim_value(_call(product), model) + added
    return _claim_value(product if isinstance(product, TerminalClaim) else _call(product), model)


def smile_correction(product: Any, model: Any, flat: Any) -> Scalar | float:
    """Return the value under a model less that under `flat`, the model at the contract's smile point.

    It is 0 if the two models are equal, and for products without `reads_spot_once`.
    """
    if flat is model or not isinstance(model, BlackVol) or not reads_spot_once(product, model):
        return 0.0
    return terminal_value(product, model) - terminal_value(product, flat)


def _claim_value(claim: TerminalClaim, model: BlackVol) -> Scalar:
    """Return discount (asset_units E[S_T; pays] + cash_units P(pays))."""
    t, strike, side = claim.expiry, claim.strike, claim.side
    forward, (vol, slope) = model.forward(t), model.smile(t, strike)
    std = vol * jnp.sqrt(t)
    share, cash = exercise_probabilities(forward, strike, std, side)
    asset_units, cash_units = claim.units
    jump = asset_units * strike + cash_units  # jump of the payoff: 0 for calls and puts
    skew = side * jump * _vega(forward, strike, std, t) * slope
    return model.discount(t) * (asset_units * forward * share + cash_units * cash - skew)


def _vega(forward: Scalar, strike: Scalar, std: Scalar, t: Scalar) -> Scalar:
    """Return the derivative of an option's undiscounted value to its vol."""
    d2 = log_moneyness(forward, strike, std) - 0.5 * std
    return strike * density(d2) * jnp.sqrt(t)


def _call(product: Average) -> Claim:
    """Return an option on an average of one spot as an option on weight * S_T."""
    weight = jnp.ones_like(product.strike)
    if product.average == "arithmetic":
        weight = product.weights_of(1)[0]
    side, strike = product.side, product.strike
    return Claim(strike / weight, product.fixings[-1], side, side * weight, -side * strike)


def _power_value(product: Average, model: BlackVol) -> Scalar:
    """Return the value of max(side (S_T^w - strike), 0) at T: a geometric average of one spot."""
    t, weight = product.fixings[-1], product.weights_of(1)[0]
    side, forward = product.side, model.forward(t)
    is_power = weight > 0.0
    strike = product.strike ** jnp.where(is_power, 1.0 / jnp.where(is_power, weight, 1.0), 1.0)
    vol = model.black_vol(t, strike)
    std = vol * jnp.sqrt(t)
    of_power = forward**weight * jnp.exp(0.5 * weight * (weight - 1.0) * std**2)
    flat = black(of_power, product.strike, weight * std, side)

    def smiles(log_strike: Scalar) -> Scalar:
        """Return the contribution of the smile to the integrand, in log strike."""
        k = jnp.exp(log_strike)
        stds = model.black_vol(t, k) * jnp.sqrt(t), std
        with_smile, without = (black(forward, k, each, side) for each in stds)
        return weight * (weight - 1.0) * k ** (weight - 1.0) * (with_smile - without)

    start, peak = jnp.log(strike), jnp.log(forward) + (weight - 0.5) * std**2
    farther, widest = larger(side * peak, side * start), std
    for _ in range(2):  # vols in the wing may be higher
        end = side * (farther + _REACH * widest)
        widest = larger(std, model.black_vol(t, jnp.exp(end)) * jnp.sqrt(t))
    half = 0.5 * (jax.lax.stop_gradient(end) - start)
    points, weights = (jnp.asarray(x, start.dtype) for x in _POINTS)
    of_smile = half * weights @ jax.vmap(smiles)(start + half * (1.0 + points))
    return model.discount(t) * (flat + of_smile)


def _corridor_value(product: DiscreteBarrier, model: BlackVol) -> Scalar:
    """Return the value of a contract that is monitored only at its expiry."""
    t = product.dates[-1]
    lower, upper = product.lower[-1], product.upper[-1]
    outside = product.paid_below[-1], product.paid_above[-1]
    forward = model.forward(t)

    def beyond(level: Scalar) -> tuple[Scalar, Scalar]:
        """Return E[S_T; S_T > level] and P(S_T > level); a level may be 0 or infinity."""
        is_between = (level > 0.0) & (level < jnp.inf)
        strike = jnp.where(is_between, level, forward)
        vol, slope = model.smile(t, strike)
        std = vol * jnp.sqrt(t)
        share, cash = exercise_probabilities(forward, strike, std, jnp.ones_like(std))
        skew = _vega(forward, strike, std, t) * slope
        all_or_none = jnp.where(level > 0.0, 0.0, 1.0)
        asset = jnp.where(is_between, forward * share - strike * skew, all_or_none * forward)
        return asset, jnp.where(is_between, cash - skew, all_or_none)

    def paid(payoff: Payoff, low: Scalar, high: Scalar) -> Scalar:
        """Return the undiscounted value of claims that pay only between two levels."""
        starts = jnp.where(payoff.side > 0.0, larger(payoff.strike, low), low)
        ends = jnp.where(payoff.side > 0.0, high, smaller(payoff.strike, high))
        ends = larger(ends, starts)
        asset, cash = (
            above - beyond_end
            for above, beyond_end in zip(
                *(jax.vmap(beyond)(x) for x in (starts, ends)), strict=True
            )
        )
        return jnp.sum(payoff.asset_units * asset + payoff.cash_units * cash)

    zero, endless = jnp.zeros_like(lower), jnp.full_like(upper, jnp.inf)
    ended = outside[0] * (1.0 - beyond(lower)[1]) + outside[1] * beyond(upper)[1]
    at_end = paid(product.alive, lower, upper) + paid(product.always, zero, endless)
    return model.discount(t) * (ended + at_end)
