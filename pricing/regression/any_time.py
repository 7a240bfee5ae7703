"""An upper bound, at the end of a step, of the value of exercise within it, for American rights."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel

_LOOKS = 5  # discount factors checked within a step


def most_in_step(
    model: AbstractModel,
    start: Float[Array, ""],
    end: Float[Array, ""],
    amounts: Float[Array, "*sums terms"],
) -> Float[Array, "*sums terms"]:
    """Return amounts at the end of a step worth at least the given amounts at any time within it.

    Cash paid at u is worth P(u) / P(t) per unit at the end t and, by Jensen's inequality, a right to the asset
    at most Y(u) / Y(t) per unit, with Y(t) = P(t) forward(t) / spot. Exercise at u is therefore worth at most
    the sum in which each term has its largest factor over u, or its smallest if it is negative.

    amounts: one for each asset, then cash.
    """

    def worth(t: Float[Array, ""]) -> Float[Array, " terms"]:
        cash = model.discount(t)
        asset = jnp.atleast_1d(cash * model.forward(t) / model.spot)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.append(asset, cash)

    factors = jax.vmap(worth)(jnp.linspace(start, end, _LOOKS))
    factors = factors / factors[-1:]
    return amounts * jnp.where(amounts > 0.0, jnp.max(factors, axis=0), jnp.min(factors, axis=0))
