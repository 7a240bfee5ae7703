"""Where a point lies between sorted pillars: the one piece curves and surfaces share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Num


def as_floats(values: Num[ArrayLike, "..."] | list | tuple) -> Float[Array, "..."]:
    """Return an array of floats in the precision of the values; Python numbers stay weakly typed."""
    array = jnp.asarray(values)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return array * 1.0 if array.weak_type else array.astype(float)


def as_leaf(values: Num[ArrayLike, "..."] | list | tuple) -> Float[Array, "..."]:
    """Return an array of floats with a definite precision, to keep in a pytree."""
    array = as_floats(values)
    return array.astype(array.dtype)


@jax.jit
def bracket(
    x: Num[ArrayLike, "..."], pillars: Float[Array, " n"]
) -> tuple[Int[Array, "..."], Int[Array, "..."], Float[Array, "..."]]:
    """Return the pillars around `x` and the weight of the right one, flat outside the pillars.

    f(x) = (1 - weight) f[left] + weight f[right] for the returned `(left, right, weight)`. Clipping
    `x` and not the weight keeps the derivative in `x` one-sided, not halved, at inner pillars.
    """
    x = jnp.clip(as_floats(x), pillars[0], pillars[-1])
    if pillars.shape[0] == 1:
        nowhere = jnp.zeros(x.shape, int)
        return nowhere, nowhere, jnp.zeros_like(x)
    left = jnp.searchsorted(pillars, x, side="right", method="compare_all") - 1
    left = jnp.clip(left, 0, pillars.shape[0] - 2)
    right = left + 1
    return left, right, (x - pillars[left]) / (pillars[right] - pillars[left])
