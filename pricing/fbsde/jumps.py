"""Jumps of the forward equation at the times of a Poisson process."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..fields import Number, positive
from ..sampling import normals, uniforms
from .path_shares import ALL_PATHS, PathShare

_MOST_MISSED = 1e-6  # largest probability of more jumps in a step than are simulated

State = Float[Array, " dim"]


class JumpNoise(NamedTuple):
    """The noise of the jumps in a step: their number, and normals for the maximum number."""

    count: Int[Array, "*shape"]
    marks: Float[Array, "*shape most dim"]


class Jumps(eqx.Module):
    """Jumps at the times of a Poisson process, with sizes determined by normals.

    They are applied after the diffusion of a step, which is exact if jump and diffusion commute, as for a
    lognormal asset with proportional jumps. The drift must contain the compensator: in Merton's model it is x
    (r - rate E[size(x, z) / x - 1]).

    Merton, J. Financial Economics 3 (1976).

    Attributes:
        rate: The mean number of jumps per year.
        size: The state after a jump, size(x, z), with z standard normals of shape [dim].
        most: Maximum number of jumps in a step.

    Raises:
        ValueError: `most` is below 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import Jumps
        >>> jumps = Jumps(0.5, lambda x, z: x * jnp.exp(-0.1 + 0.2 * z))
        >>> f"{jumps.chances(0.02)[0]:.5f}"
        '0.99005'
    """

    rate: Number = positive("rate")
    size: Callable  # pyright: ignore[reportGeneralTypeIssues]
    most: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        if self.most < 1:
            raise ValueError(f"most={self.most}: give 1 or more.")

    def chances(self, dt: Number) -> Float[Array, " counts"]:
        """Return the probabilities of 0, 1, ... `most` jumps in a step; the last includes larger numbers."""
        number = jnp.arange(self.most, dtype=self.rate.dtype)
        mean = self.rate * dt
        factorials = jax.lax.lgamma(number + 1.0)
        chance = jnp.exp(number * jnp.log(mean) - mean - factorials)
        return jnp.append(chance, jnp.maximum(1.0 - jnp.sum(chance), 0.0))

    def check(self, dt: Number) -> None:
        """Refuse a step in which more than `most` jumps are not rare.

        Raises:
            ValueError: The probability of more jumps is above 1e-6.
        """
        if isinstance(self.rate, Tracer) or isinstance(dt, Tracer):  # known only at run time
            return
        mean = float(self.rate) * float(dt)
        chance = np.exp(-mean) * np.cumprod(np.append(1.0, mean / np.arange(1, self.most + 1)))
        if 1.0 - chance.sum() > _MOST_MISSED:
            raise ValueError(
                f"rate={float(self.rate):g}: more than most={self.most} jumps in a step of {float(dt):g} years "
                "are not rare; give more steps, or a larger most."
            )

    def draw(
        self,
        key: PRNGKeyArray,
        dt: Number,
        shape: tuple[int, ...],
        dim: int,
        share: PathShare = ALL_PATHS,
    ) -> JumpNoise:
        """Return the noise of the jumps in many steps, for a share of the first axis."""
        counts, marks = jax.random.split(key)
        uniform = uniforms(counts, (1, *shape), self.rate.dtype, part=share.part)[0]
        below = jnp.cumsum(self.chances(dt))[:-1]
        count = jnp.searchsorted(below, uniform).astype(jnp.int32)
        draw = partial(normals, marks, dtype=self.rate.dtype)
        return JumpNoise(count, share.rows(draw, (*shape, self.most, dim)))

    def applied(self, x: State, noise: JumpNoise) -> State:
        """Return the state after the jumps of one step."""
        for number in range(self.most):
            x = jnp.where(number < noise.count, self.size(x, noise.marks[number]), x)
        return x
