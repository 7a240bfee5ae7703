"""Deep BSDE: today's value and a network for Z, trained so that the forward Y matches the terminal value."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxtape import AbstractSchedule, StoreAll, scan

from ...fields import word
from ...numerics.safe_math import nan_where
from ...numerics.standardizer import Standardizer, deviation
from ..dynamics.forward_paths import Paths, simulate, simulate_share, standardizer_by_date
from ..path_shares import (
    ON_EVERY_DEVICE,
    PathShare,
    check_shares,
    most_parts,
    per_device,
)
from ..problem import Problem, State
from ..solver import (
    RESULTS,
    AbstractApproximation,
    AbstractSolver,
    Date,
    beyond_networks,
)
from .networks import (
    Architecture,
    OptimizerState,
    Perceptron,
    adam,
    minimize,
    sum_over_contracts,
)

_LARGE = 256
"""The fewest paths of a micro-batch: below it, matrix products cost more than rematerialization."""


class ForwardParameters(NamedTuple):
    """Today's Y, and Z = level + slope x + network(x), in units of the terminal value; x is standardized.

    Each date and coordinate has a level and a slope, so that the network does not need to learn the linear
    part.
    """

    y0: Float[Array, "*contracts"]
    level: Float[Array, "steps *contracts dim"]
    slope: Float[Array, "steps *contracts dim"]
    network: Perceptron


class _Normalization(NamedTuple):
    """The means and standard deviations of states and payoffs on pilot paths."""

    standardizer: Standardizer
    mean: Float[Array, "*contracts"]
    scale: Float[Array, "*contracts"]

    def value_today(self, y0: Float[Array, "*contracts"]) -> Float[Array, "*contracts"]:
        """Return today's value, which may be many standard deviations away from the mean payoff."""
        return self.mean + (self.scale + jnp.abs(self.mean)) * y0


_State = tuple[OptimizerState, _Normalization]


