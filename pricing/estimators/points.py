"""The spots of an average, lognormal given the variance path."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian, LogSpotSteps
from ..numerics.mixing import mixed, unmixed
from ..numerics.safe_math import safe_sqrt
from ..products import Average

Spots = Float[Array, "spots paths"]


class Points(NamedTuple):
    """The weighted spots: log(w_j S_j) = log_mean_j + (A Z)_j, with Z standard normal [spots, paths].

    For one asset at several dates, A sums over the steps up to each date; for several assets at one date, A is
    the scaled Cholesky factor of their correlation. `std`: that of each step, or of each asset.
    """

    weights: Float[Array, " spots"]
    log_mean: Spots
    std: Spots
    factor: Float[Array, "spots spots"] | None

    @classmethod
    def of(cls, product: Average, model: ConditionallyGaussian, walk: LogSpotSteps) -> "Points":
        """Return the points of an average under a model, given the log-spot steps between its fixings."""
        if product.multi_asset:
            forward = model.forward(product.fixings[0])
            mean, variance = walk.mean[0], walk.variance[0]
            factor = jnp.linalg.cholesky(model.residual_correlation)
        else:
            forward = jax.vmap(model.forward)(product.fixings)
            mean, variance, factor = jnp.cumsum(walk.mean, axis=0), walk.variance, None
        weights = product.weights_of(forward.size)
        log_mean = jnp.log(weights * forward)[:, None] + mean
        return cls(weights, log_mean, safe_sqrt(variance), factor)

    def apply_factor(self, normals: Spots) -> Spots:
        """Return A Z."""
        if self.factor is None:
            return jnp.cumsum(self.std * normals, axis=0)
        return self.std * mixed(self.factor, normals)

    def transpose(self, spots: Spots) -> Spots:
        """Return A' y."""
        if self.factor is None:
            return self.std * jnp.cumsum(spots[::-1], axis=0)[::-1]
        return mixed(self.factor.T, self.std * spots)

    def common_direction(self) -> Spots:
        """Return the noise that moves all log-spots equally, A^-1 1."""
        one = jnp.ones_like(self.std)
        if self.factor is None:
            return jnp.diff(one, axis=0, prepend=0.0 * one[:1]) / self.std
        return unmixed(self.factor, one / self.std)

    def geometric(self) -> tuple[Float[Array, " paths"], Float[Array, " paths"]]:
        """Return mean and variance of sum_j w_j log S_j."""
        weights = self.weights[:, None]
        log_spot = self.log_mean - jnp.log(weights)
        loading = self.transpose(weights + jnp.zeros_like(log_spot))
        return jnp.sum(weights * log_spot, axis=0), jnp.sum(loading**2, axis=0)
