"""States in units of their own spread."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .solve import whitening

State = Float[Array, "dim paths"]


class Standard(eqx.Module):
    """u = whitening @ (x - center), which has mean 0 and covariance 1 over the paths that it was fitted to."""

    center: Float[Array, "*dates dim"]
    whitening: Float[Array, "*dates dim dim"]

    @classmethod
    def across(cls, x: State) -> "Standard":
        center = jnp.mean(x, axis=-1)
        apart = x - center[:, None]
        return cls(center, whitening(apart @ apart.T / x.shape[-1]))

    def of(self, x: State) -> State:
        return self.whitening @ (x - self.center[:, None])
