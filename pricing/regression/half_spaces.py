"""Truncated powers: functions with a kink where the exercise decision changes."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics import normal_law
from ..numerics.safe_math import divisor, larger
from .solve import least_squares

Points = Float[Array, "dim paths"]
Paths = Float[Array, " paths"]

POWERS = 3
_NOWHERE = 100.0  # standard deviations
_NEAR = 0.3  # distance from the boundary, relative to the gain's deviation, that counts as close
_FEWEST = 10  # paths


class HalfSpaces(eqx.Module):
    """Half-spaces {normal . u > level} of standardised coordinates u; arrays over planes."""

    normals: Float[Array, "planes dim"]
    levels: Float[Array, " planes"]

    @classmethod
    def nowhere(cls, planes: int, dim: int, dtype) -> "HalfSpaces":
        normals = jnp.zeros((planes, dim), dtype).at[:, 0].set(1.0)
        return cls(normals, jnp.full(planes, _NOWHERE, dtype))

    @classmethod
    def between(
        cls, u: Points, gain: Paths, allowed: Bool[Array, " paths"], branch: Array, planes: int
    ) -> "HalfSpaces":
        """Return for each branch the plane closest to {gain = 0}, by a linear fit to gains close to 0.

        gain: the gain of exercise over continuation; allowed: where exercise makes sense; branch: the branch
            that gives the exercise value.
        """
        of_branch = jax.vmap(lambda i: _plane(u, gain, allowed, branch == i))
        return cls(*of_branch(jnp.arange(planes)))

    def truncated_powers(self, u: Points) -> Float[Array, "functions paths"]:
        """Return (normal . u - level)_+ ^ m, m = 1 ... POWERS."""
        beyond = larger(self._distance(u), 0.0)
        return jnp.concatenate([beyond**m for m in range(1, POWERS + 1)])

    def mean_truncated_powers(
        self, u: Points, std: Float[Array, " planes"] | Float[Array, "planes paths"]
    ) -> Float[Array, "functions paths"]:
        """Return their means when normal . u moves by a Gaussian step with standard deviation s.

        E[(d + s z)_+^m] = s^m I_m(d / s), I_0 = N, I_1 = x N(x) + n(x), I_m = x I_(m-1) + (m - 1) I_(m-2).
        """
        std = jnp.reshape(std, (len(self.levels), -1))
        moves = std > 0.0
        distance = self._distance(u)
        x = distance / divisor(std)
        integrals = [normal_law.cdf(x), x * normal_law.cdf(x) + normal_law.density(x)]
        for m in range(2, POWERS + 1):
            integrals.append(x * integrals[-1] + (m - 1) * integrals[-2])
        still = larger(distance, 0.0)
        means = [jnp.where(moves, std**m * integrals[m], still**m) for m in range(1, POWERS + 1)]
        return jnp.concatenate(means)

    def _distance(self, u: Points) -> Float[Array, "planes paths"]:
        return self.normals @ u - self.levels[:, None]


def _plane(u: Points, gain: Paths, allowed, chosen) -> tuple[Float[Array, " dim"], Array]:
    inside = allowed & chosen
    share = inside.astype(gain.dtype)
    scale = jnp.sqrt(share @ gain**2 / larger(jnp.sum(share), 1.0))
    scale = jnp.where(scale > 0.0, scale, 1.0)
    closeness = jnp.exp(-0.5 * (gain / (_NEAR * scale)) ** 2)
    columns = jnp.concatenate([jnp.ones_like(u[:1]), u])
    offset, *slope = least_squares(columns, gain / scale, share * closeness)
    slope = jnp.stack(slope)
    steepness = jnp.sqrt(jnp.sum(slope**2))
    exercised = jnp.sum(inside & (gain > 0.0))
    exists = (exercised >= _FEWEST) & (jnp.sum(inside & (gain < 0.0)) >= _FEWEST)
    safe = jnp.where(exists & (steepness > 0.0), steepness, 1.0)
    level = jnp.where(exists & (steepness > 0.0), -offset / safe, _NOWHERE)
    first = jnp.zeros_like(slope).at[0].set(1.0)
    return jnp.where(level < _NOWHERE, slope / safe, first), level
