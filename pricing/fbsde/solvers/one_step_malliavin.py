"""The one step Malliavin scheme: separate regressions for value, gradient and Hessian."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...fields import word
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
    Index,
    normal_equations,
    quadratic_features,
    value_at_step_end,
)
from .networks import Perceptron

Values = Float[Array, " contracts"]
Slopes = Float[Array, "contracts dim"]


class _NetworkEstimate(NamedTuple):
    """The network parts of Y, Z and Gamma at one state; Gamma is a matrix or its diagonal."""

    value: Values
    slopes: Slopes
    gamma: Slopes | Float[Array, "contracts dim dim"]

    def gamma_times(self, v: State) -> Slopes:
        """Return Gamma v."""
        return self.gamma @ v if self.gamma.ndim == 3 else self.gamma * v[None]

    def trace(self) -> Values:
        """Return the trace of Gamma."""
        gamma = self.gamma
        return jnp.trace(gamma, axis1=1, axis2=2) if gamma.ndim == 3 else jnp.sum(gamma, axis=1)


class _LinearEstimate(NamedTuple):
    """The linear parts of Y, Z, Gamma dW and (dW^T Gamma dW - tr Gamma dt) / 2 on a path."""

    value: Values
    slopes: Slopes
    gamma_dw: Float[Array, "pairs contracts dim"]
    curvature: Values


class MalliavinParameters(NamedTuple):
    """The parameters of one date.

    Y = `y` on (1, x, x^2) + network; Z = `z` on the same + network; Gamma = `gamma`, a matrix, + network.
    """

    y: Float[Array, "terms contracts"]
    z: Float[Array, "terms z_outputs"]
    gamma: Float[Array, "dim z_outputs"]  # transposed: multiplies a vector from the left
    y_network: Perceptron
    z_network: Perceptron
    gamma_network: Perceptron

    def network_estimate(self, x: State) -> _NetworkEstimate:
        """Return the network parts at a standardized state."""
        gamma, (dim, of_z) = self.gamma_network(x), self.gamma.shape
        shape = (-1, dim) if gamma.size == of_z else (-1, dim, dim)
        slopes = self.z_network(x).reshape(-1, dim)
        return _NetworkEstimate(self.y_network(x), slopes, gamma.reshape(shape))

    def linear_y_and_z(
        self, terms: Float[Array, "*batch terms"]
    ) -> tuple[Float[Array, "*batch contracts"], Float[Array, "*batch contracts dim"]]:
        """Return the linear parts of Y and Z from `quadratic_features`: one product."""
        both = terms @ jnp.concatenate([self.y, self.z], axis=1)
        value, slopes = jnp.split(both, [self.y.shape[1]], axis=-1)
        return value, slopes.reshape(*value.shape, -1)

    def gamma_times(self, v: State) -> Slopes:
        """Return the linear part of Gamma v."""
        return (v @ self.gamma).reshape(-1, v.shape[0])

    def in_coordinates(self, change: CoordinateChange) -> "MalliavinParameters":
        """Return the parameters of the same functions of x in the standardized coordinates of another date."""
        y, z, gamma, *networks = self
        return MalliavinParameters(
            change.quadratic(y), change.quadratic(z), gamma, *map(change.network, networks)
        )


class _Targets(NamedTuple):
    """The targets of the networks of a date, by path, in units of the terminal value's standard deviation."""

    x: Float[Array, "paths dim"]
    increments: Float[Array, "paths pairs dim"]
    y: Float[Array, "paths contracts"]
    z: Float[Array, "paths contracts dim"]
    gamma_dw: Float[Array, "paths pairs contracts dim"]  # the change of Z along the increments


