"""Chains whose state is a Gaussian random walk."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics.safe_math import safe_sqrt
from .chain import AbstractStep, Frame, Functions, Quotes, State
from .claims import Claims, Exercise
from .polynomials import heat_polynomials, identity


class GaussianStep(AbstractStep):
    """x' = x + drift + factor @ noise; functions see x - shift.

    Martingale moves: those of heat polynomials of the state, of powers beyond the frame's planes, of claims.
    All are functions of the later state less their means, in closed form (regression later: Glasserman and
    Yu 2004).
    """

    exercise: Exercise
    is_open: Bool[Array, "*dates"]
    scale: Float[Array, "*dates"]
    drift: Float[Array, "*dates dim"]
    factor: Float[Array, "*dates dim dim"]
    shift: Float[Array, "*dates dim"]
    claims: Claims

    def advance(self, before: State, noise: State) -> State:
        return before + self.drift[:, None] + self.factor @ noise

    def coordinates(self, x: State) -> State:
        return x - self.shift[:, None]

    def quotes(self, x: State) -> Quotes:
        return self.claims.values(x)

    def moves(
        self,
        frame: Frame,
        before: State,
        after: State,
        noise: State,
        quoted: tuple[Quotes, Quotes],
    ) -> Functions:
        del noise
        seen = frame.seen(self.coordinates(after))
        mean = frame.seen(self.coordinates(before + self.drift[:, None]))
        loading = frame.state.whitening @ self.factor
        spread = jnp.eye(len(seen), dtype=seen.dtype) - loading @ loading.T
        polynomials = heat_polynomials(seen, identity(len(seen)), frame.indices)
        means = heat_polynomials(mean, spread, frame.indices)
        std = safe_sqrt(jnp.sum((frame.planes.normals @ loading) ** 2, axis=-1))
        powers, mean_powers = frame.planes.powers(seen), frame.planes.mean_powers(mean, std)
        moved = self.claims.lives[:, None] * (quoted[1] - quoted[0]) / frame.unit
        smooth = [(polynomials - means)[1:], powers - mean_powers]
        return jnp.concatenate([*(self.scale * moves for moves in smooth), moved])
