"""Deep backward dynamic programming: networks for Y and Z, one regression per date, the latest first."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..dynamics.forward_paths import AntitheticSteps, over_steps
from ..path_shares import PathRows
from ..problem import Problem, State
from ..solver import beyond_networks
from .backward_regression import (
    FIXED_POINT_ITERATIONS,
    AbstractBackwardSolver,
    AbstractDateRegression,
    Columns,
    CoordinateChange,
    normal_equations,
    quadratic_features,
    value_at_step_end,
)
from .networks import Architecture, Perceptron


class BackwardParameters(NamedTuple):
    """The parameters of one date.

    Y = `y` on (1, x, x^2) + network; Z = `z` on the same, coordinate by coordinate, + network. The latter is
    None if Z is the derivative of Y.
    """

    y: Float[Array, "terms contracts"]
    z: Float[Array, "three_dim contracts"] | None
    y_network: Perceptron
    z_network: Perceptron | None

    def value(self, x: State) -> Float[Array, " contracts"]:
        """Return Y at a standardized state."""
        return quadratic_features(x) @ self.y + self.y_network(x)

    def slopes(self, x: State) -> Float[Array, "contracts dim"]:
        """Return Z at a standardized state, if Z has its own network."""
        assert self.z is not None and self.z_network is not None
        dim = x.shape[0]
        terms = self.z.T.reshape(-1, 3, dim)
        linear = jnp.sum(terms * jnp.stack(_features_by_coordinate(x))[None], axis=1)
        return linear + self.z_network(x).reshape(-1, dim)

    def in_coordinates(self, change: CoordinateChange) -> "BackwardParameters":
        """Return the parameters of the same functions of x in the standardized coordinates of another date."""
        y, y_network = change.quadratic(self.y), change.network(self.y_network)
        if self.z is None or self.z_network is None:
            return BackwardParameters(y, None, y_network, None)
        dim = change.scale.shape[0]
        z = jnp.concatenate(change.by_coordinate(self.z[:dim], self.z[dim:]))
        return BackwardParameters(y, z, y_network, change.network(self.z_network))


def _features_by_coordinate(x: Float[Array, "*batch dim"]) -> tuple[Array, Array, Array]:
    """Return 1, x and (x^2 - 1) / 2, each for every coordinate."""
    return jnp.ones_like(x), x, 0.5 * (x**2 - 1.0)


class Targets(NamedTuple):
    """The targets of the networks of a date, by path: Y + f dt / 2 one step later.

    even: the mean over antithetic pairs; odd: half the difference of each pair.
    """

    x: Float[Array, "paths dim"]
    weight: Float[Array, " paths"]
    increments: Float[Array, "paths pairs dim"]
    even: Float[Array, "paths contracts"]
    odd: Float[Array, "paths pairs contracts"]


class NetworkRegression(AbstractDateRegression):
    """The regression of Y and Z at one date."""

    extrapolates_gamma: ClassVar[bool] = True

    def value(self, parameters: BackwardParameters, x: State) -> Float[Array, " contracts"]:
        return self._y_and_z(parameters, x)[0]

    def gradient(self, parameters: BackwardParameters, x: State) -> Float[Array, "contracts dim"]:
        if parameters.z is None:
            slope = jax.jacrev(parameters.value)(self.standardized(x))
            return slope * self.scale[:, None] * self.whitening
        return self.problem.gradient_of(self.time, x, self._y_and_z(parameters, x)[1])

    def hessian(
        self, parameters: BackwardParameters, x: State
    ) -> Float[Array, "contracts dim dim"]:
        found = jax.jacfwd(self.gradient, argnums=1)(parameters, x)
        return 0.5 * (found + jnp.swapaxes(found, -1, -2))  # a network for Z is not symmetric

    def targets(
        self, steps: AntitheticSteps, later: "NetworkRegression", parameters: BackwardParameters
    ) -> Targets:
        problem = self.problem
        after = self.date + 1
        continuation = partial(later._y_and_z, parameters)

        def at_end(x: State):
            y, z = value_at_step_end(problem, after, x, continuation)
            return y + 0.5 * problem.flat_driver(problem.times[after], x, y, z) * problem.dt

        values = over_steps(at_end)(steps.ends)
        even = jnp.mean(values, axis=(0, 2)) / self.scale[None]
        odd = 0.5 * (values[0] - values[1]) / self.scale[None, None]
        return Targets(steps.starts, steps.weights, steps.increments, even, odd)

    def loss(
        self, parameters: BackwardParameters, batch: Targets
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        even, odd = jax.vmap(self.residuals, (None, 0))(parameters, batch)
        squares = jnp.mean(even**2, axis=1) + jnp.mean(odd**2, axis=(1, 2))
        return jnp.sum(batch.weight * squares), jnp.sum(batch.weight)

    def linear_solver(
        self, like: BackwardParameters, targets: PathRows
    ) -> Callable[[BackwardParameters], BackwardParameters]:
        """Return the solver of the linear parts; f_n, which depends on them, converges in a few rounds."""
        rows = targets.map(lambda part: (part, self._columns(part, like.z is None)))
        grams = rows.sum(lambda part: [columns.gram() for columns in part[1]])
        dim = self.problem.dim
        active = self.active(1 + dim, dim), self.active(dim, dim, dim)
        fits = [normal_equations(*given) for given in zip(grams, active, strict=False)]

        def improve(_, parameters: BackwardParameters):
            def right(part: tuple[Targets, list[Columns]]) -> list[Array]:
                even, odd = jax.vmap(self.residuals, (None, 0))(parameters, part[0])
                both = [even, odd.reshape(-1, odd.shape[-1])]
                both = [jnp.concatenate(both)] if parameters.z is None else both
                return [each.with_targets(left) for each, left in zip(part[1], both, strict=True)]

            change = [fit(each) for fit, each in zip(fits, rows.sum(right), strict=True)]
            y = parameters.y + change[0]
            z = None if parameters.z is None else parameters.z + change[1]
            return parameters._replace(y=y, z=z)

        return lambda start: jax.lax.fori_loop(0, FIXED_POINT_ITERATIONS, improve, start)

    def _columns(self, targets: Targets, of_y_alone: bool) -> list[Columns]:
        """Return the columns of Y on some paths, and those of Z, or one of both if Z is the derivative of Y."""
        x = jax.vmap(self.standardized)(targets.x)
        in_y = quadratic_features(x)
        weights = jnp.repeat(targets.weight, targets.odd.shape[1])
        if of_y_alone:
            along_noise = jax.vmap(partial(self._along_noise, quadratic_features))
            in_z = along_noise(targets.x, targets.increments) / self._root_step
            both = jnp.concatenate([in_y, in_z.reshape(weights.size, -1)])
            return [Columns.of(both, jnp.concatenate([targets.weight, weights]))]
        dw = targets.increments / jnp.sqrt(self.problem.dt)
        each = jnp.concatenate(_features_by_coordinate(x), axis=1)[:, None]
        in_z = (each * jnp.tile(dw, 3)).reshape(weights.size, -1)
        return [Columns.of(in_y, targets.weight), Columns.of(in_z, weights)]

    def _y_and_z(self, parameters: BackwardParameters, x: State):
        y = parameters.value(self.standardized(x)) * self.scale
        if parameters.z is None:
            return y, self.problem.z_of(self.time, x, self.gradient(parameters, x))
        z_scale = self.scale / jnp.sqrt(self.problem.maturity)
        return y, parameters.slopes(self.standardized(x)) * z_scale[:, None]

    def residuals(self, parameters: BackwardParameters, targets: Targets):
        """Return the residuals on a path, of Y [contracts] and of Z dW [pairs, contracts], in units of Z."""
        problem, x, dw = self.problem, targets.x, targets.increments
        gain, gain_slope = self._half_driver(jax.lax.stop_gradient(parameters), x, dw)
        even = targets.even + gain - parameters.value(self.standardized(x))
        odd = targets.odd + gain_slope
        if parameters.z is not None:
            slopes = parameters.slopes(self.standardized(x)) / jnp.sqrt(problem.maturity)
            return even, (odd - dw @ slopes.T) / self._root_step
        return even, (odd - self._along_noise(parameters.value, x, dw)) / self._root_step

    def _half_driver(self, parameters: BackwardParameters, x: State, dw: Float[Array, "pairs dim"]):
        """Return f dt / 2 at the step's start [contracts], and its change along s dW [pairs, contracts]."""

        def gain(x: State):
            y, z = self._y_and_z(parameters, x)
            driver = self.problem.flat_driver(self.time, x, y, z)
            return 0.5 * driver * self.problem.dt / self.scale

        along = lambda dw: jax.jvp(gain, (x,), (self.problem.diffused(self.time, x, dw),))
        return jax.vmap(along, out_axes=(None, 0))(dw)

    def _along_noise(self, function: Callable, x: State, dw: Float[Array, "pairs dim"]) -> Array:
        """Return the derivative of a function of the standardized state along s dW."""
        noise = jax.vmap(self.problem.diffused, (None, None, 0))(self.time, x, dw)
        along = lambda v: jax.jvp(function, (self.standardized(x),), (v,))[1]
        return jax.vmap(along)(noise * self.whitening)

    @property
    def _root_step(self) -> Float[Array, ""]:
        """The unit of the residual of Z dW."""
        return jnp.sqrt(self.problem.dt / self.problem.maturity)


