"""Shared parts of backward schemes: one network regression per date, and least squares for linear parts.

Inside these schemes, values are flat, [contracts] ([1] for a single contract), and parameters are in units of
the terminal value's standard deviation (`scale`) and of the standardized state of their date.
"""

import abc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ...numerics.standardizer import Standardizer
from ...sampling import normals
from ..dynamics.forward_paths import AntitheticSteps, PathPool
from ..path_shares import (
    ON_EVERY_DEVICE,
    PathRows,
    PathShare,
    check_shares,
    on_axis,
    per_device,
)
from ..problem import Problem, Real, State
from ..solver import (
    AbstractApproximation,
    AbstractSolver,
    Date,
    weighted_sum,
)
from .networks import (
    Architecture,
    OptimizerState,
    Perceptron,
    adam,
    minimize,
    sum_over_contracts,
)

FIXED_POINT_ITERATIONS = 3  # each reduces the error of f_n by a factor O(dt)

Index = Int[Array, ""]


def value_at_step_end(
    problem: Problem, date: Index, x: State, continuation: Callable[[State], tuple[Array, Array]]
) -> tuple[Float[Array, " contracts"], Float[Array, "contracts dim"]]:
    """Return Y and Z at the end of a step, including exercise, stops and maturity.

    continuation: Y and Z of the networks there, without exercise and stops.
    """
    t = problem.times[date]

    def flat(y: Array, gradient: Array):
        return y.reshape(-1), problem.z_of(t, x, gradient.reshape(-1, problem.dim))

    def with_gradient(function: Callable[[Real, State], Array]):
        return flat(function(t, x), jax.jacrev(function, argnums=1)(t, x))

    over = lambda: flat(problem.terminal(x), problem.terminal_gradient(x))
    y, z = jax.lax.cond(date == problem.num_steps, over, lambda: continuation(x))
    if problem.exercise_value is not None:
        paid, z_paid = with_gradient(problem.exercise_value)
        exercised = jnp.asarray(problem.is_exercise_date)[date] & (paid > y)
        y, z = jnp.where(exercised, paid, y), jnp.where(exercised[:, None], z_paid, z)
    if problem.is_alive is not None:
        stopped = jnp.asarray(problem.is_stopping_date)[date] & ~problem.is_alive(t, x)
        paid, z_paid = with_gradient(problem.paid_at_stop)
        y, z = jnp.where(stopped, paid, y), jnp.where(stopped, z_paid, z)
    return y, z


# --- Linear parts, and changes of their coordinates ----------------------------------------------------


def quadratic_features(x: Float[Array, "*batch dim"]) -> Float[Array, "*batch terms"]:
    """Return 1, x and (x^2 - 1) / 2 of every standardized coordinate."""
    one = jnp.ones_like(x[..., :1])
    return jnp.concatenate([one, x, 0.5 * (x**2 - 1.0)], axis=-1)


class CoordinateChange(NamedTuple):
    """Change of standardized coordinates from one date to another: old = scale * new + shift."""

    scale: Float[Array, " dim"]
    shift: Float[Array, " dim"]

    @classmethod
    def between(cls, standardizer: Standardizer, old: Index, new: Index) -> "CoordinateChange":
        one, other = standardizer.at(old), standardizer.at(new)
        return cls(one.whitening / other.whitening, one.whitening * (other.mean - one.mean))

    def quadratic(self, terms: Float[Array, "terms outputs"]) -> Float[Array, "terms outputs"]:
        """Change coefficients of `quadratic_features` so that the function of x stays the same."""
        dim = self.scale.shape[0]
        zero = jnp.zeros((dim, terms.shape[1]), terms.dtype)
        level, slope, curve = self.by_coordinate(zero, terms[1:])
        return jnp.concatenate([terms[:1] + jnp.sum(level, axis=0)[None], slope, curve])

    def by_coordinate(
        self, level: Float[Array, "dim outputs"], others: Float[Array, "two_dim outputs"]
    ) -> tuple[Array, Array, Array]:
        """Change coefficients likewise, with a separate level for each coordinate."""
        r, m = self.scale[:, None], self.shift[:, None]
        slope, curve = jnp.split(others, 2)
        level = level + m * slope + 0.5 * curve * (m**2 + r**2 - 1.0)
        return level, r * (slope + m * curve), r**2 * curve

    def network(self, network: Perceptron) -> Perceptron:
        """Change the first layer of a network likewise."""
        weight, bias = network.weights[0], network.biases[0]
        changed = self.scale[:, None] * weight, bias + self.shift @ weight
        return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), network, changed)


