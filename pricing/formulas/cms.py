"""CMS coupons, by swaption replication in the linear terminal swap rate model.

With the annuity A as numeraire the coupon pays R alpha at the fixing, alpha = P(fixing, payment) / A(fixing).
It is approximated by a linear function of the swap rate, alpha(R) = a R + b, with the right mean for every a; a
is the slope in a one-factor Gaussian model with the given mean reversion (Andersen and Piterbarg 2010,
*Interest Rate Modeling*, chapter 16). The payoff f(R) alpha(R) has second derivative 2 a in the money, so that
the value is

    (a K + b) C(K) + 2 a int_K^inf C(x) dx for a caplet,

with C the values of payer swaptions over A at all strikes above the caplet's (Hagan 2003, *Convexity
conundrums*).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, ForwardRates
from ..models.rate_model import mean_exponential
from ..numerics.black import bachelier, black
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.safe_math import clipped, nan_where
from ..products import CmsCoupon
from .formula import Formula

Real = Float[Array, "..."]

_POINTS, _WEIGHTS = gauss_legendre(64)
_DEVIATIONS = 10.0  # standard deviations beyond which swaption values are below rounding


def _missing(product: CmsCoupon, model: AbstractModel) -> str | None:
    if not isinstance(model, ForwardRates):
        return "a law of forward rates"
    if model.has_forward_curve and product.resets is None:
        return "one curve, or resets of the coupon's swap"
    return None


class _Swap(NamedTuple):
    """Today's values of a swap at the fixing: rate, annuity, and the linear function a R + b for P / A."""

    rate: Real
    annuity: Real
    slope: Real
    level: Real


def _swap(product: CmsCoupon, model: ForwardRates) -> _Swap:
    paid = product.accruals * jax.vmap(model.discount)(product.payment_dates)
    annuity, last = jnp.sum(paid), product.payment_dates[-1]
    resets = product.fixing[None] if product.resets is None else product.resets
    ends = jnp.concatenate([resets[1:], last[None]])
    interest = jax.vmap(model.growth)(resets, ends) - 1.0
    rate = jnp.sum(interest * jax.vmap(model.discount)(ends)) / annuity

    def slope_of_bond(t: Real) -> Real:  # -d log P(fixing, t) / dx of the Gaussian state x
        left = t - product.fixing
        return left * mean_exponential(-model.mean_reversion * left)

    of_annuity = jnp.sum(paid * jax.vmap(slope_of_bond)(product.payment_dates)) / annuity
    of_rate = model.discount(last) * slope_of_bond(last) + rate * annuity * of_annuity
    discount = model.discount(product.payment)
    slope = discount * (of_annuity - slope_of_bond(product.payment)) / of_rate
    return _Swap(rate, annuity, slope, discount / annuity - slope * rate)


def _value(product: CmsCoupon, model: ForwardRates) -> Real:
    """Return the value from out-of-the-money swaptions only, with parity for the others."""
    swap, root = _swap(product, model), jnp.sqrt(product.fixing)
    shift, is_normal = model.rate_shift, model.rate_law == "normal"
    strike = jnp.where(product.option == 0, swap.rate, product.strike)
    if is_normal:
        has_law, formula = jnp.asarray(True), bachelier
    else:
        has_law, formula = (swap.rate + shift > 0.0) & (strike + shift > 0.0), black
    rate, strike = (
        jnp.where(has_law, x + shift, one) for x, one in ((swap.rate, 1.0), (strike, 2.0))
    )
    money_std = model.rate_vol(product.fixing, rate - shift) * root
    kinks = model.kinks + shift
    kinks = kinks if is_normal else jnp.maximum(kinks, jnp.finfo(kinks.dtype).tiny)

    def swaption(at: Real, side: Real) -> Real:
        return formula(rate, at, model.rate_vol(product.fixing, at - shift) * root, side)

    def sum_of_swaptions(start: Real, side: float) -> Real:
        """Return the integral of swaptions over the strikes above, or below, `start`, between the kinks."""
        most = _DEVIATIONS + (0.0 if is_normal else 2.0 * money_std)
        scale = (lambda x: x) if is_normal else jnp.log
        deviations = lambda at: side * (scale(at) - scale(rate)) / money_std
        first = clipped(deviations(start), 0.0, most)
        inner = jnp.sort(jnp.clip(jax.lax.stop_gradient(deviations(kinks)), first, most))
        ends = jnp.concatenate([first[None], inner, jnp.reshape(most, 1).astype(first.dtype)])
        points, weights = (jnp.asarray(x, first.dtype)[None] for x in (_POINTS, _WEIGHTS))
        half = 0.5 * jnp.diff(ends)[:, None]
        z = ends[:-1, None] + half * (1.0 + points)
        strikes = rate + side * money_std * z if is_normal else rate * jnp.exp(side * money_std * z)
        width = money_std if is_normal else money_std * strikes
        values = jax.vmap(lambda at: swaption(at, jnp.asarray(side, at.dtype)))(strikes.ravel())
        return jnp.sum(half * weights * width * values.reshape(strikes.shape))

    def caplet(side: float) -> Real:
        """Return the value over A of an out-of-the-money caplet (1) or floorlet (-1)."""
        at_strike = swap.slope * (strike - shift) + swap.level
        pays = at_strike * swaption(strike, jnp.asarray(side, strike.dtype))
        return pays + 2.0 * side * swap.slope * sum_of_swaptions(strike, side)

    variance = 2.0 * (sum_of_swaptions(rate, 1.0) + sum_of_swaptions(rate, -1.0))
    alpha = swap.slope * swap.rate + swap.level
    coupon = alpha * swap.rate + swap.slope * variance
    forward = coupon - alpha * (strike - shift)  # the caplet less the floorlet
    is_above = strike >= rate
    out = jnp.where(is_above, caplet(1.0), caplet(-1.0))
    cap = jnp.where(is_above, out, out + forward)
    found = jnp.where(product.option == 0, coupon, cap)
    found = jnp.where(product.option < 0, cap - forward, found)
    scale = product.notional * product.accrual * swap.annuity
    return nan_where(~has_law, scale * found)


CMS_COUPON = Formula(CmsCoupon, _missing, _value)
