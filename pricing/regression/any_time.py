"""An upper bound, at the end of a step, of the worth of exercise within it, for rights at any time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel

_LOOKS = 5  # at discount factors within a step


def most_in_step(
    model: AbstractModel,
    start: Float[Array, ""],
    end: Float[Array, ""],
    amounts: Float[Array, "*sums terms"],
) -> Float[Array, "*sums terms"]:
    """Return amounts at the end of a step that are worth at least what the given ones are at any time of it.

    Cash paid at u is worth P(u) / P(t) of it at the end t, and by Jensen's inequality a right to the asset no
    more than Y(u) / Y(t) of it at t, Y(t) = P(t) forward(t) / spot. So exercise at u is worth no more than the
    sum in which each part takes the largest of its factors over u, or the least where it is negative.

    amounts: of each asset, and of cash last.
    """

    def worth(t: Float[Array, ""]) -> Float[Array, " terms"]:
        cash = model.discount(t)
        asset = jnp.atleast_1d(cash * model.forward(t) / model.spot)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.append(asset, cash)

    factors = jax.vmap(worth)(jnp.linspace(start, end, _LOOKS))
    factors = factors / factors[-1:]
    return amounts * jnp.where(amounts > 0.0, jnp.max(factors, axis=0), jnp.min(factors, axis=0))
