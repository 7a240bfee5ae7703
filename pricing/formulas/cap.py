"""Caps and floors, caplet by caplet, under a model of forward rates or a Gaussian short rate.

A caplet on the period from s to e pays accrual (F - K) at e. With accrual F = P(s) / P(e) - 1 at s, it is worth
1 - (1 + K accrual) P(s, e) at s. Under a short rate it is a put on a bond (Jamshidian 1989).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, ForwardRates, GaussianFactors
from ..numerics.black import bachelier, black
from ..numerics.safe_math import larger, nan_where, safe_sqrt
from ..products import Cap
from .formula import Formula
from .jamshidian import right_to_payments

Real = Float[Array, "..."]


def _missing(product: Cap, model: AbstractModel) -> str | None:
    del product
    if isinstance(model, ForwardRates):
        return None
    is_known = isinstance(model, GaussianFactors) and model.mean_reversions.size <= 2
    return (
        None
        if is_known
        else "a law of forward rates, or a Gaussian short rate of one factor or two"
    )


def _value(product: Cap, model: Any) -> Real:
    """Return the sum of the caplets with positive accrual.

    A period that starts today has no time value. Placeholder times keep the derivatives of formulas that do not
    apply to a period finite.
    """
    accrues, is_open = product.accruals > 0.0, product.starts > 0.0
    start = jnp.where(accrues & is_open, product.starts, 1.0)
    end = jnp.where(accrues & is_open, product.ends, 2.0)
    start_today = jnp.where(accrues & ~is_open, product.starts, 0.0)
    end_today = jnp.where(accrues & ~is_open, product.ends, 1.0)
    accrual = jnp.where(accrues, product.accruals, 1.0)
    of_one: Any = _of_forward if isinstance(model, ForwardRates) else _of_short_rate
    caplets = jax.vmap(lambda *period: of_one(product, model, *period))(start, end, accrual)
    due = jax.vmap(lambda *period: _of_today(product, model, *period))
    paid = jnp.where(is_open, caplets, due(start_today, end_today, accrual))
    value = product.notional * jnp.sum(jnp.where(accrues, paid, 0.0))
    if product.amounts is None:
        return value
    return value + product.amounts @ jax.vmap(model.discount)(product.ends)


def _of_today(product: Cap, model: Any, start: Real, end: Real, accrual: Real) -> Real:
    """Return the value of a caplet on a notional of 1 whose period starts today."""
    if isinstance(model, ForwardRates):
        growth = model.growth(start, end)
    else:
        growth = model.discount(start) / model.discount(end)
    gain = product.side * ((growth - 1.0) / accrual - product.strike)
    return accrual * model.discount(end) * larger(gain, 0.0)


def _of_forward(product: Cap, model: ForwardRates, start: Real, end: Real, accrual: Real) -> Real:
    """Return the value of a caplet on a notional of 1."""
    forward = (model.growth(start, end) - 1.0) / accrual
    std = model.rate_vol(start, product.strike) * safe_sqrt(start)
    if model.rate_law == "normal":
        paid = bachelier(forward, product.strike, std, product.side)
    else:
        forward, strike = forward + model.rate_shift, product.strike + model.rate_shift
        has_law = (forward > 0.0) & (strike > 0.0)
        forward, strike = (jnp.where(has_law, x, 1.0) for x in (forward, strike))
        paid = nan_where(~has_law, black(forward, strike, std, product.side))
    return accrual * model.discount(end) * paid


def _of_short_rate(
    product: Cap, model: GaussianFactors, start: Real, end: Real, accrual: Real
) -> Real:
    """Return the value of a caplet on a notional of 1."""
    times = jnp.stack([start, end])
    owed = jnp.stack([jnp.ones_like(end), -(1.0 + product.strike * accrual)])
    amounts = product.side * owed * model.discount(times)
    return right_to_payments(amounts, times, product.side, start, model)


CAP = Formula(Cap, _missing, _value)
