"""Gauss transforms, whose derivatives of every order are Gauss transforms with other weights."""

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Targets = Float[Array, " targets"]
Sources = Float[Array, " sources"]


@jax.custom_jvp
def gauss_transform(
    x: Targets, y: Sources, weights: Float[Array, "sources columns"]
) -> Float[Array, "targets columns"]:
    """Return sum_j exp(-(x_i - y_j)^2) weights_j.

    A derivative costs more columns but no more exponentials: with -2 (x_i - y_j)(dx_i - dy_j) multiplied out,
    it consists of two transforms of weights, y weights, weights dy and similar terms.
    """
    chex.assert_rank([x, y, weights], [1, 1, 2])
    distance = x[:, None] - y[None, :]
    return jnp.exp(-distance * distance) @ weights


@gauss_transform.defjvp
def _gauss_transform_jvp(primals, tangents):
    (x, y, weights), (dx, dy, dweights) = primals, tangents
    x, y, dx, dy = x[:, None], y[:, None], dx[:, None], dy[:, None]
    sums = gauss_transform(*primals[:2], jnp.concatenate([weights, y * weights], axis=1))
    out, first_moment = jnp.split(sums, 2, axis=1)
    moved = 2.0 * dy * weights
    # separate from the sums above: linear in the tangents, hence transposable
    linear = gauss_transform(*primals[:2], jnp.concatenate([dweights - y * moved, moved], axis=1))
    alone, with_x = jnp.split(linear, 2, axis=1)
    return out, alone + x * with_x - 2.0 * dx * (x * out - first_moment)