class Columns(NamedTuple):
    """The features of a least-squares problem on some rows, and their products with the rows' weights."""

    features: Float[Array, "rows terms"]
    weighted: Float[Array, "rows terms"]

    @classmethod
    def of(
        cls, features: Float[Array, "rows terms"], weights: Float[Array, " rows"] | None = None
    ) -> "Columns":
        return cls(features, features if weights is None else features * weights[:, None])

    def gram(self) -> Float[Array, "terms terms"]:
        return self.weighted.T @ self.features

    def with_targets(self, targets: Float[Array, "rows outputs"]) -> Float[Array, "terms outputs"]:
        """Return the right-hand sides of the normal equations."""
        return self.weighted.T @ targets


def normal_equations(
    gram: Float[Array, "terms terms"], active: Float[Array, " terms"] | None = None
) -> Callable[[Float[Array, "terms outputs"]], Float[Array, "terms outputs"]]:
    """Return the map from right-hand sides to coefficients, which are close to 0 for useless features.

    active: 1, or 0 for omitted features.
    """
    if active is not None:
        gram = gram * jnp.outer(active, active)
    limits = jnp.finfo(gram.dtype)
    ridge = (
        16.0 * limits.eps * jnp.max(jnp.diagonal(gram)) + limits.tiny
    )  # there may be no live path
    one = jnp.eye(gram.shape[0], dtype=gram.dtype)
    factor = jax.lax.linalg.triangular_solve(
        jax.lax.linalg.cholesky(gram + ridge * one), one, left_side=True, lower=True
    )  # from the inverse: one product instead of two solves per target
    factor = factor if active is None else factor * active[None]
    return lambda right: factor.T @ (factor @ right)


_computed_once = jax.lax.optimization_barrier  # not recomputed in every loop that reads it


# --- One regression per date
# -----------------------------------------------------------------------------