class MalliavinRegression(AbstractDateRegression):
    """The regressions of Y, Z and Gamma at one date."""

    def value(self, parameters: MalliavinParameters, x: State) -> Values:
        return self._y_and_z(parameters, self._network_estimate(parameters, x), x)[0]

    def gradient(self, parameters: MalliavinParameters, x: State) -> Slopes:
        _, z = self._y_and_z(parameters, self._network_estimate(parameters, x), x)
        return self.problem.gradient_of(self.time, x, z)

    def hessian(
        self, parameters: MalliavinParameters, x: State
    ) -> Float[Array, "contracts dim dim"]:
        """Return s^{-T} (Gamma s^{-1} - grad_x s^T p), with p the gradient."""
        z_of, gradient_of = self.problem.z_of, self.problem.gradient_of
        every = jnp.eye(self.problem.dim, dtype=x.dtype)
        found = self._network_estimate(parameters, x)
        columns = jax.vmap(lambda v: self._z_along(parameters, found, x, v), out_axes=-1)(every)
        p = gradient_of(self.time, x, self._y_and_z(parameters, found, x)[1])
        rest = columns - jax.jacfwd(lambda x: z_of(self.time, x, p))(x)
        hessian = gradient_of(self.time, x, jnp.swapaxes(rest, 1, 2))
        return 0.5 * (hessian + jnp.swapaxes(hessian, 1, 2))

    def targets(
        self, steps: AntitheticSteps, later: "MalliavinRegression", parameters: MalliavinParameters
    ) -> _Targets:
        problem, after = self.problem, self.date + 1
        smooth = 1.0 - self._kink

        def at_end(x: State):
            found = later._network_estimate(parameters, x)
            continuation = partial(later._y_and_z, parameters, found)
            y, z = value_at_step_end(problem, after, x, continuation)
            z_along = lambda v: smooth * later._z_along(parameters, found, x, v)
            gain, slope = _driver_and_gradient(problem, after, x, y, z, z_along)
            gradient = problem.gradient_of(problem.times[after], x, z)
            return y + 0.5 * gain, gradient, slope

        def from_start(start: State, dw: State, gradient: Array, slope: Array):
            _, back = jax.vjp(lambda x: problem.advance(self.time, x, dw), start)
            at_start = lambda p: problem.z_of(self.time, start, jax.vmap(back)(p)[0])
            return at_start(gradient), at_start(slope)

        y, gradient, slope = over_steps(at_end)(steps.ends)
        to_start = jax.vmap(jax.vmap(jax.vmap(from_start, (None, 0, 0, 0))), (None, 0, 0, 0))
        both = jnp.stack([steps.increments, -steps.increments])
        z, gain = to_start(steps.starts, both, gradient, slope)
        z_scale = self._z_scale[None, :, None]
        even = jnp.mean(z + 0.5 * gain, axis=(0, 2)) / z_scale
        odd = 0.5 * jnp.subtract(*(z + gain)) / z_scale[None]
        y = jnp.mean(y, axis=(0, 2)) / self.scale[None]
        return _Targets(steps.starts, steps.increments, y, even, odd)

    def loss(
        self, parameters: MalliavinParameters, batch: _Targets
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        linear = self._linear_estimates(parameters, batch)
        found = jax.vmap(partial(self._network_estimate, parameters))(batch.x)
        residuals = self._all_residuals(parameters, linear, found, batch)
        y, z, gamma_dw = (jnp.mean(part**2) for part in residuals)
        count = jnp.asarray(len(batch.x), batch.x.dtype)
        return (y + z + gamma_dw) * count, count

    def linear_solver(
        self, like: MalliavinParameters, targets: PathRows
    ) -> Callable[[MalliavinParameters], MalliavinParameters]:
        """Return the solver of the linear parts of Gamma, then Y and Z; f_n converges in a few rounds."""
        dim = like.gamma.shape[0]
        rows = targets.map(lambda part: (part, self._columns(part)))
        of_x, of_dw = rows.sum(lambda part: [columns.gram() for columns in part[1]])
        fit, fit_gamma = normal_equations(of_x, self.active(1 + dim, dim)), normal_equations(of_dw)

        def solve(parameters: MalliavinParameters) -> MalliavinParameters:
            estimate = jax.vmap(partial(self._network_estimate, parameters))
            with_networks = rows.map(lambda part: (*part, estimate(part[0].x)))

            def right_of_gamma(part: tuple[_Targets, list[Columns], _NetworkEstimate]) -> Array:
                targets, (_, of_dw), found = part
                linear = self._linear_estimates(parameters, targets)
                *_, gamma_dw = self._all_residuals(parameters, linear, found, targets)
                return of_dw.with_targets(gamma_dw.reshape(len(of_dw.features), -1))

            change = fit_gamma(with_networks.sum(right_of_gamma))
            parameters = parameters._replace(gamma=parameters.gamma + change)
            with_linear = with_networks.map(
                lambda part: (*part, self._linear_estimates(parameters, part[0]))
            )

            def improve(_, parameters: MalliavinParameters):
                def right(part: tuple) -> Array:
                    targets, (of_x, _), found, linear = part
                    value, slopes = parameters.linear_y_and_z(of_x.features)
                    here = linear._replace(value=value, slopes=slopes)
                    y, z, _ = self._all_residuals(parameters, here, found, targets)
                    # one product
                    return of_x.with_targets(jnp.concatenate([y, z.reshape(len(z), -1)], axis=1))

                change = fit(with_linear.sum(right))
                y, z = jnp.split(change, [parameters.y.shape[1]], axis=1)
                return parameters._replace(y=parameters.y + y, z=parameters.z + z)

            return jax.lax.fori_loop(0, FIXED_POINT_ITERATIONS, improve, parameters)

        return solve

    def _columns(self, targets: _Targets) -> list[Columns]:
        """Return the columns of Y and Z on some paths, and those of Gamma dW."""
        dw = targets.increments / jnp.sqrt(self.problem.dt)
        terms = quadratic_features(jax.vmap(self.standardized)(targets.x))
        return [Columns.of(terms), Columns.of(dw.reshape(-1, dw.shape[-1]))]

    def _network_estimate(self, parameters: MalliavinParameters, x: State) -> _NetworkEstimate:
        return parameters.network_estimate(self.standardized(x))

    def _linear_estimates(
        self, parameters: MalliavinParameters, targets: _Targets
    ) -> _LinearEstimate:
        dim = self.problem.dim
        trace = jnp.trace(parameters.gamma.reshape(dim, -1, dim), axis1=0, axis2=2)

        def at(x: State, dw: Float[Array, "pairs dim"]) -> _LinearEstimate:
            y_and_z = parameters.linear_y_and_z(quadratic_features(self.standardized(x)))
            gamma_dw = jax.vmap(parameters.gamma_times)(dw)
            return _LinearEstimate(*y_and_z, gamma_dw, self._curvature(gamma_dw, dw, trace))

        return jax.vmap(at)(targets.x, targets.increments)

    def _curvature(self, gamma_dw: Array, dw: Float[Array, "pairs dim"], trace: Values) -> Values:
        """Return the mean over pairs of (dW^T Gamma dW - tr Gamma dt) / 2."""
        squares = jnp.mean(jnp.sum(gamma_dw * dw[:, None], axis=2), axis=0)
        return 0.5 * (squares - self.problem.dt * trace)

    def _y_and_z(self, parameters: MalliavinParameters, found: _NetworkEstimate, x: State):
        value, slopes = parameters.linear_y_and_z(quadratic_features(self.standardized(x)))
        y = (value + found.value) * self.scale
        return y, (slopes + found.slopes) * self._z_scale[:, None]

    def _z_along(
        self, parameters: MalliavinParameters, found: _NetworkEstimate, x: State, v: State
    ) -> Slopes:
        """Return (grad_x z) v = Gamma s^{-1} v."""
        s = self.problem.diffusion(self.time, x)
        v = jnp.linalg.solve(s, v) if jnp.ndim(s) == 2 else v / s
        scale = self.scale / self.problem.maturity
        return (parameters.gamma_times(v) + found.gamma_times(v)) * scale[:, None]

    def _all_residuals(self, parameters: MalliavinParameters, *by_path):
        return jax.vmap(partial(self._residuals, parameters))(*by_path)

    def _residuals(
        self,
        parameters: MalliavinParameters,
        linear: _LinearEstimate,
        found: _NetworkEstimate,
        targets: _Targets,
    ):
        """Return the residuals on a path, each in its own units.

        They are those of Y [contracts], of Z [contracts, dim] and of Gamma dW [pairs, contracts, dim].
        """
        problem, x, dw = self.problem, targets.x, targets.increments
        fixed = jax.lax.stop_gradient(found)
        value, slopes = linear.value + found.value, linear.slopes + found.slopes
        y, z = jax.lax.stop_gradient((value * self.scale, slopes * self._z_scale[:, None]))
        share = 1.0 + self._kink
        z_along = lambda v: share * self._z_along(parameters, fixed, x, v)
        gain, slope = _driver_and_gradient(problem, self.date, x, y, z, z_along)
        of_networks = self._curvature(jax.vmap(fixed.gamma_times)(dw), dw, fixed.trace())
        curvature = linear.curvature + of_networks
        y = targets.y + 0.5 * gain / self.scale - curvature / problem.maturity - value
        gain = 0.5 * problem.z_of(self.time, x, slope) / self._z_scale[:, None]
        z = targets.z + gain - slopes
        root_step = jnp.sqrt(problem.dt / problem.maturity)
        gamma_dw = linear.gamma_dw + jax.vmap(found.gamma_times)(dw)
        return y, z, (targets.gamma_dw - gamma_dw / jnp.sqrt(problem.maturity)) / root_step

    @property
    def _kink(self) -> Float[Array, ""]:
        """1 if u may have a kink at the step's end, so that its Hessian there must not be used, else 0."""
        last = self.problem.num_steps
        kinks = self.problem.is_exercise_date | (np.arange(last + 1) == last)
        return jnp.asarray(kinks)[self.date + 1].astype(self.scale.dtype)

    @property
    def _z_scale(self) -> Values:
        return self.scale / jnp.sqrt(self.problem.maturity)


def _driver_and_gradient(
    problem: Problem, date: Index, x: State, y: Array, z: Array, z_along: Callable[[State], Array]
) -> tuple[Values, Slopes]:
    """Return f dt and its gradient in x, with y and z functions of x; z_along: the change of z along v."""
    t = problem.times[date]
    gradient = problem.gradient_of(t, x, z)

    def driver(v: State):
        return problem.flat_driver(t, x + v, y + gradient @ v, z + z_along(v)) * problem.dt

    gain, back = jax.vjp(driver, jnp.zeros_like(x))
    return gain, jax.vmap(back)(jnp.eye(gain.size, dtype=x.dtype))[0]


class OneStepMalliavin(AbstractBackwardSolver):
    """The one step Malliavin scheme: separate regressions for u, its gradient and its Hessian at every date.

    Y, Z and Gamma solve the equation and its Malliavin derivative, D_s Y = Z_s today: over one step, with
    D_n X_n = s, D_n X_{n+1} = (dX_{n+1} / dX_n) s and F = grad_x of f(t, x, u(x), s^T grad u(x)),

        Z_n + Gamma_n dW = (D_n X_{n+1})^T (grad u_{n+1} + F_{n+1} dt / 2) + s^T F_n dt / 2
        Y_n + Z_n dW + (dW^T Gamma_n dW - tr Gamma_n dt) / 2 = Y_{n+1} + (f_n + f_{n+1}) dt / 2

    in least squares, over steps along dW and -dW: sums over such a pair determine Z and Y, differences Gamma
    (with F_{n+1} dt, to first order). Gamma_n is the matrix D_n Z_n = (grad_x z) s, in the coordinates of the
    Brownian motions; the Hessian is s^{-T} (Gamma s^{-1} - grad_x s^T grad u), so s must be invertible. Its
    term in the second line is noise for Y, known and subtracted. The gradients of f use Gamma instead of a
    derivative of the network for Z; if the step ends in a kink (exercise or the last date), only Gamma_n.

    In addition to their networks, Y and Z have affine and quadratic parts in each coordinate, and Gamma a
    matrix, which are solved for by least squares before and after the training of the networks. Early exercise
    is as in `BackwardDP`. The terminal and exercise values must be continuous. Today all three are learned only
    at x0.

    Negyesi, Andersson, Oosterlee, IMA J. Numer. Anal. 44 (2024), here with the driver at both ends of a step.

    Attributes:
        gamma: "full": a network for all dim^2 entries; "diagonal": a matrix for each date, and a network only
            for its diagonal, which is right if off-diagonal entries do not depend on x (sums of functions of
            one coordinate); see `docs/accuracy.md` for its errors with a radial function and narrow layers. The
            other settings, by keyword, are those of `AbstractBackwardSolver`.

    Raises:
        ValueError: A setting is out of range.
    """

    date_regression: ClassVar[type[AbstractDateRegression]] = MalliavinRegression

    gamma: str = word("gamma", ("full", "diagonal"), default="full")

    def unsupported_reason(self, problem: Problem) -> str | None:
        if problem.stopping_dates:
            return (
                "stopped paths, where the value jumps and has no Malliavin derivative: "
                "BackwardDP and GradientRegression support them"
            )
        return beyond_networks(problem)

    def init_parameters(
        self, problem: Problem, num_contracts: int, *, key: PRNGKeyArray
    ) -> MalliavinParameters:
        dim, dtype = problem.dim, problem.x0.dtype
        of_z = num_contracts * dim
        of_gamma = of_z * dim if self.gamma == "full" else of_z
        keys, outputs = jax.random.split(key, 3), (num_contracts, of_z, of_gamma)
        networks = [
            self.architecture(dim, count, dim, dtype, key=key)
            for key, count in zip(keys, outputs, strict=True)
        ]
        shapes = (1 + 2 * dim, num_contracts), (1 + 2 * dim, of_z), (dim, of_z)
        y, z, gamma = (jnp.zeros(shape, dtype) for shape in shapes)
        return MalliavinParameters(y, z, gamma, *networks)
