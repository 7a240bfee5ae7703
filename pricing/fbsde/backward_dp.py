"""Deep backward dynamic programming: one regression a date, latest first, on networks."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from .approximation import AbstractApproximation, Date
from .backward import (
    Index,
    Move,
    Pairs,
    Pool,
    date_of,
    driver,
    least_squares,
    optimizer_of,
    over_pairs,
    quadratic,
    worth,
)
from .descent import Descent
from .networks import Architecture, Network
from .paths import Spread
from .problem import Problem, Real, State
from .solver import AbstractSolver


_ROUNDS = 3  # each leaves of what f_n was wrong by a share of order dt


class _Parameters(NamedTuple):
    """Of one date, in units of the terminal value and in standardized x.

    Y = `y` on (1, x, x^2) + network; Z = `z` on (1, x), coordinate by coordinate, + network: None where Z is
    the derivative of Y.
    """

    y: Float[Array, "terms contracts"]
    z: Float[Array, "two_dim contracts"] | None
    y_network: Network
    z_network: Network | None

    @property
    def networks(self) -> tuple[Network, Network | None]:
        return self.y_network, self.z_network

    def with_networks(self, networks: tuple[Network, Network | None]) -> "_Parameters":
        return self._replace(y_network=networks[0], z_network=networks[1])

    def value(self, seen: State) -> Float[Array, " contracts"]:
        return quadratic(seen) @ self.y + self.y_network(seen)

    def slopes(self, seen: State) -> Float[Array, "contracts dim"]:
        """Z, where it has its own network."""
        dim = seen.shape[0]
        level, slope = self.z[:dim].T, self.z[dim:].T
        return level + slope * seen[None] + self.z_network(seen).reshape(-1, dim)

    def moved(self, move: Move) -> "_Parameters":
        """The same functions of x, in the standardized x of another date."""
        y, y_network = move.quadratic(self.y), move.network(self.y_network)
        if self.z is None:
            return _Parameters(y, None, y_network, None)
        dim = move.scale.shape[0]
        level, slope = self.z[:dim], self.z[dim:]
        z = [level + move.shift[:, None] * slope, move.scale[:, None] * slope]
        return _Parameters(y, jnp.concatenate(z), y_network, move.network(self.z_network))


class _State(NamedTuple):
    pool: Pool
    parameters: _Parameters  # of the date after


class _Lesson(NamedTuple):
    """What the networks of a date are to learn, in units of the terminal value, path by path.

    Of Y + f dt / 2 a step later: even, the mean over pairs; odd, half the difference over each.
    """

    x: Float[Array, "paths dim"]
    weight: Float[Array, " paths"]
    increments: Float[Array, "paths pairs dim"]
    even: Float[Array, "paths contracts"]
    odd: Float[Array, "paths pairs contracts"]


class BackwardDP(AbstractSolver):
    """u and its gradient at every date, by a regression at each, backward from the terminal value.

    Variant 1 has networks for Y_n and Z_n; in variant 2, Z_n = s^T grad Y_n. Over a step along dW and along -dW

        Y_n = even part of Y_{n+1} + f_{n+1} dt / 2, and f_n dt / 2;
        Z_n dW = odd part of Y_{n+1} + f_{n+1} dt / 2, and (grad f_n) s dW dt / 2,

    in the mean of squares: the loss of the paper, of (Y_{n+1} + f dt - Y_n - Z_n dW)^2, summed over each pair,
    with the driver at both ends for Y and for Z. Y is affine and quadratic in each coordinate besides its network, Z affine: those
    parts are solved for by least squares before and after the network's descent, which starts from the network
    of the date after.

    Early exercise: the continuation value is the network, the greater of it and the exercise value is what the
    date before learns (RDBDP). Stopped paths are worth the stopped value. Today the states are all x0: value
    and gradient are learned there alone, and continued by the functions of the date after.

    Huré, Pham, Warin, Math. Comp. 89 (2020): (3.4) DBDP1, (3.6) DBDP2, (3.9) RDBDP.

    num_paths: kept at every date, num_paths * dim numbers each; num_pairs: steps from each path, both ways.
    num_iterations: of a date; the first has `first_stages` times as many. optimizer: any of optax, begun
    anew at every stage; None: Adam from `learning_rate` on the first date, from `later_learning_rate` on all
    others, falling along a cosine.
    """

    variant: int = eqx.field(static=True, default=1)
    num_iterations: int = eqx.field(static=True, default=100)
    first_stages: int = eqx.field(static=True, default=5)
    batch_size: int = eqx.field(static=True, default=256)
    num_paths: int = eqx.field(static=True, default=16384)
    num_pairs: int = eqx.field(static=True, default=1)
    learning_rate: float = eqx.field(static=True, default=1e-2)
    later_learning_rate: float = eqx.field(static=True, default=3e-3)
    architecture: Architecture = Architecture(activation=jax.nn.tanh)
    optimizer: optax.GradientTransformation | None = eqx.field(static=True, default=None)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.variant not in (1, 2):
            raise ValueError(
                f"variant={self.variant}: give 1 (networks for Y and Z) or 2 (Z from Y's gradient)."
            )
        for name in ("num_iterations", "first_stages", "batch_size", "num_paths", "num_pairs"):
            if (number := getattr(self, name)) < 1:
                raise ValueError(f"{name}={number}: give 1 or more.")

    def lacks(self, problem: Problem) -> str | None:
        del problem
        return None

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps - 1 + self.first_stages

    def start(self, problem: Problem, key: PRNGKeyArray) -> _State:
        drawn, *seeds = jax.random.split(key, 3)
        pool = Pool.draw(problem, drawn, self.num_paths, self.mesh)
        dim, contracts, dtype = problem.dim, pool.unit.size, problem.x0.dtype
        y_network, z_network = (
            self.architecture(seed, dim, outputs, dim, dtype)
            for seed, outputs in zip(seeds, (contracts, contracts * dim), strict=True)
        )
        y, z = jnp.zeros((1 + 2 * dim, contracts), dtype), jnp.zeros((2 * dim, contracts), dtype)
        own = (z, y_network, z_network) if self.variant == 1 else (None, y_network, None)
        return _State(pool, _Parameters(y, *own))

    def stage(self, problem: Problem, state: _State, index: Array, key: PRNGKeyArray):
        date = date_of(problem, index, self.first_stages)
        before = jnp.minimum(date + 1, problem.num_steps - 1)
        pairs, batches = jax.random.split(key)
        pool = state.pool
        step = _Step(problem, date, pool.spread, pool.unit)
        later = _Step(problem, before, pool.spread, pool.unit)
        lesson = self._lesson(step, pool, partial(later.y_and_z, state.parameters), pairs)
        start = state.parameters.moved(Move.between(pool.spread, before, date))
        start = step.solved(start, lesson)

        def loss(networks, key: PRNGKeyArray):
            rows = jax.random.randint(key, (self.batch_size,), 0, self.num_paths)
            batch = jax.tree.map(lambda leaf: leaf[rows], lesson)
            return step.loss(start.with_networks(networks), batch)

        optimizer = self._optimizer(index, problem.x0.dtype)
        descent = Descent.start(optimizer, start.networks)
        descent, losses = descent.advanced(optimizer, loss, batches, self.num_iterations)
        kept = lambda new, old: jnp.where(date > 0, new, old)  # noqa: E731, today there is one state only
        networks = jax.tree.map(kept, descent.parameters, start.networks)
        parameters = step.solved(start.with_networks(networks), lesson)
        return _State(pool, parameters), parameters, losses

    def approximation(self, problem: Problem, state: _State, outputs: _Parameters) -> "ByDates":
        last = jax.tree.map(lambda rows: rows[self.first_stages - 1 :], outputs)
        return ByDates(problem, last, state.pool.spread, state.pool.unit)

    def where(self, problem: Problem, stage: int) -> str:
        return f"date {int(date_of(problem, jnp.asarray(stage), self.first_stages))}"

    def metrics(self, state: _State) -> dict[str, Array]:
        return {"level": state.parameters.y[0] * state.pool.unit}

    def _optimizer(self, stage: Index, dtype) -> optax.GradientTransformation:
        if self.optimizer is not None:
            return self.optimizer
        rates = self.learning_rate, self.later_learning_rate
        return optimizer_of(stage, self.first_stages, rates, self.num_iterations, dtype)

    def _lesson(self, step: "_Step", pool: Pool, continuation: Callable, key: PRNGKeyArray) -> _Lesson:
        """continuation: Y and Z of the networks of the date after."""
        problem, after = step.problem, step.date + 1
        x, weight = pool.at(step.date, self.mesh)
        pairs = Pairs.draw(problem, key, step.date, x, self.num_pairs)

        def at_end(x: State):
            y, z = worth(problem, after, x, continuation)
            return y + 0.5 * driver(problem, problem.times[after], x, y, z) * problem.dt

        found = over_pairs(at_end)(pairs.after)
        even = jnp.mean(found, axis=(0, 2)) / pool.unit[None]
        odd = 0.5 * (found[0] - found[1]) / pool.unit[None, None]
        return _Lesson(x, weight, pairs.increments, even, odd)


class _Step(NamedTuple):
    """A date of a problem, and how its parameters are read there."""

    problem: Problem
    date: Index
    spread: Spread
    unit: Float[Array, " contracts"]

    def y_and_z(self, parameters: _Parameters, x: State):
        """Flat: [contracts] and [contracts, dim]."""
        y = parameters.value(self._seen(x)) * self.unit
        if parameters.z is None:
            return y, self.problem.z_of(self._time, x, self.gradient(parameters, x))
        z_unit = self.unit / jnp.sqrt(self.problem.maturity)
        return y, parameters.slopes(self._seen(x)) * z_unit[:, None]

    def gradient(self, parameters: _Parameters, x: State) -> Float[Array, "contracts dim"]:
        if parameters.z is None:
            slope = jax.jacrev(parameters.value)(self._seen(x))
            return slope * self.unit[:, None] / self.spread.std[self.date][None]
        return self.problem.gradient_of(self._time, x, self.y_and_z(parameters, x)[1])

    def loss(self, parameters: _Parameters, lesson: _Lesson) -> Float[Array, ""]:
        even, odd = jax.vmap(self._missed, (None, 0))(parameters, lesson)
        weight = lesson.weight / jnp.maximum(jnp.sum(lesson.weight), 1.0)
        squares = jnp.mean(even**2, axis=1) + jnp.mean(odd**2, axis=(1, 2))
        return jnp.sum(weight * squares)

    def solved(self, parameters: _Parameters, lesson: _Lesson) -> _Parameters:
        """The linear parts that miss the least, given the networks: f_n follows them in a few rounds."""
        seen = jax.vmap(self._seen)(lesson.x)
        curved = (self.date > 0).astype(seen.dtype)  # of one state, a curve cannot be told from the level
        in_y = quadratic(seen).at[:, 1 + self.problem.dim :].multiply(curved)
        weights = jnp.repeat(lesson.weight, lesson.odd.shape[1])
        if parameters.z is None:
            in_z = jax.vmap(self._turned)(lesson.x, lesson.increments).reshape(weights.size, -1)
            in_y, weights = jnp.concatenate([in_y, in_z]), jnp.concatenate([lesson.weight, weights])
        else:
            dw = lesson.increments / jnp.sqrt(self.problem.dt)
            in_z = jnp.concatenate([dw, seen[:, None] * dw], axis=-1).reshape(weights.size, -1)

        def better(_, parameters: _Parameters):
            even, odd = jax.vmap(self._missed, (None, 0))(parameters, lesson)
            odd = odd.reshape(-1, odd.shape[-1])
            if parameters.z is None:
                change = least_squares(in_y, jnp.concatenate([even, odd]), weights)
                return parameters._replace(y=parameters.y + change)
            y = parameters.y + least_squares(in_y, even, lesson.weight)
            return parameters._replace(y=y, z=parameters.z + least_squares(in_z, odd, weights))

        return jax.lax.fori_loop(0, _ROUNDS, better, parameters)

    def _missed(self, parameters: _Parameters, lesson: _Lesson):
        """Of one path: the mean [contracts], and the slope [pairs, contracts] in units of Z."""
        problem, x, dw = self.problem, lesson.x, lesson.increments
        turned = jax.vmap(problem.diffused, (None, None, 0))(self._time, x, dw)
        gain, gain_turned = self._half_driver(jax.lax.stop_gradient(parameters), x, turned)
        even = lesson.even + gain - parameters.value(self._seen(x))
        odd = lesson.odd + gain_turned
        small = jnp.sqrt(problem.dt / problem.maturity)
        if parameters.z is not None:
            slopes = parameters.slopes(self._seen(x)) / jnp.sqrt(problem.maturity)
            return even, (odd - dw @ slopes.T) / small
        along = lambda v: jax.jvp(parameters.value, (self._seen(x),), (v,))[1]  # noqa: E731
        return even, (odd - jax.vmap(along)(turned / self._std)) / small

    def _half_driver(self, parameters: _Parameters, x: State, turned: Float[Array, "pairs dim"]):
        """f dt / 2 at the step's start [contracts], and its change along s dw [pairs, contracts]."""

        def gain(x: State):
            y, z = self.y_and_z(parameters, x)
            return 0.5 * driver(self.problem, self._time, x, y, z) * self.problem.dt / self.unit

        along = lambda v: jax.jvp(gain, (x,), (v,))  # noqa: E731
        return jax.vmap(along, out_axes=(None, 0))(turned)

    def _turned(self, x: State, dw: Float[Array, "pairs dim"]) -> Float[Array, "pairs terms"]:
        """What `quadratic` changes by along s dw, as the slopes of `_missed` are scaled."""
        turned = jax.vmap(self.problem.diffused, (None, None, 0))(self._time, x, dw)
        along = lambda v: jax.jvp(quadratic, (self._seen(x),), (v,))[1]  # noqa: E731
        small = jnp.sqrt(self.problem.dt / self.problem.maturity)
        return jax.vmap(along)(turned / self._std) / small

    def _seen(self, x: State) -> State:
        return self.spread.standard(self.date, x)

    @property
    def _std(self) -> Float[Array, "1 dim"]:
        return self.spread.std[self.date][None]

    @property
    def _time(self) -> Real:
        return self.problem.times[self.date]


class ByDates(AbstractApproximation):
    """u from the networks of each date; the rows of `parameters` are those of the last date first.

    At date 0 it is learned at x0 alone, where the Hessian is that of the next two dates, continued in time.
    """

    problem: Problem
    parameters: _Parameters
    spread: Spread
    unit: Float[Array, " contracts"]

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        step, parameters = self._at(date)
        return step.y_and_z(parameters, x)[0].reshape(self.problem.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        step, parameters = self._at(date)
        shape = *self.problem.contracts, self.problem.dim
        return step.gradient(parameters, x).reshape(shape)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        second = jax.jacfwd(self.gradient, argnums=1)
        if self.problem.num_steps < 3:
            return second(date, x)
        today = lambda: 2.0 * second(1, x) - second(2, x)  # noqa: E731
        return jax.lax.cond(jnp.asarray(date) == 0, today, lambda: second(date, x))

    def _at(self, date: Date) -> tuple[_Step, _Parameters]:
        row = self.problem.num_steps - 1 - jnp.asarray(date)
        parameters = jax.tree.map(lambda rows: rows[row], self.parameters)
        return _Step(self.problem, jnp.asarray(date), self.spread, self.unit), parameters