class AbstractDateRegression(eqx.Module):
    """The regression of one date: its functions of the parameters, and its targets.

    Attributes:
        problem: The problem to solve.
        date: The index of the date.
        standardizer: The means and standard deviations of the states at all dates.
        scale: The standard deviation of the terminal value of every contract.
    """

    extrapolates_gamma: ClassVar[bool] = False  # today's Hessian comes from the next two dates

    problem: Problem
    date: Index
    standardizer: Standardizer
    scale: Float[Array, " contracts"]

    @abc.abstractmethod
    def value(self, parameters: PyTree, x: State) -> Float[Array, " contracts"]:
        """Return u at a state."""

    @abc.abstractmethod
    def gradient(self, parameters: PyTree, x: State) -> Float[Array, "contracts dim"]:
        """Return the gradient of u at a state."""

    @abc.abstractmethod
    def hessian(self, parameters: PyTree, x: State) -> Float[Array, "contracts dim dim"]:
        """Return the Hessian of u at a state."""

    @abc.abstractmethod
    def targets(
        self, steps: AntitheticSteps, later: "AbstractDateRegression", parameters: PyTree
    ) -> PyTree[Array]:
        """Return the targets of the fit, by path, from the regression and parameters of the next date."""

    @abc.abstractmethod
    def loss(self, parameters: PyTree, batch: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the sum of squared residuals of a batch, and the total weight of its paths."""

    @abc.abstractmethod
    def linear_solver(self, like: PyTree, targets: PathRows) -> Callable[[PyTree], PyTree]:
        """Return the map from parameters like `like` to those with optimal linear parts, given the networks."""

    def at(self, date: Index) -> "AbstractDateRegression":
        """Return the regression of another date."""
        return replace(self, date=date)

    def standardized(self, x: State) -> State:
        """Return the state standardized at this date."""
        return self.standardizer.at(self.date)(x)

    @property
    def whitening(self) -> Float[Array, "1 dim"]:
        """1 / the standard deviation of the state at this date."""
        return self.standardizer.at(self.date).whitening[None]

    @property
    def time(self) -> Real:
        """The time of this date."""
        return self.problem.times[self.date]

    def active(self, *terms: int) -> Float[Array, " terms"]:
        """Return 1 for each feature; today 0 for the last group: a single state only fits levels."""
        flat = jnp.ones(sum(terms[:-1]), self.scale.dtype)
        curved = (self.date > 0).astype(flat.dtype)
        return jnp.concatenate([flat, jnp.full(terms[-1], curved)])


class DatewiseApproximation(AbstractApproximation):
    """u from the parameters and regression of each date. Today's parameters are learned only at x0."""

    regression: AbstractDateRegression
    parameters: PyTree[Array]
    contracts: tuple[int, ...] = eqx.field(static=True)

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        regression, parameters = self._at(date)
        return regression.value(parameters, x).reshape(self.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        regression, parameters = self._at(date)
        return regression.gradient(parameters, x).reshape(*self.contracts, x.size)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        def at(date: Date):
            regression, parameters = self._at(date)
            return regression.hessian(parameters, x).reshape(*self.contracts, x.size, x.size)

        if not self.regression.extrapolates_gamma or self.regression.problem.num_steps < 3:
            return at(date)
        shape = *self.contracts, x.size, x.size
        date = jnp.asarray(date)
        is_today = date == 0
        dates = jnp.where(is_today, jnp.array([1, 2], date.dtype), date)
        weights = jnp.where(is_today, jnp.array([2.0, -1.0]), jnp.array([1.0, 0.0]))
        return weighted_sum(at, dates, weights, jax.ShapeDtypeStruct(shape, x.dtype))

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "DatewiseApproximation":
        scale = self.regression.scale
        one = replace(self.regression, scale=jnp.ones_like(scale[:1]))
        weights = quantities * scale

        def summed(
            part: Perceptron | Array,
        ) -> Perceptron | Array:  # outputs are linear in the last layer
            if isinstance(part, Perceptron):
                return part.portfolio(weights)
            return sum_over_contracts(part, weights)

        parameters = jax.tree.map(summed, self.parameters, is_leaf=_is_network)
        return DatewiseApproximation(one, parameters, ())

    def _at(self, date: Date) -> tuple[AbstractDateRegression, PyTree[Array]]:
        date = jnp.asarray(date)
        return self.regression.at(date), jax.tree.map(lambda rows: rows[date], self.parameters)


def _is_network(part: object) -> bool:
    return isinstance(part, Perceptron)


# --- The solver ----------------------------------------------------------------------------------------


BackwardState = tuple[PathPool, PyTree[Array]]
"""The paths, and the parameters of the last processed date."""

_setting = partial(eqx.field, static=True, kw_only=True)


class AbstractBackwardSolver(AbstractSolver):
    """Network regressions, date by date, the latest first.

    Attributes:
        num_iterations: The optimizer's iterations at each date.
        first_stages: Factor of the iterations at the last date, which has no later date to start from.
        batch_size: The number of paths per iteration.
        num_paths: The number of paths stored at every date, num_paths * dim numbers each.
        num_pairs: The number of antithetic pairs of steps from each path.
        learning_rate: Adam's learning rate at the last date, with cosine decay.
        later_learning_rate: Adam's learning rate at all other dates, which start from the networks of the next
            date.
        architecture: Architecture of the networks.
        optimizer: Any optax optimizer in place of Adam; it is initialized again at every stage.
        mesh: The devices that share the paths (axis "paths"), or None.
        budget: Memory budget of a date's fit on a device, in bytes, beside the stored paths: parts of the paths
            are evaluated one after another, and gradients are accumulated. None: all paths at once.

    Raises:
        ValueError: The budget does not hold the targets of all paths.
    """

    date_regression: eqx.AbstractClassVar[type[AbstractDateRegression]]

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
    budget: float | int | None = _setting(default=None)

    def __check_init__(self):
        for name in ("num_iterations", "first_stages", "batch_size", "num_paths", "num_pairs"):
            if (number := getattr(self, name)) < 1:
                raise ValueError(f"{name}={number}: give 1 or more.")
        for name in ("learning_rate", "later_learning_rate"):
            if not (rate := getattr(self, name)) > 0.0:
                raise ValueError(f"{name}={rate}: give a number above 0.")

    @abc.abstractmethod
    def init_parameters(
        self, problem: Problem, num_contracts: int, *, key: PRNGKeyArray
    ) -> PyTree[Array]:
        """Return the parameters before the first stage."""

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps - 1 + self.first_stages

    def init(self, problem: Problem, *, key: PRNGKeyArray) -> BackwardState:
        check_shares(self.mesh, num_paths=self.num_paths, batch_size=self.batch_size)
        paths, weights = jax.random.split(key)
        pool = PathPool.draw(problem, self.num_paths, self.mesh, key=paths)
        return pool, self.init_parameters(problem, pool.scale.size, key=weights)

    def stage(self, problem: Problem, state: BackwardState, index: Array, *, key: PRNGKeyArray):
        (pool, found), date = state, self._date(problem, index)
        regression = self.date_regression(problem, date, pool.standardizer, pool.scale)
        fit = eqx.Partial(self._within_budget, regression, index, found, key)
        paths = on_axis(0)
        on_devices = per_device(fit, self.mesh, (paths, paths), ON_EVERY_DEVICE)
        parameters, losses = on_devices(pool.states[date], pool.alive[date])
        return (pool, parameters), parameters, losses

    def _within_budget(self, *given: Any) -> tuple[PyTree, Float[Array, " iterations"]]:
        """Return `_fitted`, with as many paths at once as the budget allows.

        Raises:
            ValueError: Two paths at once do not fit.
        """
        *fixed, share, x, alive = given
        fitted = partial(self._fitted, *fixed)
        found = share.within(self.budget, fitted, self.num_paths, x, alive)
        if found is None:
            raise ValueError(
                f"budget={self.budget:g} bytes do not hold the targets of {len(x)} paths, a device's, and the "
                "gradient of two: give more, or fewer paths or pairs, or narrower layers."
            )
        return fitted(found, x, alive)

    def _fitted(
        self,
        regression: AbstractDateRegression,
        index: Index,
        found: PyTree,
        key: PRNGKeyArray,
        share: PathShare,
        x: Float[Array, "paths dim"],
        alive: Bool[Array, " paths"],
    ) -> tuple[PyTree, Float[Array, " iterations"]]:
        """Return the parameters of a date, from those of the next date, and the losses."""
        problem, date = regression.problem, regression.date
        after = jnp.minimum(date + 1, problem.num_steps - 1)
        noise, batches = jax.random.split(key)

        def targets_of(share: PathShare, rows: tuple[Array, Array]) -> PyTree[Array]:
            steps = _computed_once(self._steps(problem, date, *rows, share, key=noise))
            return _computed_once(regression.targets(steps, regression.at(after), found))

        targets = share.by_parts(targets_of, (x, alive))
        change = CoordinateChange.between(regression.standardizer, after, date)
        start = found.in_coordinates(change)
        with_best_linear_parts = regression.linear_solver(start, PathRows(share, targets))
        start = with_best_linear_parts(start)
        networks, linear = eqx.partition(start, _is_network, is_leaf=_is_network)
        with_networks = partial(eqx.combine, linear, is_leaf=_is_network)
        sizes = self.num_paths, self.batch_size, self.num_iterations
        batch = share.batches(targets, *sizes, key=batches)

        def loss(networks, iteration: Array, share: PathShare):
            return regression.loss(with_networks(networks), batch(iteration, share))

        optimizer = self._optimizer(index, problem.x0.dtype)
        first = OptimizerState.init(optimizer, networks)
        micro_batches = share.num_parts(self.batch_size)
        last, losses = minimize(loss, optimizer, first, self.num_iterations, share, micro_batches)
        trained = lambda new, old: jnp.where(date > 0, new, old)  # today has a single state
        networks = jax.tree.map(trained, last.parameters, networks)
        return with_best_linear_parts(with_networks(networks)), losses

    def postprocess(
        self, problem: Problem, state: BackwardState, outputs: PyTree[Array]
    ) -> DatewiseApproximation:
        pool, _ = state
        today = jnp.zeros((), jnp.int32)
        regression = self.date_regression(problem, today, pool.standardizer, pool.scale)
        by_date = jax.tree.map(lambda rows: rows[self.first_stages - 1 :][::-1], outputs)
        return DatewiseApproximation(regression, by_date, problem.contracts)

    def describe_stage(self, problem: Problem, stage: int) -> str:
        return f"date {int(self._date(problem, jnp.asarray(stage)))}"

    def metrics(self, state: BackwardState) -> dict[str, Array]:
        pool, parameters = state
        return {"level": parameters.y[0] * pool.scale}

    def _steps(
        self,
        problem: Problem,
        date: Index,
        x: Float[Array, "paths dim"],
        alive: Bool[Array, " paths"],
        share: PathShare,
        *,
        key: PRNGKeyArray,
    ) -> AntitheticSteps:
        """Draw steps from the states of a date."""
        draw = partial(normals, key, dtype=x.dtype)
        noise = share.rows(draw, (self.num_paths, self.num_pairs * problem.dim))
        dw = jnp.sqrt(problem.dt) * noise.reshape(len(noise), self.num_pairs, -1)
        advance = jax.vmap(jax.vmap(problem.advance, (None, None, 0)), (None, 0, 0))
        ends = [advance(problem.times[date], x, move) for move in (dw, -dw)]
        return AntitheticSteps(x, alive.astype(x.dtype), dw, jnp.stack(ends))

    def _date(self, problem: Problem, stage: Index) -> Index:
        return problem.num_steps - 1 - jnp.maximum(stage - (self.first_stages - 1), 0)

    def _optimizer(self, stage: Index, dtype) -> optax.GradientTransformation:
        if self.optimizer is not None:
            return self.optimizer
        slower = self.later_learning_rate / self.learning_rate
        share = jnp.where(stage < self.first_stages, 1.0, slower).astype(dtype)
        return optax.chain(adam(self.learning_rate, self.num_iterations), optax.scale(share))
