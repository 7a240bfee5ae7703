"""Chains whose state is a Gaussian random walk."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics.safe_math import safe_sqrt
from .chain import AbstractStep, At, Basis, ClaimValues, Functions, State
from .claims import Claims


class GaussianStep(AbstractStep):
    """x' = x + drift + factor @ noise; functions see x - shift.

    Martingale moves: those of heat polynomials of the state, of powers beyond the basis's planes, of claims.
    All are functions of the later state less their means, in closed form (regression later: Glasserman and
    Yu 2004).
    """

    drift: Float[Array, "*dates dim"]
    factor: Float[Array, "*dates dim dim"]
    shift: Float[Array, "*dates dim"]
    claims: Claims

    def advance(self, before: State, noise: State) -> State:
        return before + self.drift[:, None] + self.factor @ noise

    def coordinates(self, x: State) -> State:
        return x - self.shift[:, None]

    def claim_values(self, x: State) -> ClaimValues:
        return self.claims.values(x)

    def martingale_increments(self, basis: Basis, before: At, after: At, noise: State) -> Functions:
        del noise
        seen = basis.standardized(self.coordinates(after.state))
        mean = basis.standardized(self.coordinates(before.state + self.drift[:, None]))
        loading = basis.standardized.whitening @ self.factor
        spread = jnp.eye(len(seen), dtype=seen.dtype) - loading @ loading.T
        std = safe_sqrt(jnp.sum((basis.half_spaces.normals @ loading) ** 2, axis=-1))
        smooth = basis.smooth_increments(seen, mean, spread, std, basis.indices[1:])
        gained = after.claim_values - before.claim_values
        moved = self.claims.lives[:, None] * gained / basis.unit
        return jnp.concatenate([*(self.scale * moves for moves in smooth), moved])
