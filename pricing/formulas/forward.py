"""Values that no volatility moves: known payments, and forwards on averages."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..products import AverageForward, FixedPayments


def forward_value(product: FixedPayments | AverageForward, model: Any) -> Float[Array, ""]:
    """Return the discounted payments; spots are at their forwards.

    sum_j a_j P(t_j), or units P(T) (sum_j w_j F(t_j) - K) with T the last date.
    """
    if isinstance(product, FixedPayments):
        return product.amounts @ jax.vmap(model.discount)(product.dates)
    forwards = jax.vmap(model.forward)(product.dates)
    paid = product.weights @ jnp.reshape(forwards, product.weights.shape) - product.strike
    return product.units * model.discount(product.dates[-1]) * paid