def y_alone(
    architecture: Architecture, problem: Problem, num_contracts: int, *, key: PRNGKeyArray
) -> BackwardParameters:
    """Return the parameters before the first stage if Z is the derivative of Y."""
    dim, dtype = problem.dim, problem.x0.dtype
    y = jnp.zeros((1 + 2 * dim, num_contracts), dtype)
    return BackwardParameters(y, None, architecture(dim, num_contracts, dim, dtype, key=key), None)


class BackwardDP(AbstractBackwardSolver):
    """Deep backward dynamic programming: u and its gradient, by a regression at each date.

    Variant 1 has networks for Y_n and Z_n; in variant 2, Z_n = s^T grad Y_n. Over steps along dW and -dW it
    fits

        Y_n = even part of Y_{n+1} + f_{n+1} dt / 2, and f_n dt / 2;
        Z_n dW = odd part of Y_{n+1} + f_{n+1} dt / 2, and (grad f_n) s dW dt / 2,

    in least squares. This is the loss of the paper, (Y_{n+1} + f dt - Y_n - Z_n dW)^2, summed over each pair,
    with the driver at both ends for Y and Z. In addition to their networks, Y and Z have affine and quadratic
    parts in each coordinate, which are solved for by least squares before and after the training of the
    networks. Training starts from the networks of the next date.

    Early exercise: the network is the continuation value; the previous date is fitted to the maximum of it and
    the exercise value (RDBDP). Stopped paths have the stopped value. Today all states are x0: value and
    gradient are learned only there, and extended by the functions of the next date.

    Huré, Pham, Warin, Math. Comp. 89 (2020): DBDP1, DBDP2, RDBDP.

    Attributes:
        variant: 1 or 2. The other settings, by keyword, are those of `AbstractBackwardSolver`.

    Raises:
        ValueError: A setting is out of range.
    """

    date_regression: ClassVar[type[AbstractDateRegression]] = NetworkRegression

    variant: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.variant not in (1, 2):
            raise ValueError(
                f"variant={self.variant}: give 1 (networks for Y and Z) or 2 (Z from Y's gradient)."
            )

    def unsupported_reason(self, problem: Problem) -> str | None:
        return beyond_networks(problem)

    def init_parameters(
        self, problem: Problem, num_contracts: int, *, key: PRNGKeyArray
    ) -> BackwardParameters:
        y_key, z_key = jax.random.split(key)
        of_y = y_alone(self.architecture, problem, num_contracts, key=y_key)
        if self.variant == 2:
            return of_y
        dim, dtype = problem.dim, problem.x0.dtype
        z_network = self.architecture(dim, num_contracts * dim, dim, dtype, key=z_key)
        return of_y._replace(z=jnp.zeros((3 * dim, num_contracts), dtype), z_network=z_network)
