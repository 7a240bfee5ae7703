"""The one step Malliavin scheme: value, gradient and Hessian, each by a regression of its own."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..fields import word
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
from .problem import Problem, Real, State
from .solver import ONE_START

_ROUNDS = 3  # each leaves of what f_n was wrong by a share of order dt


class _Learned(NamedTuple):
    """What the networks say of one state: their shares of Y, Z and Gamma, a matrix or its diagonal."""

    value: Float[Array, " contracts"]
    slopes: Float[Array, "contracts dim"]
    gamma: Float[Array, "contracts dim"] | Float[Array, "contracts dim dim"]

    def turned(self, v: State) -> Float[Array, "contracts dim"]:
        """Gamma v."""
        return self.gamma @ v if self.gamma.ndim == 3 else self.gamma * v[None]

    def trace(self) -> Float[Array, " contracts"]:
        gamma = self.gamma
        return jnp.trace(gamma, axis1=1, axis2=2) if gamma.ndim == 3 else jnp.sum(gamma, axis=1)


class _Linear(NamedTuple):
    """What the linear parts say on a path: of Y, Z, Gamma dW and (dW^T Gamma dW - tr Gamma dt) / 2."""

    value: Float[Array, " contracts"]
    slopes: Float[Array, "contracts dim"]
    turns: Float[Array, "pairs contracts dim"]
    curve: Float[Array, " contracts"]


class _Parameters(NamedTuple):
    """Of one date, in units of the terminal value and in standardized x.

    Y = `y` on (1, x, x^2) + network; Z = `z` on the same + network; Gamma = `gamma`, a matrix, + network.
    """

    y: Float[Array, "terms contracts"]
    z: Float[Array, "terms z_outputs"]
    gamma: Float[Array, "dim z_outputs"]  # transposed: of a vector from the left
    y_network: Network
    z_network: Network
    gamma_network: Network

    @property
    def networks(self) -> tuple[Network, Network, Network]:
        return self.y_network, self.z_network, self.gamma_network

    def with_networks(self, networks: tuple[Network, Network, Network]) -> "_Parameters":
        names = "y_network", "z_network", "gamma_network"
        return self._replace(**dict(zip(names, networks, strict=True)))

    def learned(self, seen: State) -> _Learned:
        gamma, (dim, of_z) = self.gamma_network(seen), self.gamma.shape
        shape = (-1, dim) if gamma.size == of_z else (-1, dim, dim)
        slopes = self.z_network(seen).reshape(-1, dim)
        return _Learned(self.y_network(seen), slopes, gamma.reshape(shape))

    def level(
        self, terms: Float[Array, "*batch terms"]
    ) -> tuple[Float[Array, "*batch contracts"], Float[Array, "*batch contracts dim"]]:
        """The linear parts of Y and Z, from `quadratic`: one product."""
        both = terms @ jnp.concatenate([self.y, self.z], axis=1)
        value, slopes = jnp.split(both, [self.y.shape[1]], axis=-1)
        return value, slopes.reshape(*value.shape, -1)

    def turned(self, v: State) -> Float[Array, "contracts dim"]:
        """The linear part of Gamma v."""
        return (v @ self.gamma).reshape(-1, v.shape[0])

    def linear(self, seen: State, dw: Float[Array, "pairs dim"], dt: Real) -> _Linear:
        dim, turns = seen.shape[0], jax.vmap(self.turned)(dw)
        trace = jnp.trace(self.gamma.reshape(dim, -1, dim), axis1=0, axis2=2)
        return _Linear(*self.level(quadratic(seen)), turns, _curve(turns, dw, trace, dt))

    def moved(self, move: Move) -> "_Parameters":
        """The same functions of x, in the standardized x of another date."""
        networks = tuple(move.network(network) for network in self.networks)
        linear = move.quadratic(self.y), move.quadratic(self.z), self.gamma
        return _Parameters(*linear, *networks)


class _Lesson(NamedTuple):
    """What the networks of a date are to learn, in units of the terminal value, path by path."""

    x: Float[Array, "paths dim"]
    increments: Float[Array, "paths pairs dim"]
    y: Float[Array, "paths contracts"]
    z: Float[Array, "paths contracts dim"]
    turn: Float[Array, "paths pairs contracts dim"]  # of Z, along the increments


class _Task(NamedTuple):
    """A lesson, and what the linear parts say of it while the networks learn."""

    lesson: _Lesson
    linear: _Linear


class OneStepMalliavin(AbstractBackward):
    """u, its gradient and its Hessian at every date, each by a regression of its own, backward in time.

    Y, Z and Gamma solve the equation and its Malliavin derivative, D_s Y = Z_s today: over one step, with
    D_n X_n = s, D_n X_{n+1} = (dX_{n+1} / dX_n) s and F = grad_x of f(t, x, u(x), s^T grad u(x)),

        Z_n + Gamma_n dW = (D_n X_{n+1})^T (grad u_{n+1} + F_{n+1} dt / 2) + s^T F_n dt / 2
        Y_n + Z_n dW + (dW^T Gamma_n dW - tr Gamma_n dt) / 2 = Y_{n+1} + (f_n + f_{n+1}) dt / 2

    in the mean of squares, over steps along dW and along -dW: sums over such a pair tell Z and Y, differences
    Gamma (with F_{n+1} dt, to first order). Gamma_n is the matrix D_n Z_n = (grad_x z) s, in the coordinates of
    the Brownian motions; the Hessian is s^{-T} (Gamma s^{-1} - grad_x s^T grad u), so s must have an inverse.
    Its term in the second line is noise to Y, known and taken off. The gradients of f use Gamma in place of a
    derivative of the network of Z; where the step ends in a kink, an exercise or the last date, only Gamma_n.

    gamma="full": a network for all dim^2 entries; "diagonal": a matrix for each date, and a network for its
    diagonal alone, which is right where entries off the diagonal do not depend on x (sums of functions of one
    coordinate). What it misses of a radial function is told in `docs/fbsde.md`, and what narrow layers miss.

    Besides their networks Y and Z are affine and quadratic in each coordinate, Gamma a matrix: those parts are
    solved for by least squares before and after the networks' descent. Early exercise as in `BackwardDP`.
    The terminal and exercise values must be continuous. Today all three are learned at x0 alone.

    Negyesi, Andersson, Oosterlee, IMA J. Numer. Anal. 44 (2024), here with the driver at both ends of a step.

    Settings: see `AbstractBackward`.
    """

    gamma: str = word("gamma", ("full", "diagonal"), default="full")

    def lacks(self, problem: Problem) -> str | None:
        if problem.stopping_dates:
            return (
                "stopped paths, where the value jumps and has no Malliavin derivative: "
                "BackwardDP and GradientRegression have them"
            )
        return None if problem.start is None else ONE_START

    def parameters(self, problem: Problem, contracts: int, key: PRNGKeyArray) -> _Parameters:
        dim, dtype = problem.dim, problem.x0.dtype
        of_z = contracts * dim
        of_gamma = of_z * dim if self.gamma == "full" else of_z
        networks = [
            self.architecture(seed, dim, outputs, dim, dtype)
            for seed, outputs in zip(
                jax.random.split(key, 3), (contracts, of_z, of_gamma), strict=True
            )
        ]
        shapes = (1 + 2 * dim, contracts), (1 + 2 * dim, of_z), (dim, of_z)
        y, z, gamma = (jnp.zeros(shape, dtype) for shape in shapes)
        return _Parameters(y, z, gamma, *networks)

    def step(self, problem: Problem, date: Index, pool: Pool) -> "_Step":
        return _Step(problem, date, pool.spread, pool.unit)

    def approximation(
        self, problem: Problem, state: Progress, outputs: _Parameters
    ) -> "ThreeByDates":
        pool = state.pool
        return ThreeByDates(
            problem, self.by_date(outputs), pool.spread, pool.unit, problem.contracts
        )


class _Step(AbstractStep):
    """Parameters are read path by path."""

    def lesson(self, x, weight, pairs: Pairs, later: "_Step", parameters: _Parameters) -> _Lesson:
        del weight  # no path is stopped
        problem, after = self.problem, self.date + 1
        smooth = 1.0 - self._kink

        def at_end(x: State):
            learned = parameters.learned(later.seen(x))
            y, z = worth(problem, after, x, partial(later.y_and_z, parameters, learned))
            turned = lambda v: smooth * later.turned(parameters, learned, x, v)  # noqa: E731
            gain, slope = _driver_and_gradient(problem, after, x, y, z, turned)
            gradient = problem.gradient_of(problem.times[after], x, z)
            return y + 0.5 * gain, gradient, slope

        def from_start(start: State, dw: State, gradient: Array, slope: Array):
            _, back = jax.vjp(lambda x: problem.advance(self.time, x, dw), start)
            at_start = lambda p: problem.z_of(self.time, start, jax.vmap(back)(p)[0])  # noqa: E731
            return at_start(gradient), at_start(slope)

        y, gradient, slope = over_pairs(at_end)(pairs.after)
        pulled = jax.vmap(jax.vmap(jax.vmap(from_start, (None, 0, 0, 0))), (None, 0, 0, 0))
        both = jnp.stack([pairs.increments, -pairs.increments])
        z, gain = pulled(x, both, gradient, slope)
        z_unit = self._z_unit[None, :, None]
        even = jnp.mean(z + 0.5 * gain, axis=(0, 2)) / z_unit
        odd = 0.5 * jnp.subtract(*(z + gain)) / z_unit[None]
        y = jnp.mean(y, axis=(0, 2)) / self.unit[None]
        return _Lesson(x, pairs.increments, y, even, odd)

    def y_and_z(self, parameters: _Parameters, learned: _Learned, x: State):
        """Flat: [contracts] and [contracts, dim]."""
        value, slopes = parameters.level(quadratic(self.seen(x)))
        y = (value + learned.value) * self.unit
        return y, (slopes + learned.slopes) * self._z_unit[:, None]

    def turned(
        self, parameters: _Parameters, learned: _Learned, x: State, v: State
    ) -> Float[Array, "contracts dim"]:
        """(grad_x z) v, by Gamma s^{-1}."""
        s = self.problem.diffusion(self.time, x)
        v = jnp.linalg.solve(s, v) if jnp.ndim(s) == 2 else v / s
        return (parameters.turned(v) + learned.turned(v)) * self._gamma_unit[:, None]

    def hessian(self, parameters: _Parameters, x: State) -> Float[Array, "contracts dim dim"]:
        """s^{-T} (Gamma s^{-1} - grad_x s^T p), p the gradient."""
        z_of, gradient_of = self.problem.z_of, self.problem.gradient_of
        every = jnp.eye(self.problem.dim, dtype=x.dtype)
        learned = parameters.learned(self.seen(x))
        columns = jax.vmap(lambda v: self.turned(parameters, learned, x, v), out_axes=-1)(every)
        p = gradient_of(self.time, x, self.y_and_z(parameters, learned, x)[1])
        rest = columns - jax.jacfwd(lambda x: z_of(self.time, x, p))(x)
        found = gradient_of(self.time, x, jnp.swapaxes(rest, 1, 2))
        return 0.5 * (found + jnp.swapaxes(found, 1, 2))

    def task(self, parameters: _Parameters, lesson: _Lesson) -> _Task:
        return _Task(lesson, self._linear(parameters, lesson))

    def loss(self, parameters: _Parameters, task: _Task) -> Float[Array, ""]:
        lesson, linear = task
        learned = jax.vmap(lambda x: parameters.learned(self.seen(x)))(lesson.x)
        missed = self._all_missed(parameters, linear, learned, lesson)
        y, z, turn = (jnp.mean(part**2) for part in missed)
        return y + z + turn

    def linear_solver(
        self, like: _Parameters, lesson: _Lesson
    ) -> Callable[[_Parameters], _Parameters]:
        """Gamma's part, and then those of Y and Z, which f_n follows in a few rounds."""
        dim = like.gamma.shape[0]
        seen = jax.vmap(self.seen)(lesson.x)
        terms = quadratic(seen)
        dw = (lesson.increments / jnp.sqrt(self.problem.dt)).reshape(-1, dim)
        fitted = least_squares(terms, used=self.used(1 + dim, dim))
        fitted_turn = least_squares(dw)

        def solved(parameters: _Parameters) -> _Parameters:
            learned = jax.vmap(parameters.learned)(seen)
            linear = self._linear(parameters, lesson)
            *_, turn = self._all_missed(parameters, linear, learned, lesson)
            change = fitted_turn(turn.reshape(dw.shape[0], -1))
            parameters = parameters._replace(gamma=parameters.gamma + change)
            linear = self._linear(parameters, lesson)

            def better(_, parameters: _Parameters):
                value, slopes = parameters.level(terms)
                here = linear._replace(value=value, slopes=slopes)
                y, z, _ = self._all_missed(parameters, here, learned, lesson)
                change = fitted(jnp.concatenate([y, z.reshape(len(z), -1)], axis=1))  # one product
                y, z = jnp.split(change, [parameters.y.shape[1]], axis=1)
                return parameters._replace(y=parameters.y + y, z=parameters.z + z)

            return jax.lax.fori_loop(0, _ROUNDS, better, parameters)

        return solved

    def _linear(self, parameters: _Parameters, lesson: _Lesson) -> _Linear:
        """Of every path."""
        of_one = lambda x, dw: parameters.linear(self.seen(x), dw, self.problem.dt)  # noqa: E731
        return jax.vmap(of_one)(lesson.x, lesson.increments)

    def _all_missed(self, parameters: _Parameters, *by_path):
        return jax.vmap(partial(self._missed, parameters))(*by_path)

    def _missed(self, parameters: _Parameters, linear: _Linear, learned: _Learned, lesson: _Lesson):
        """Of one path, in units of each: Y [contracts], Z [contracts, dim], Gamma [pairs, contracts, dim]."""
        problem, x, dw = self.problem, lesson.x, lesson.increments
        known = jax.lax.stop_gradient(learned)
        value, slopes = linear.value + learned.value, linear.slopes + learned.slopes
        y, z = jax.lax.stop_gradient((value * self.unit, slopes * self._z_unit[:, None]))
        share = 1.0 + self._kink
        turned = lambda v: share * self.turned(parameters, known, x, v)  # noqa: E731
        gain, slope = _driver_and_gradient(problem, self.date, x, y, z, turned)
        curve = linear.curve + _curve(jax.vmap(known.turned)(dw), dw, known.trace(), problem.dt)
        y = lesson.y + 0.5 * gain / self.unit - curve / problem.maturity - value
        gain = 0.5 * problem.z_of(self.time, x, slope) / self._z_unit[:, None]
        z = lesson.z + gain - slopes
        small = jnp.sqrt(problem.dt / problem.maturity)
        along = (linear.turns + jax.vmap(learned.turned)(dw)) / jnp.sqrt(problem.maturity)
        return y, z, (lesson.turn - along) / small

    @property
    def _kink(self) -> Float[Array, ""]:
        """1 where u may have a kink at the step's end, so that its Hessian there is not to be used."""
        kinks = self.problem.is_exercise_date | (
            np.arange(self.problem.num_steps + 1) == self.problem.num_steps
        )
        return jnp.asarray(kinks)[self.date + 1].astype(self.unit.dtype)

    @property
    def _z_unit(self) -> Float[Array, " contracts"]:
        return self.unit / jnp.sqrt(self.problem.maturity)

    @property
    def _gamma_unit(self) -> Float[Array, " contracts"]:
        return self.unit / self.problem.maturity


