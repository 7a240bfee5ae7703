"""Deep BSDE: today's value and a network for Z, trained so that the forward Y meets the terminal value."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import AbstractSchedule, StoreAll, scan

from ..fields import word
from .approximation import AbstractApproximation, Date
from .descent import Descent, adam
from .networks import Architecture, Network, summed
from .paths import Paths, Spread, simulate
from .problem import Problem, State
from .solver import ONE_START, AbstractSolver


class _Parameters(NamedTuple):
    """In units of the terminal value: today's Y, and Z = level + slope x + network(x), x standardized.

    Level and slope are of each date and coordinate: what is nearly linear in x is no network's task.
    """

    y0: Float[Array, "*contracts"]
    level: Float[Array, "steps *contracts dim"]
    slope: Float[Array, "steps *contracts dim"]
    network: Network


class _Scale(NamedTuple):
    """What numbers are in proportion to, from pilot paths."""

    spread: Spread
    mean: Float[Array, "*contracts"]
    unit: Float[Array, "*contracts"]

    def today(self, y0: Float[Array, "*contracts"]) -> Float[Array, "*contracts"]:
        """Today's value: it may be many deviations away from the mean of what is paid."""
        return self.mean + (self.unit + jnp.abs(self.mean)) * y0


class _State(NamedTuple):
    descent: Descent
    scale: _Scale


