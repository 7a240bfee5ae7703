"""Paths of the forward equation, and how their states are spread."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxtape import AbstractSchedule, scan

from ..sampling import normals, uniforms
from .problem import Problem


class Paths(NamedTuple):
    """Increments lead from each state to the next: dates - 1 of them."""

    states: Float[Array, "dates paths dim"]
    increments: Float[Array, "steps paths dim"]


def simulate(
    problem: Problem,
    key: PRNGKeyArray,
    num_paths: int,
    *,
    at_x0: bool = True,
    scatter: float = 0.0,
    mesh: Mesh | None = None,
    schedule: AbstractSchedule | None = None,
) -> Paths:
    """Independent paths. mesh: devices that share them (axis "paths"); what is drawn is the same.

    at_x0: or else paths begin where the problem's `start` has them. scatter: they start where the equation, as
    it is today, would take them from there in this share of the maturity; from x0, every coordinate as if on a
    path of its own, so that no two are correlated and a regression tells one's slope from another's.
    """
    shape = problem.num_steps + 1, num_paths, problem.dim
    noise = shared(normals(key, shape, problem.x0.dtype), mesh, axis=1)
    increments = jnp.sqrt(problem.dt) * noise[1:]
    start = jnp.broadcast_to(problem.x0, shape[1:])
    own_start = None if at_x0 else problem.start
    if own_start is not None:
        rest = uniforms(
            key, (1, *shape[1:]), problem.x0.dtype, first_row=shape[0]
        )  # after the noise
        start = shared(jax.vmap(own_start)(rest[0]), mesh)
    if scatter > 0.0:
        before = scatter * problem.maturity
        today = lambda x, dw: problem.advance(problem.times[0], x, dw, before)  # noqa: E731
        start = jax.vmap(today)(start, jnp.sqrt(before) * noise[0])
        start = _shifted(start) if own_start is None else start

    def onward(x, of_step):
        t, dw = of_step
        x = jax.vmap(problem.advance, (None, 0, 0))(t, x, dw)
        return x, x

    _, later = scan(onward, start, (problem.times[:-1], increments), schedule=schedule)
    return Paths(jnp.concatenate([start[None], later]), increments)


def _shifted(states: Float[Array, "paths dim"]) -> Float[Array, "paths dim"]:
    """Coordinate i of a path is that of another path, i / dim of all of them away."""
    paths, dim = states.shape
    return jnp.stack([jnp.roll(states[:, i], i * paths // dim) for i in range(dim)], axis=1)


def shared(array: Array, mesh: Mesh | None, axis: int = 0) -> Array:
    """The array, its axis of paths over the devices of the mesh."""
    if mesh is None:
        return array
    spec = PartitionSpec(*(None,) * axis, "paths")
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, spec))


def survival(
    problem: Problem, states: Float[Array, "dates paths dim"]
) -> Bool[Array, "dates paths"]:
    """Whether a path has not been stopped at a date or before."""
    if problem.is_alive is None:
        return jnp.ones(states.shape[:2], bool)
    at_dates = jax.vmap(jax.vmap(problem.is_alive, (None, 0)))(problem.times, states)
    lives = at_dates | ~problem.is_stopping_date[:, None]
    return jnp.cumprod(lives, axis=0, dtype=jnp.int32).astype(bool)


class Spread(NamedTuple):
    """Mean and standard deviation of the states at each date, of x0 those of the first step: positive."""

    mean: Float[Array, "dates dim"]
    std: Float[Array, "dates dim"]

    @classmethod
    def of(cls, states: Float[Array, "dates paths dim"]) -> "Spread":
        std = jnp.std(states, axis=1)
        std = std.at[0].set(std[1])
        return cls(jnp.mean(states, axis=1), jnp.where(std > 0.0, std, 1.0))

    def standard(self, date, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """x of one date (an index, or one for each entry of the first axis), as multiples of its deviation."""
        return (x - self.mean[date]) / self.std[date]
