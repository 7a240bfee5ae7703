"""Standardized points: mean 0 and covariance 1."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Standardizer(eqx.Module):
    """u = whitening @ (x - mean), with mean 0 and covariance 1 over the fitted points.

    If fitted by coordinate, whitening is a vector, the diagonal of a matrix, and u has variance 1 only.
    """

    mean: Float[Array, "*dates dim"]
    whitening: Float[Array, "*dates dim dim"] | Float[Array, "*dates dim"]

    @classmethod
    def of(cls, x: Float[Array, "*dates dim paths"]) -> "Standardizer":
        """Fit mean and covariance of the points, separately at each date."""
        mean = jnp.mean(x, axis=-1)
        apart = x - mean[..., None]
        covariance = apart @ jnp.swapaxes(apart, -1, -2) / x.shape[-1]
        return cls(mean, jnp.vectorize(whitening, signature="(n,n)->(n,n)")(covariance))

    @classmethod
    def by_coordinate(cls, x: Float[Array, "*dates dim paths"]) -> "Standardizer":
        """Fit mean and variance of every coordinate at each date; a constant coordinate is unscaled."""
        return cls(jnp.mean(x, axis=-1), 1.0 / deviation(x))

    def __call__(self, x: Float[Array, "dim ..."]) -> Float[Array, "dim ..."]:
        """Return the standardized point or points of one date."""
        column = (-1, *(1,) * (x.ndim - 1))
        apart = x - self.mean.reshape(column)
        if self.whitening.ndim == 2:
            return self.whitening @ apart
        return self.whitening.reshape(column) * apart

    def at(self, date) -> "Standardizer":
        """Return the standardizer of one date, by its index."""
        return Standardizer(self.mean[date], self.whitening[date])


def deviation(samples: Float[Array, "*axes samples"]) -> Float[Array, "*axes"]:
    """Return the standard deviation of samples as a divisor: 1 where it is 0."""
    std = jnp.std(samples, axis=-1)
    return jnp.where(std > 0.0, std, 1.0)


def whitening(
    covariance: Float[Array, "dim dim"], least: Float[Array, " dim"] | None = None
) -> Float[Array, "dim dim"]:
    """Return the lower triangular W with W C W' = 1: Gram-Schmidt in the inner product of C.

    A coordinate whose variance, given the coordinates before it, is not above `least` has a row of zeros.
    Without `least`, its row is scaled as if that variance were rounding.
    """
    dim = len(covariance)
    tiny = 16.0 * float(np.finfo(covariance.dtype).eps)
    floor = tiny * jnp.diagonal(covariance) + float(np.finfo(covariance.dtype).tiny)

    def add(i, rows):
        along = rows @ covariance[i]
        row = jnp.zeros(dim, covariance.dtype).at[i].set(1.0) - along @ rows
        variance = row @ covariance @ row
        row = row / jnp.sqrt(jnp.maximum(variance, floor[i]))
        is_kept = True if least is None else variance > least[i]
        return rows.at[i].set(jnp.where(is_kept, row, 0.0))

    return jax.lax.fori_loop(0, dim, add, jnp.zeros_like(covariance))