class DeepBSDE(AbstractSolver):
    """Today's value and gradient, at x0.

    Y_0 and a network for Z minimize the mean of (Y_T - g(X_T))^2 over fresh paths, where

        Y_{n+1} = Y_n - F_n dt + Z_n dW_n.

    driver_rule "trapezoid": F_n is the mean of f at both ends of the step (at its end with Y_n - f dt + Z dW
    and the next Z), which leaves an error of second order in dt; "left": f at its start, as in the paper. X
    does not depend on Y and Z, so one network that is told the time evaluates all dates in one product.

    E, Han, Jentzen, Comm. Math. Stat. 5 (2017); Han, Jentzen, E, PNAS 115 (2018). No early exercise.

    optimizer: any of optax; None: Adam from `learning_rate`, falling along a cosine. schedule: what a reverse
    sweep keeps of the loop over dates (`jaxtape.scan`).
    """

    num_iterations: int = eqx.field(static=True, default=2000)
    batch_size: int = eqx.field(static=True, default=64)
    learning_rate: float = eqx.field(static=True, default=5e-3)
    architecture: Architecture = Architecture()
    driver_rule: str = word("driver_rule", ("trapezoid", "left"), default="trapezoid")
    optimizer: optax.GradientTransformation | None = eqx.field(static=True, default=None)
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())
    num_pilot_paths: int = eqx.field(static=True, default=4096)
    iterations_a_stage: int = eqx.field(static=True, default=100)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def lacks(self, problem: Problem) -> str | None:
        if problem.exercise_dates:
            return "early exercise: BackwardDP, OneStepMalliavin and GradientRegression have it"
        if problem.stopping_dates:
            return "stopped paths: BackwardDP and GradientRegression have them"
        return None if problem.start is None else ONE_START

    def num_stages(self, problem: Problem) -> int:
        del problem
        return -(-self.num_iterations // self.iterations_a_stage)

    def start(self, problem: Problem, key: PRNGKeyArray) -> _State:
        pilot, seed = jax.random.split(key)
        states = simulate(problem, pilot, self.num_pilot_paths, mesh=self.mesh).states
        paid = jax.vmap(problem.terminal)(states[-1])
        mean, deviation = jnp.mean(paid, axis=0), jnp.std(paid, axis=0)
        scale = _Scale(Spread.of(states), mean, jnp.where(deviation > 0.0, deviation, 1.0))
        outputs = mean.size * problem.dim
        dtype = problem.x0.dtype
        network = self.architecture(seed, problem.dim + 1, outputs, problem.dim, dtype)
        zero = jnp.zeros((problem.num_steps, *mean.shape, problem.dim), dtype)
        parameters = _Parameters(jnp.zeros_like(mean), zero, zero, network)
        return _State(Descent.start(self._optimizer, parameters), scale)

    def stage(self, problem: Problem, state: _State, index: Array, key: PRNGKeyArray):
        del index

        def loss(parameters: _Parameters, key: PRNGKeyArray):
            paths = simulate(problem, key, self.batch_size, mesh=self.mesh)
            missed = self._missed(problem, parameters, state.scale, paths)
            return jnp.mean((missed / state.scale.unit[None]) ** 2)

        descent, losses = state.descent.advanced(
            self._optimizer, loss, key, self.iterations_a_stage
        )
        return _State(descent, state.scale), (), losses

    def approximation(self, problem: Problem, state: _State, outputs: Any) -> "Along":
        del outputs
        return Along(problem, state.descent.parameters, state.scale)

    def where(self, problem: Problem, stage: int) -> str:
        del problem
        first = stage * self.iterations_a_stage
        return f"iterations {first} to {first + self.iterations_a_stage - 1}, all dates"

    def metrics(self, state: _State) -> dict[str, Array]:
        return {"value": state.scale.today(state.descent.parameters.y0)}

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        if self.optimizer is not None:
            return self.optimizer
        return adam(self.learning_rate, self.num_iterations)

    def _missed(self, problem: Problem, parameters: _Parameters, scale: _Scale, paths: Paths):
        """Y_T - g(X_T) of every path."""
        states, increments = paths
        times = problem.times
        z = _z_along(problem, parameters, scale, states)
        over_paths = lambda f: jax.vmap(f, (None, 0, 0, 0))  # noqa: E731
        driver = over_paths(problem.driver)
        last = jax.vmap(lambda x: problem.z_of(times[-1], x, problem.terminal_gradient(x)))(
            states[-1]
        )
        z = jnp.concatenate([z, last[None]])
        gains = jnp.sum(z[:-1] * _spanned(increments, z), axis=-1)

        def onward(y, of_step):
            t, after, x, x_after, z, z_after, gain = of_step
            slope = driver(t, x, y, z)
            if self.driver_rule == "trapezoid":
                guess = y - slope * problem.dt + gain
                slope = 0.5 * (slope + driver(after, x_after, guess, z_after))
            return y - slope * problem.dt + gain, None

        y0 = scale.today(parameters.y0)
        xs = times[:-1], times[1:], states[:-1], states[1:], z[:-1], z[1:], gains
        y, _ = scan(onward, jnp.broadcast_to(y0, z.shape[1:-1]), xs, schedule=self.schedule)
        return y - jax.vmap(problem.terminal)(states[-1])


def _z_along(problem: Problem, parameters: _Parameters, scale: _Scale, states):
    """Z at every date but the last, of every path: [steps, paths, *contracts, dim]."""
    steps, paths = problem.num_steps, states.shape[1]
    dates = jnp.arange(steps)[:, None]
    seen = scale.spread.standard(dates, states[:-1])
    told = jnp.broadcast_to((dates / steps)[..., None], (*seen.shape[:-1], 1)).astype(seen.dtype)
    inputs = jnp.concatenate([seen, told], axis=-1).reshape(-1, problem.dim + 1)
    shape = steps, paths, *scale.unit.shape, problem.dim
    level, slope = parameters.level[:, None], parameters.slope[:, None]
    z = level + slope * _spanned(seen, level) + parameters.network(inputs).reshape(shape)
    unit = scale.unit[None, None, ..., None] / jnp.sqrt(problem.maturity)
    return unit * z


def _spanned(x: Float[Array, "steps paths dim"], z: Array) -> Array:
    """x with axes for the contracts of z, before the last."""
    return x.reshape(*x.shape[:2], *(1,) * (z.ndim - x.ndim), x.shape[-1])


class Along(AbstractApproximation):
    """Today's value at x0, and Z along the paths from there."""

    problem: Problem
    parameters: _Parameters
    scale: _Scale

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        """At date 0 and x0 alone: elsewhere the scheme learns the gradient, and raises here."""
        elsewhere = (jnp.asarray(date) != 0) | jnp.any(x != self.problem.x0)
        value = self.scale.today(self.parameters.y0)
        return eqx.error_if(
            value,
            elsewhere,
            "DeepBSDE learns the value at t = 0, x = x0 alone: BackwardDP, OneStepMalliavin and "
            "GradientRegression have it elsewhere.",
        )

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        """From Z; at date 0 of x0, whatever x."""
        states = jnp.broadcast_to(x, (self.problem.num_steps + 1, 1, self.problem.dim))
        z = _z_along(self.problem, self.parameters, self.scale, states)[date, 0]
        return self.problem.gradient_of(self.problem.times[date], x, z)

    def total(self, quantities: Float[Array, " contracts"]) -> "Along":
        parameters, scale = self.parameters, self.scale
        weights = quantities * scale.unit.reshape(-1)
        rows = lambda z: z.reshape(len(z), -1)  # noqa: E731
        level, slope = (summed(rows(z), weights) for z in (parameters.level, parameters.slope))
        today = quantities @ scale.today(parameters.y0).reshape(-1)
        zero, one = jnp.zeros_like(today), jnp.ones_like(today)
        found = _Parameters(zero, level, slope, parameters.network.total(weights))
        return Along(self.problem, found, _Scale(scale.spread, today, one))

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        raise TypeError(
            "DeepBSDE learns no Gamma: OneStepMalliavin and GradientRegression have it, and "
            "hedging(..., gamma=False) hedges Delta alone."
        )
