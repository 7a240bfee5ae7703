"""What the backward schemes share: their paths, one step of them both ways, and least squares.

Inside these schemes values are flat, [contracts], [1] for one contract, and in units of the terminal value.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ..sampling import normals
from .descent import Descent, adam
from .networks import Architecture, Network, summed
from .paths import Spread, shared, simulate, survival
from .problem import Problem, Real, State
from .solver import AbstractSolver

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

    def at(
        self, date: Index, mesh: Mesh | None
    ) -> tuple[Float[Array, "paths dim"], Float[Array, " paths"]]:
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
    def draw(
        cls,
        problem: Problem,
        key: PRNGKeyArray,
        date: Index,
        x: Float[Array, "paths dim"],
        pairs: int,
    ):
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


# --- Linear parts, and changes of their coordinates ----------------------------------------------------


def quadratic(seen: Float[Array, "*batch dim"]) -> Float[Array, "*batch terms"]:
    """1, x and (x^2 - 1) / 2 of every coordinate."""
    one = jnp.ones_like(seen[..., :1])
    return jnp.concatenate([one, seen, 0.5 * (seen**2 - 1.0)], axis=-1)


def total(parameters: PyTree, quantities: Float[Array, " contracts"]) -> PyTree:
    """The parameters of the sum of quantity times contract: all outputs are linear in the last of them."""
    return jax.tree.map(
        lambda part: (
            part.total(quantities) if isinstance(part, Network) else summed(part, quantities)
        ),
        parameters,
        is_leaf=lambda part: isinstance(part, Network),
    )


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
        dim = self.scale.shape[0]
        level, slope, curve = self.apart(jnp.zeros((dim, terms.shape[1]), terms.dtype), terms[1:])
        return jnp.concatenate([terms[:1] + jnp.sum(level, axis=0)[None], slope, curve])

    def apart(
        self, level: Float[Array, "dim outputs"], others: Float[Array, "two_dim outputs"]
    ) -> tuple[Array, Array, Array]:
        """Likewise, with a level of its own for each coordinate."""
        r, m = self.scale[:, None], self.shift[:, None]
        slope, curve = jnp.split(others, 2)
        level = level + m * slope + 0.5 * curve * (m**2 + r**2 - 1.0)
        return level, r * (slope + m * curve), r**2 * curve

    def network(self, network: Network) -> Network:
        weight, bias = network.weights[0], network.biases[0]
        moved = self.scale[:, None] * weight, bias + self.shift @ weight
        return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), network, moved)


def least_squares(
    features: Float[Array, "rows terms"],
    weights: Float[Array, " rows"] | None = None,
    used: Float[Array, " terms"] | None = None,
) -> Callable[[Float[Array, "rows outputs"]], Float[Array, "terms outputs"]]:
    """From targets to coefficients with the least weighted squares; where features tell nothing, near 0.

    used: 1, or 0 for features that are not to tell anything.
    """
    weighted = features if weights is None else features * weights[:, None]
    gram = weighted.T @ features
    if used is not None:
        gram = gram * jnp.outer(used, used)
    limits = jnp.finfo(gram.dtype)
    ridge = 16.0 * limits.eps * jnp.max(jnp.diagonal(gram)) + limits.tiny  # no path may be alive
    one = jnp.eye(gram.shape[0], dtype=gram.dtype)
    half = jax.lax.linalg.triangular_solve(
        jax.lax.linalg.cholesky(gram + ridge * one), one, left_side=True, lower=True
    )  # of the inverse: a product, not two solves, for every target
    half = half if used is None else half * used[None]
    return lambda targets: half.T @ (half @ (weighted.T @ targets))


_kept = jax.lax.optimization_barrier  # computed once, not again in every loop that reads it


# --- Stages: dates, latest first, the first of them for longer -----------------------------------------


class AbstractStep(eqx.Module):
    """A date of a problem: how parameters are read there, and what they are to learn."""

    problem: Problem
    date: Index
    spread: Spread
    unit: Float[Array, " contracts"]

    @abc.abstractmethod
    def lesson(
        self, x: Array, weight: Array, pairs: Pairs, later: "AbstractStep", parameters: PyTree
    ) -> PyTree[Array]:
        """What is to be learned, path by path; later, parameters: of the networks a step later."""

    def task(self, parameters: PyTree, lesson: PyTree) -> PyTree[Array]:
        """What batches are drawn of: the lesson, and what of it does not change while the networks learn."""
        del parameters
        return lesson

    @abc.abstractmethod
    def loss(self, parameters: PyTree, task: PyTree) -> Float[Array, ""]:
        """Of a batch."""

    @abc.abstractmethod
    def linear_solver(self, like: PyTree, lesson: PyTree) -> Callable[[PyTree], PyTree]:
        """From parameters such as these to those whose linear parts miss the least, given the networks."""

    def at(self, date: Index) -> "AbstractStep":
        return type(self)(self.problem, date, self.spread, self.unit)

    def seen(self, x: State) -> State:
        return self.spread.standard(self.date, x)

    @property
    def std(self) -> Float[Array, "1 dim"]:
        return self.spread.std[self.date][None]

    @property
    def time(self) -> Real:
        return self.problem.times[self.date]

    def used(self, *terms: int) -> Float[Array, " terms"]:
        """Numbers of features: 1, for the last of them, curves, 0 today: one state tells its level alone."""
        flat = jnp.ones(sum(terms[:-1]), self.unit.dtype)
        curved = (self.date > 0).astype(flat.dtype)
        return jnp.concatenate([flat, jnp.full(terms[-1], curved)])


class Progress(NamedTuple):
    """Between two stages."""

    pool: Pool
    parameters: PyTree[Array]  # of the date after


_setting = partial(eqx.field, static=True, kw_only=True)


class AbstractBackward(AbstractSolver):
    """Regressions on networks, date by date.

    num_paths: kept at every date, num_paths * dim numbers each; num_pairs: steps from each path, both ways.
    num_iterations: of a date; the first has `first_stages` times as many. optimizer: any of optax, begun
    anew at every stage; None: Adam from `learning_rate` on the first date, from `later_learning_rate` on all
    others, falling along a cosine.
    """

    num_iterations: int = _setting(default=100)
    first_stages: int = _setting(default=5)
    batch_size: int = _setting(default=256)
    num_paths: int = _setting(default=16384)
    num_pairs: int = _setting(default=1)
    learning_rate: float = _setting(default=1e-2)
    later_learning_rate: float = _setting(default=3e-3)
    architecture: Architecture = eqx.field(
        default=Architecture(activation=jax.nn.tanh), kw_only=True
    )
    optimizer: optax.GradientTransformation | None = _setting(default=None)
    mesh: Mesh | None = _setting(default=None)

    def __check_init__(self):
        for name in ("num_iterations", "first_stages", "batch_size", "num_paths", "num_pairs"):
            if (number := getattr(self, name)) < 1:
                raise ValueError(f"{name}={number}: give 1 or more.")
        for name in ("learning_rate", "later_learning_rate"):
            if not (rate := getattr(self, name)) > 0.0:
                raise ValueError(f"{name}={rate}: give a number above 0.")

    @abc.abstractmethod
    def parameters(self, problem: Problem, contracts: int, key: PRNGKeyArray) -> PyTree[Array]:
        """Before the first date."""

    @abc.abstractmethod
    def step(self, problem: Problem, date: Index, pool: Pool) -> AbstractStep: ...

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps - 1 + self.first_stages

    def start(self, problem: Problem, key: PRNGKeyArray) -> Progress:
        drawn, seed = jax.random.split(key)
        pool = Pool.draw(problem, drawn, self.num_paths, self.mesh)
        return Progress(pool, self.parameters(problem, pool.unit.size, seed))

    def stage(self, problem: Problem, state: Progress, index: Array, key: PRNGKeyArray):
        pool, date = state.pool, self._date(problem, index)
        before = jnp.minimum(date + 1, problem.num_steps - 1)
        drawn, batches = jax.random.split(key)
        x, weight = pool.at(date, self.mesh)
        pairs = _kept(Pairs.draw(problem, drawn, date, x, self.num_pairs))
        step = self.step(problem, date, pool)
        lesson = _kept(step.lesson(x, weight, pairs, step.at(before), state.parameters))
        start = state.parameters.moved(Move.between(pool.spread, before, date))
        solved = step.linear_solver(start, lesson)
        start = solved(start)
        task = step.task(start, lesson)

        def loss(networks, key: PRNGKeyArray):
            rows = jax.random.randint(key, (self.batch_size,), 0, self.num_paths)
            batch = jax.tree.map(lambda leaf: shared(leaf[rows], self.mesh), task)
            return step.loss(start.with_networks(networks), batch)

        optimizer = self._optimizer(index, problem.x0.dtype)
        descent = Descent.start(optimizer, start.networks)
        descent, losses = descent.advanced(optimizer, loss, batches, self.num_iterations)
        kept = lambda new, old: jnp.where(date > 0, new, old)  # noqa: E731, today there is one state only
        networks = jax.tree.map(kept, descent.parameters, start.networks)
        parameters = solved(start.with_networks(networks))
        return Progress(pool, parameters), parameters, losses

    def by_date(self, outputs: PyTree[Array]) -> PyTree[Array]:
        """The parameters of each date, today first."""
        return jax.tree.map(lambda rows: rows[self.first_stages - 1 :][::-1], outputs)

    def where(self, problem: Problem, stage: int) -> str:
        return f"date {int(self._date(problem, jnp.asarray(stage)))}"

    def metrics(self, state: Progress) -> dict[str, Array]:
        return {"level": state.parameters.y[0] * state.pool.unit}

    def _date(self, problem: Problem, stage: Index) -> Index:
        return problem.num_steps - 1 - jnp.maximum(stage - (self.first_stages - 1), 0)

    def _optimizer(self, stage: Index, dtype) -> optax.GradientTransformation:
        if self.optimizer is not None:
            return self.optimizer
        slower = self.later_learning_rate / self.learning_rate
        share = jnp.where(stage < self.first_stages, 1.0, slower).astype(dtype)
        return optax.chain(adam(self.learning_rate, self.num_iterations), optax.scale(share))
