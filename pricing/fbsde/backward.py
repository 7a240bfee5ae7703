"""What the backward schemes share: their paths, one step of them both ways, and least squares.

Inside these schemes values are flat, [contracts], [1] for one contract, and in units of the terminal value.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..sampling import normals
from .descent import adam
from .networks import Network
from .paths import Spread, shared, simulate, survival
from .problem import Problem, Real, State

Index = Int[Array, ""]


class Pool(NamedTuple):
    """Paths that every date draws from.

    They are drawn once and kept, [dates, paths, dim] numbers: fresh paths at every iteration would cost the
    steps from today each time, and what a path is worth a step later, which is computed once for a date, would
    be computed for every batch. Increments are not kept: each date draws its own.
    """

    states: Float[Array, "dates paths dim"]
    alive: Bool[Array, "dates paths"]
    spread: Spread
    unit: Float[Array, " contracts"]  # the deviation of what is paid at the end

    @classmethod
    def draw(cls, problem: Problem, key: PRNGKeyArray, num_paths: int, mesh: Mesh | None) -> "Pool":
        states = simulate(problem, key, num_paths, mesh=mesh).states
        paid = jax.vmap(problem.terminal)(states[-1]).reshape(num_paths, -1)
        unit = jnp.std(paid, axis=0)
        unit = jnp.where(unit > 0.0, unit, 1.0)
        return cls(states, survival(problem, states), Spread.of(states), unit)

    def at(self, date: Index, mesh: Mesh | None) -> tuple[Float[Array, "paths dim"], Float[Array, " paths"]]:
        """States at a date, and weights: 1 for a path that is alive, else 0."""
        x = shared(self.states[date], mesh)
        return x, self.alive[date].astype(x.dtype)


class Pairs(NamedTuple):
    """A step from each of many states, along increments and along their opposites.

    Half the sum over a pair tells of the mean, half the difference of the slope: neither is noise to the other.
    """

    increments: Float[Array, "paths pairs dim"]
    after: Float[Array, "2 paths pairs dim"]

    @classmethod
    def draw(cls, problem: Problem, key: PRNGKeyArray, date: Index, x: Float[Array, "paths dim"], pairs: int):
        num_paths, dim = x.shape
        noise = normals(key, (num_paths, pairs * dim), x.dtype).reshape(num_paths, pairs, dim)
        dw = jnp.sqrt(problem.dt) * noise
        advance = jax.vmap(jax.vmap(problem.advance, (None, None, 0)), (None, 0, 0))
        t = problem.times[date]
        return cls(dw, jnp.stack([advance(t, x, dw), advance(t, x, -dw)]))


def over_pairs(function: Callable) -> Callable:
    """A function of one state, of arrays [2, paths, pairs, ...]."""
    return jax.vmap(jax.vmap(jax.vmap(function)))


def worth(
    problem: Problem, date: Index, x: State, continuation: Callable[[State], tuple[Array, Array]]
) -> tuple[Float[Array, " contracts"], Float[Array, "contracts dim"]]:
    """Y and Z at the end of a step, where it may be exercised, stopped, or over.

    continuation: Y and Z of the networks, which hold it for more than it is worth at an exercise.
    """
    t = problem.times[date]

    def flat(y: Array, gradient: Array):
        return y.reshape(-1), problem.z_of(t, x, gradient.reshape(-1, problem.dim))

    over = lambda: flat(problem.terminal(x), problem.terminal_gradient(x))  # noqa: E731
    y, z = jax.lax.cond(date == problem.num_steps, over, lambda: continuation(x))
    if problem.exercise_value is not None:
        taken, z_taken = flat(*_with_gradient(problem.exercise_value, t, x))
        better = jnp.asarray(problem.is_exercise_date)[date] & (taken > y)
        y, z = jnp.where(better, taken, y), jnp.where(better[:, None], z_taken, z)
    if problem.is_alive is not None:
        stopped = jnp.asarray(problem.is_stopping_date)[date] & ~problem.is_alive(t, x)
        rest, z_rest = jnp.zeros_like(y), jnp.zeros_like(z)
        if problem.stopped_value is not None:
            rest, z_rest = flat(*_with_gradient(problem.stopped_value, t, x))
        y, z = jnp.where(stopped, rest, y), jnp.where(stopped, z_rest, z)
    return y, z


def _with_gradient(function: Callable, t: Real, x: State) -> tuple[Array, Array]:
    return function(t, x), jax.jacrev(function, argnums=1)(t, x)


def driver(problem: Problem, t: Real, x: State, y: Array, z: Array) -> Float[Array, " contracts"]:
    """f of flat values."""
    shape = problem.contracts
    return problem.driver(t, x, y.reshape(shape), z.reshape(*shape, problem.dim)).reshape(-1)


# --- Linear parts, and changes of their coordinates ----------------------------------------------------


def quadratic(seen: Float[Array, "*batch dim"]) -> Float[Array, "*batch terms"]:
    """1, x and (x^2 - 1) / 2 of every coordinate."""
    one = jnp.ones_like(seen[..., :1])
    return jnp.concatenate([one, seen, 0.5 * (seen**2 - 1.0)], axis=-1)


class Move(NamedTuple):
    """From the standard coordinates of one date to those of another: old = scale * new + shift."""

    scale: Float[Array, " dim"]
    shift: Float[Array, " dim"]

    @classmethod
    def between(cls, spread: Spread, old: Index, new: Index) -> "Move":
        std = spread.std[old]
        return cls(spread.std[new] / std, (spread.mean[new] - spread.mean[old]) / std)

    def quadratic(self, terms: Float[Array, "terms outputs"]) -> Float[Array, "terms outputs"]:
        """Coefficients of `quadratic`, so that the function of x stays what it was."""
        r, m = self.scale[:, None], self.shift[:, None]
        dim = r.shape[0]
        level, slope, curve = terms[:1], terms[1 : 1 + dim], terms[1 + dim :]
        level = level + jnp.sum(m * slope + 0.5 * curve * (m**2 + r**2 - 1.0), axis=0)[None]
        return jnp.concatenate([level, r * (slope + m * curve), r**2 * curve])

    def affine(self, terms: Float[Array, "terms outputs"]) -> Float[Array, "terms outputs"]:
        """Coefficients of 1 and x."""
        level = terms[:1] + (self.shift @ terms[1:])[None]
        return jnp.concatenate([level, self.scale[:, None] * terms[1:]])

    def network(self, network: Network) -> Network:
        weight, bias = network.weights[0], network.biases[0]
        moved = self.scale[:, None] * weight, bias + self.shift @ weight
        return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), network, moved)


def least_squares(
    features: Float[Array, "rows terms"],
    targets: Float[Array, "rows outputs"],
    weights: Float[Array, " rows"],
) -> Float[Array, "terms outputs"]:
    """Coefficients with the least weighted squares; where features do not tell them, near 0."""
    weighted = features * weights[:, None]
    gram, right = weighted.T @ features, weighted.T @ targets
    ridge = 16.0 * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(gram))
    gram = gram + ridge * jnp.eye(gram.shape[0], dtype=gram.dtype)
    return jax.scipy.linalg.solve(gram, right, assume_a="pos")


# --- Stages: dates, latest first, the first of them for longer -----------------------------------------


def date_of(problem: Problem, stage: Index, first_stages: int) -> Index:
    """The date that a stage is at: the first date has `first_stages`, every other has one."""
    return problem.num_steps - 1 - jnp.maximum(stage - (first_stages - 1), 0)


def optimizer_of(
    stage: Index, first_stages: int, rates: tuple[float, float], num_iterations: int, dtype
) -> optax.GradientTransformation:
    """Adam at the first of `rates` on the first date, at the second on all others."""
    share = jnp.where(stage < first_stages, 1.0, rates[1] / rates[0]).astype(dtype)
    return optax.chain(adam(rates[0], num_iterations), optax.scale(share))
