"""Deep backward dynamic programming: one regression a date, latest first, on networks."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .approximation import AbstractApproximation, Date
from .backward import (
    AbstractBackward,
    AbstractStep,
    Index,
    Move,
    Pairs,
    Pool,
    Progress,
    least_squares,
    over_pairs,
    quadratic,
    total,
    worth,
)
from .networks import Network
from .paths import Spread
from .problem import Problem, State
from .solver import ONE_START

_ROUNDS = 3  # each leaves of what f_n was wrong by a share of order dt


class _Parameters(NamedTuple):
    """Of one date, in units of the terminal value and in standardized x.

    Y = `y` on (1, x, x^2) + network; Z = `z` on the same, coordinate by coordinate, + network: None where Z is
    the derivative of Y.
    """

    y: Float[Array, "terms contracts"]
    z: Float[Array, "three_dim contracts"] | None
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
        assert self.z is not None and self.z_network is not None
        dim = seen.shape[0]
        terms = self.z.T.reshape(-1, 3, dim)
        linear = jnp.sum(terms * jnp.stack(_each(seen))[None], axis=1)
        return linear + self.z_network(seen).reshape(-1, dim)

    def moved(self, move: Move) -> "_Parameters":
        """The same functions of x, in the standardized x of another date."""
        y, y_network = move.quadratic(self.y), move.network(self.y_network)
        if self.z is None or self.z_network is None:
            return _Parameters(y, None, y_network, None)
        dim = move.scale.shape[0]
        z = jnp.concatenate(move.apart(self.z[:dim], self.z[dim:]))
        return _Parameters(y, z, y_network, move.network(self.z_network))


def _each(seen: Float[Array, "*batch dim"]) -> tuple[Array, Array, Array]:
    """1, x and (x^2 - 1) / 2, of every coordinate apart."""
    return jnp.ones_like(seen), seen, 0.5 * (seen**2 - 1.0)


class _Lesson(NamedTuple):
    """What the networks of a date are to learn, in units of the terminal value, path by path.

    Of Y + f dt / 2 a step later: even, the mean over pairs; odd, half the difference over each.
    """

    x: Float[Array, "paths dim"]
    weight: Float[Array, " paths"]
    increments: Float[Array, "paths pairs dim"]
    even: Float[Array, "paths contracts"]
    odd: Float[Array, "paths pairs contracts"]


class BackwardDP(AbstractBackward):
    """u and its gradient at every date, by a regression at each, backward from the terminal value.

    Variant 1 has networks for Y_n and Z_n; in variant 2, Z_n = s^T grad Y_n. Over a step along dW and along -dW

        Y_n = even part of Y_{n+1} + f_{n+1} dt / 2, and f_n dt / 2;
        Z_n dW = odd part of Y_{n+1} + f_{n+1} dt / 2, and (grad f_n) s dW dt / 2,

    in the mean of squares: the loss of the paper, of (Y_{n+1} + f dt - Y_n - Z_n dW)^2, summed over each pair,
    with the driver at both ends for Y and for Z. Besides their networks Y and Z are affine and quadratic in
    each coordinate: those parts are solved for by least squares before and after the networks' descent, which
    starts from the networks of the date after.

    Early exercise: the continuation value is the network, the greater of it and the exercise value is what the
    date before learns (RDBDP). Stopped paths are worth the stopped value. Today the states are all x0: value
    and gradient are learned there alone, and continued by the functions of the date after.

    Huré, Pham, Warin, Math. Comp. 89 (2020): DBDP1, DBDP2, RDBDP.

    Settings: see `AbstractBackward`.
    """

    variant: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.variant not in (1, 2):
            raise ValueError(
                f"variant={self.variant}: give 1 (networks for Y and Z) or 2 (Z from Y's gradient)."
            )

    def lacks(self, problem: Problem) -> str | None:
        return None if problem.start is None else ONE_START

    def parameters(self, problem: Problem, contracts: int, key: PRNGKeyArray) -> _Parameters:
        dim, dtype = problem.dim, problem.x0.dtype
        y_seed, z_seed = jax.random.split(key)
        y = jnp.zeros((1 + 2 * dim, contracts), dtype)
        y_network = self.architecture(y_seed, dim, contracts, dim, dtype)
        if self.variant == 2:
            return _Parameters(y, None, y_network, None)
        z_network = self.architecture(z_seed, dim, contracts * dim, dim, dtype)
        return _Parameters(y, jnp.zeros((3 * dim, contracts), dtype), y_network, z_network)

    def step(self, problem: Problem, date: Index, pool: Pool) -> "_Step":
        return _Step(problem, date, pool.spread, pool.unit)

    def approximation(self, problem: Problem, state: Progress, outputs: _Parameters) -> "ByDates":
        pool = state.pool
        return ByDates(problem, self.by_date(outputs), pool.spread, pool.unit, problem.contracts)


class _Step(AbstractStep):
    """Parameters are read path by path."""

    def lesson(self, x, weight, pairs: Pairs, later: "_Step", parameters: _Parameters) -> _Lesson:
        problem = self.problem
        after = self.date + 1
        continuation = partial(later.y_and_z, parameters)

        def at_end(x: State):
            y, z = worth(problem, after, x, continuation)
            return y + 0.5 * problem.flat_driver(problem.times[after], x, y, z) * problem.dt

        found = over_pairs(at_end)(pairs.after)
        even = jnp.mean(found, axis=(0, 2)) / self.unit[None]
        odd = 0.5 * (found[0] - found[1]) / self.unit[None, None]
        return _Lesson(x, weight, pairs.increments, even, odd)

    def y_and_z(self, parameters: _Parameters, x: State):
        """Flat: [contracts] and [contracts, dim]."""
        y = parameters.value(self.seen(x)) * self.unit
        if parameters.z is None:
            return y, self.problem.z_of(self.time, x, self.gradient(parameters, x))
        z_unit = self.unit / jnp.sqrt(self.problem.maturity)
        return y, parameters.slopes(self.seen(x)) * z_unit[:, None]

    def gradient(self, parameters: _Parameters, x: State) -> Float[Array, "contracts dim"]:
        if parameters.z is None:
            slope = jax.jacrev(parameters.value)(self.seen(x))
            return slope * self.unit[:, None] / self.std
        return self.problem.gradient_of(self.time, x, self.y_and_z(parameters, x)[1])

    def loss(self, parameters: _Parameters, lesson: _Lesson) -> Float[Array, ""]:
        even, odd = jax.vmap(self._missed, (None, 0))(parameters, lesson)
        weight = lesson.weight / jnp.maximum(jnp.sum(lesson.weight), 1.0)
        squares = jnp.mean(even**2, axis=1) + jnp.mean(odd**2, axis=(1, 2))
        return jnp.sum(weight * squares)

    def linear_solver(
        self, like: _Parameters, lesson: _Lesson
    ) -> Callable[[_Parameters], _Parameters]:
        """f_n follows the linear parts in a few rounds."""
        seen = jax.vmap(self.seen)(lesson.x)
        dim, in_y = seen.shape[1], quadratic(seen)
        weights = jnp.repeat(lesson.weight, lesson.odd.shape[1])
        if like.z is None:
            in_z = jax.vmap(self._turned)(lesson.x, lesson.increments).reshape(weights.size, -1)
            in_y, weights = jnp.concatenate([in_y, in_z]), jnp.concatenate([lesson.weight, weights])
            fitted = least_squares(in_y, weights, self.used(1 + dim, dim))
        else:
            dw = lesson.increments / jnp.sqrt(self.problem.dt)
            each = jnp.concatenate(_each(seen), axis=1)[:, None]
            in_z = (each * jnp.tile(dw, 3)).reshape(weights.size, -1)
            fitted = least_squares(in_y, lesson.weight, self.used(1 + dim, dim))
            fitted_z = least_squares(in_z, weights, self.used(dim, dim, dim))

        def better(_, parameters: _Parameters):
            even, odd = jax.vmap(self._missed, (None, 0))(parameters, lesson)
            odd = odd.reshape(-1, odd.shape[-1])
            if parameters.z is None:
                change = fitted(jnp.concatenate([even, odd]))
                return parameters._replace(y=parameters.y + change)
            y, z = parameters.y + fitted(even), parameters.z + fitted_z(odd)
            return parameters._replace(y=y, z=z)

        return lambda parameters: jax.lax.fori_loop(0, _ROUNDS, better, parameters)

    def _missed(self, parameters: _Parameters, lesson: _Lesson):
        """Of one path: the mean [contracts], and the slope [pairs, contracts] in units of Z."""
        problem, x, dw = self.problem, lesson.x, lesson.increments
        turned = jax.vmap(problem.diffused, (None, None, 0))(self.time, x, dw)
        gain, gain_turned = self._half_driver(jax.lax.stop_gradient(parameters), x, turned)
        even = lesson.even + gain - parameters.value(self.seen(x))
        odd = lesson.odd + gain_turned
        small = jnp.sqrt(problem.dt / problem.maturity)
        if parameters.z is not None:
            slopes = parameters.slopes(self.seen(x)) / jnp.sqrt(problem.maturity)
            return even, (odd - dw @ slopes.T) / small
        along = lambda v: jax.jvp(parameters.value, (self.seen(x),), (v,))[1]  # noqa: E731
        return even, (odd - jax.vmap(along)(turned / self.std)) / small

    def _half_driver(self, parameters: _Parameters, x: State, turned: Float[Array, "pairs dim"]):
        """f dt / 2 at the step's start [contracts], and its change along s dw [pairs, contracts]."""

        def gain(x: State):
            y, z = self.y_and_z(parameters, x)
            return 0.5 * self.problem.flat_driver(self.time, x, y, z) * self.problem.dt / self.unit

        along = lambda v: jax.jvp(gain, (x,), (v,))  # noqa: E731
        return jax.vmap(along, out_axes=(None, 0))(turned)

    def _turned(self, x: State, dw: Float[Array, "pairs dim"]) -> Float[Array, "pairs terms"]:
        """What `quadratic` changes by along s dw, as the slopes of `_missed` are scaled."""
        turned = jax.vmap(self.problem.diffused, (None, None, 0))(self.time, x, dw)
        along = lambda v: jax.jvp(quadratic, (self.seen(x),), (v,))[1]  # noqa: E731
        small = jnp.sqrt(self.problem.dt / self.problem.maturity)
        return jax.vmap(along)(turned / self.std) / small


