"""Points in units of their own spread: mean 0 and covariance 1."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Standardizer(eqx.Module):
    """u = whitening @ (x - mean), which has mean 0 and covariance 1 over the points that it was fitted to."""

    mean: Float[Array, "*dates dim"]
    whitening: Float[Array, "*dates dim dim"]

    @classmethod
    def of(cls, x: Float[Array, "*dates dim paths"]) -> "Standardizer":
        """Fit mean and covariance of the points, at each date apart."""
        mean = jnp.mean(x, axis=-1)
        apart = x - mean[..., None]
        covariance = apart @ jnp.swapaxes(apart, -1, -2) / x.shape[-1]
        return cls(mean, jnp.vectorize(whitening, signature="(n,n)->(n,n)")(covariance))

    def __call__(self, x: Float[Array, "dim paths"]) -> Float[Array, "dim paths"]:
        """Return the standardized points of one date."""
        return self.whitening @ (x - self.mean[:, None])


def whitening(covariance: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """Return W, lower triangular, with W C W' = 1: Gram and Schmidt's, in the product that C makes.

    Directions in which nothing moves are scaled as if they moved by rounding.
    """
    dim = len(covariance)
    tiny = 16.0 * float(np.finfo(covariance.dtype).eps)
    floor = tiny * jnp.diagonal(covariance) + float(np.finfo(covariance.dtype).tiny)

    def add(i, rows):
        along = rows @ covariance[i]
        row = jnp.zeros(dim, covariance.dtype).at[i].set(1.0) - along @ rows
        variance = jnp.maximum(row @ covariance @ row, floor[i])
        return rows.at[i].set(row / jnp.sqrt(variance))

    return jax.lax.fori_loop(0, dim, add, jnp.zeros_like(covariance))