class DeepBSDE(AbstractSolver):
    """Deep BSDE: today's value and gradient at x0.

    Y_0 and a network for Z minimize the mean of (Y_T - g(X_T))^2 over fresh paths, where

        Y_{n+1} = Y_n - F_n dt + Z_n dW_n.

    Because X does not depend on Y and Z, one network with time as an input evaluates all dates in one product.
    Early exercise is not supported.

    E, Han, Jentzen, Comm. Math. Stat. 5 (2017); Han, Jentzen, E, PNAS 115 (2018).

    Attributes:
        num_iterations: The number of iterations of the optimizer.
        batch_size: The paths of an iteration.
        learning_rate: Adam's rate; it falls along a cosine.
        architecture: Architecture of the network.
        driver_rule: "trapezoid": F_n is the mean of f at both ends of the step (at its end with Y_n - f dt + Z
            dW and the next Z), with an error of second order in dt; "left": f at the start, as in the paper.
        optimizer: Any optax optimizer in place of Adam.
        schedule: Checkpoint schedule of the reverse sweep over dates (`jaxtape.scan`).
        num_pilot_paths: The number of pilot paths for normalization.
        iterations_per_stage: The number of iterations between two checkpoints.
        mesh: The devices that share the paths (axis "paths"), or None.
        budget: Memory budget of an iteration's gradient on a device, in bytes: paths are divided into
            micro-batches with accumulated gradients, and the network is rematerialized, as needed. None: all
            paths at once.

    Raises:
        ValueError: `driver_rule` is unknown, or the budget does not hold the smallest micro-batch.
    """

    num_iterations: int = eqx.field(static=True, default=2000)
    batch_size: int = eqx.field(static=True, default=64)
    learning_rate: float = eqx.field(static=True, default=5e-3)
    architecture: Architecture = Architecture()
    driver_rule: str = word("driver_rule", ("trapezoid", "left"), default="trapezoid")
    optimizer: optax.GradientTransformation | None = eqx.field(static=True, default=None)
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())
    num_pilot_paths: int = eqx.field(static=True, default=4096)
    iterations_per_stage: int = eqx.field(static=True, default=100)
    mesh: Mesh | None = eqx.field(static=True, default=None)
    budget: float | int | None = eqx.field(static=True, default=None)

    def unsupported_reason(self, problem: Problem) -> str | None:
        if problem.exercise_dates:
            return "early exercise: BackwardDP, OneStepMalliavin and GradientRegression support it"
        if problem.stopping_dates:
            return "stopped paths: BackwardDP and GradientRegression support them"
        return beyond_networks(problem)

    def num_stages(self, problem: Problem) -> int:
        del problem
        return -(-self.num_iterations // self.iterations_per_stage)

    def init(self, problem: Problem, *, key: PRNGKeyArray) -> _State:
        sizes = {"num_pilot_paths": self.num_pilot_paths, "batch_size": self.batch_size}
        check_shares(self.mesh, **sizes)
        pilot, weights = jax.random.split(key)
        states = simulate(problem, self.num_pilot_paths, key=pilot, mesh=self.mesh).states
        paid = jax.vmap(problem.terminal)(states[-1])
        mean, scale = jnp.mean(paid, axis=0), deviation(jnp.moveaxis(paid, 0, -1))
        normalization = _Normalization(standardizer_by_date(states), mean, scale)
        outputs = mean.size * problem.dim
        dtype = problem.x0.dtype
        network = self.architecture(problem.dim + 1, outputs, problem.dim, dtype, key=weights)
        zero = jnp.zeros((problem.num_steps, *mean.shape, problem.dim), dtype)
        parameters = ForwardParameters(jnp.zeros_like(mean), zero, zero, network)
        return OptimizerState.init(self._optimizer, parameters), normalization

    def stage(self, problem: Problem, state: _State, index: Array, *, key: PRNGKeyArray):
        del index
        train = eqx.Partial(self._train, problem, state, key)
        last, losses = per_device(train, self.mesh, (), ON_EVERY_DEVICE)()
        _, normalization = state
        return (last, normalization), (), losses

    def _train(self, problem: Problem, state: _State, key: PRNGKeyArray, share: PathShare):
        """Return the training state after a stage's iterations, and their losses."""
        training, normalization = state

        def loss(
            parameters: ForwardParameters,
            iteration: Array,
            share: PathShare,
            rematerialize: bool = False,
        ):
            fresh = jax.random.fold_in(key, iteration)
            paths = simulate_share(problem, self.batch_size, share, key=fresh)
            found = PathwiseApproximation(problem, parameters, normalization)
            residuals = self._residuals(found, paths, rematerialize)
            squares = (residuals / normalization.scale[None]) ** 2
            return jnp.sum(squares), jnp.asarray(squares.size, squares.dtype)

        share, rematerialize = self._within_budget(loss, training.parameters, share)
        loss = partial(loss, rematerialize=rematerialize)
        sizes = self.iterations_per_stage, share, share.num_parts(self.batch_size)
        return minimize(loss, self._optimizer, training, *sizes)

    def _within_budget(
        self, loss: Callable, parameters: ForwardParameters, share: PathShare
    ) -> tuple[PathShare, bool]:
        """Return the share with as many paths at once as fit, and whether the network is rematerialized.

        It is rematerialized only where fewer than `_LARGE` paths would fit otherwise.

        Raises:
            ValueError: Two paths do not fit.
        """
        for rematerialize, least in ((False, _LARGE), (True, 2)):

            def gradient(share: PathShare, parameters, rematerialize: bool = rematerialize):
                of_part = share.micro_batch(0, share.num_parts(self.batch_size))
                function = lambda p: loss(p, jnp.int32(0), of_part, rematerialize)
                return jax.value_and_grad(function, has_aux=True)(parameters)

            found = share.within(self.budget, gradient, self.batch_size, parameters, least=least)
            if found is not None:
                return found, rematerialize
        own = self.batch_size // share.count
        raise ValueError(
            f"budget={self.budget:g} bytes do not hold the gradient of {own // most_parts(own)} paths, a "
            "device's smallest micro-batch: give more, or fewer steps, or narrower layers."
        )

    def postprocess(self, problem: Problem, state: _State, outputs: Any) -> "PathwiseApproximation":
        del outputs
        training, normalization = state
        return PathwiseApproximation(problem, training.parameters, normalization)

    def describe_stage(self, problem: Problem, stage: int) -> str:
        del problem
        first = stage * self.iterations_per_stage
        return f"iterations {first} to {first + self.iterations_per_stage - 1}, all dates"

    def metrics(self, state: _State) -> dict[str, Array]:
        training, normalization = state
        return {"value": normalization.value_today(training.parameters.y0)}

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        if self.optimizer is not None:
            return self.optimizer
        return adam(self.learning_rate, self.num_iterations)

    def _residuals(self, found: "PathwiseApproximation", paths: Paths, rematerialize: bool):
        problem, (states, increments) = found.problem, paths
        times, z = problem.times, found.z_on_paths(states, rematerialize)
        driver = jax.vmap(problem.driver, (None, 0, 0, 0))
        z_of = lambda x: problem.z_of(times[-1], x, problem.terminal_gradient(x))
        z = jnp.concatenate([z, jax.vmap(z_of)(states[-1])[None]])
        gains = jnp.sum(z[:-1] * _with_contract_axes(increments, z), axis=-1)

        def advance(y, of_step):
            t, after, x, x_after, z, z_after, gain = of_step
            slope = driver(t, x, y, z)
            if self.driver_rule == "trapezoid":
                guess = y - slope * problem.dt + gain
                slope = 0.5 * (slope + driver(after, x_after, guess, z_after))
            return y - slope * problem.dt + gain, None

        y0 = found.normalization.value_today(found.parameters.y0)
        steps = times[:-1], times[1:], states[:-1], states[1:], z[:-1], z[1:], gains
        y, _ = scan(advance, jnp.broadcast_to(y0, z.shape[1:-1]), steps, schedule=self.schedule)
        return y - jax.vmap(problem.terminal)(states[-1])


def _with_contract_axes(x: Float[Array, "steps paths dim"], z: Array) -> Array:
    """Return x with axes for the contracts of z before the last axis."""
    return x.reshape(*x.shape[:2], *(1,) * (z.ndim - x.ndim), x.shape[-1])


class PathwiseApproximation(AbstractApproximation):
    """Today's value at x0, and Z along paths from there."""

    problem: Problem
    parameters: ForwardParameters
    normalization: _Normalization

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        """Return today's value at x0; elsewhere the scheme learns only the gradient, and the value is NaN."""
        value = self.normalization.value_today(self.parameters.y0)
        return nan_where(self.result(0, date, x) != RESULTS.successful, value)

    def result(self, order: int, date: Date, x: State) -> RESULTS:
        elsewhere = (jnp.asarray(date) != 0) | jnp.any(x != self.problem.x0)
        unknown = elsewhere & (order == 0)
        return RESULTS.where(unknown, RESULTS.value_at_start_only, RESULTS.successful)  # pyright: ignore[reportArgumentType]

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        """Return the gradient from Z; at date 0 it is the gradient at x0 for any x."""
        z = self._z(jnp.asarray(date)[None], x[None, None])[0, 0]
        return self.problem.gradient_of(self.problem.times[date], x, z)

    def z_on_paths(
        self, states: Float[Array, "dates paths dim"], rematerialize: bool = False
    ) -> Float[Array, "steps paths *contracts dim"]:
        """Return Z at every date except the last, for every path.

        rematerialize: whether a gradient recomputes the network's layers, date by date, instead of storing
            them.
        """
        return self._z(jnp.arange(self.problem.num_steps), states[:-1], rematerialize)

    def _z(
        self,
        dates: Int[Array, " dates"],
        states: Float[Array, "dates paths dim"],
        rematerialize: bool = False,
    ) -> Float[Array, "dates paths *contracts dim"]:
        steps, dim, scale = self.problem.num_steps, self.problem.dim, self.normalization.scale
        x = jax.vmap(lambda s, x: s(x.T).T)(self.normalization.standardizer.at(dates), states)
        time = jnp.broadcast_to((dates / steps)[:, None, None], (*x.shape[:-1], 1)).astype(x.dtype)
        inputs = jnp.concatenate([x, time], axis=-1)
        if rematerialize:
            network = self.parameters.network
            outputs = jax.lax.map(jax.checkpoint(lambda x: network(x)), inputs)
        else:
            outputs = self.parameters.network(inputs.reshape(-1, dim + 1))
        level, slope = (
            part[dates][:, None] for part in (self.parameters.level, self.parameters.slope)
        )
        linear = level + slope * _with_contract_axes(x, level)
        z = linear + outputs.reshape(*x.shape[:2], *scale.shape, dim)
        return scale[None, None, ..., None] / jnp.sqrt(self.problem.maturity) * z

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """Refuse: the scheme learns no Hessian.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "DeepBSDE learns no Gamma: OneStepMalliavin and GradientRegression do, and "
            "hedging(..., gamma=False) hedges only Delta."
        )

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "PathwiseApproximation":
        parameters, old = self.parameters, self.normalization
        weights = quantities * old.scale.reshape(-1)
        of = lambda z: sum_over_contracts(z.reshape(len(z), -1), weights)
        value = quantities @ old.value_today(parameters.y0).reshape(-1)
        zero, one = jnp.zeros_like(value), jnp.ones_like(value)
        level, slope = of(parameters.level), of(parameters.slope)
        summed = ForwardParameters(zero, level, slope, parameters.network.portfolio(weights))
        return PathwiseApproximation(
            self.problem, summed, _Normalization(old.standardizer, value, one)
        )