class ByDates(AbstractApproximation):
    """u from the parameters of each date.

    At date 0 it is learned at x0 alone, where the Hessian is that of the next two dates, continued in time.
    """

    problem: Problem
    parameters: _Parameters
    spread: Spread
    unit: Float[Array, " contracts"]
    contracts: tuple[int, ...] = eqx.field(static=True)

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        step, parameters = self._at(date)
        return step.y_and_z(parameters, x)[0].reshape(self.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        step, parameters = self._at(date)
        shape = *self.contracts, self.problem.dim
        return step.gradient(parameters, x).reshape(shape)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        def second(date: Date, x: State):
            found = jax.jacfwd(self.gradient, argnums=1)(date, x)
            return 0.5 * (
                found + jnp.swapaxes(found, -1, -2)
            )  # that of a network for Z has no symmetry

        if self.problem.num_steps < 3:
            return second(date, x)
        today = lambda: 2.0 * second(1, x) - second(2, x)  # noqa: E731
        return jax.lax.cond(jnp.asarray(date) == 0, today, lambda: second(date, x))

    def total(self, quantities: Float[Array, " contracts"]) -> "ByDates":
        parameters = total(self.parameters, quantities * self.unit)
        return ByDates(self.problem, parameters, self.spread, jnp.ones_like(self.unit[:1]), ())

    def _at(self, date: Date) -> tuple[_Step, _Parameters]:
        date = jnp.asarray(date)
        parameters = jax.tree.map(lambda rows: rows[date], self.parameters)
        return _Step(self.problem, date, self.spread, self.unit), parameters