def _curve(
    turns: Float[Array, "pairs contracts dim"],
    dw: Float[Array, "pairs dim"],
    trace: Float[Array, " contracts"],
    dt: Real,
) -> Float[Array, " contracts"]:
    """(dW^T Gamma dW - tr Gamma dt) / 2, in the mean over pairs."""
    return 0.5 * (jnp.mean(jnp.sum(turns * dw[:, None], axis=2), axis=0) - dt * trace)


def _driver_and_gradient(
    problem: Problem, date: Index, x: State, y: Array, z: Array, turned: Callable[[State], Array]
) -> tuple[Float[Array, " contracts"], Float[Array, "contracts dim"]]:
    """f dt, and its gradient in x with y and z functions of it; turned: how z changes along a vector."""
    t = problem.times[date]
    gradient = problem.gradient_of(t, x, z)

    def moved(v: State):
        return problem.flat_driver(t, x + v, y + gradient @ v, z + turned(v)) * problem.dt

    gain, back = jax.vjp(moved, jnp.zeros_like(x))
    return gain, jax.vmap(back)(jnp.eye(gain.size, dtype=x.dtype))[0]


class ThreeByDates(AbstractApproximation):
    """u, its gradient and its Hessian from the parameters of each date; of date 0, learned at x0 alone."""

    problem: Problem
    parameters: _Parameters
    spread: Spread
    unit: Float[Array, " contracts"]
    contracts: tuple[int, ...] = eqx.field(static=True)

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        step, parameters = self._at(date)
        y, _ = step.y_and_z(parameters, parameters.learned(step.seen(x)), x)
        return y.reshape(self.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        """From Z."""
        step, parameters = self._at(date)
        _, z = step.y_and_z(parameters, parameters.learned(step.seen(x)), x)
        found = self.problem.gradient_of(step.time, x, z)
        return found.reshape(*self.contracts, self.problem.dim)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """From Gamma."""
        step, parameters = self._at(date)
        found = step.hessian(parameters, x)
        return found.reshape(*self.contracts, *found.shape[1:])

    def total(self, quantities: Float[Array, " contracts"]) -> "ThreeByDates":
        parameters = total(self.parameters, quantities * self.unit)
        return ThreeByDates(self.problem, parameters, self.spread, jnp.ones_like(self.unit[:1]), ())

    def _at(self, date: Date) -> tuple[_Step, _Parameters]:
        date = jnp.asarray(date)
        parameters = jax.tree.map(lambda rows: rows[date], self.parameters)
        return _Step(self.problem, date, self.spread, self.unit), parameters
