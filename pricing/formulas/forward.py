"""Values without volatility: known payments, future floating coupons, and forwards on averages."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractRateModel
from ..products import AverageForward, FixedPayments, FloatingPayments


def forward_value(
    product: FixedPayments | FloatingPayments | AverageForward, model: Any
) -> Float[Array, ""]:
    """Return the discounted payments, with spots at their forwards.

    sum_j a_j P(t_j), with coupons N_j (growth_j - 1) P(p_j) of floating rates, or
    units P(T) (sum_j w_j F(t_j) - K) with T the last date.
    """
    if isinstance(product, FixedPayments | FloatingPayments):
        known = product.amounts @ jax.vmap(model.discount)(product.dates)
        return known + _coupons(product, model) if isinstance(product, FloatingPayments) else known
    forwards = jax.vmap(model.forward)(product.dates)
    paid = product.weights @ jnp.reshape(forwards, product.weights.shape) - product.strike
    return product.units * model.discount(product.dates[-1]) * paid


def _coupons(product: FloatingPayments, model: AbstractRateModel) -> Float[Array, ""]:
    if product.places is None:
        growth = jax.vmap(model.growth)(product.starts, product.ends)
    else:
        growth = jax.vmap(model.growth_at)(product.places, product.starts, product.ends)
    coupons = product.notionals * (growth - 1.0)
    return coupons @ jax.vmap(model.discount)(product.paid)
