"""Gradient-enhanced regression: one linear least-squares problem per date, for all contracts at once."""

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from jaxtape.jax_settings.platform import platforms_in_use

from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.forward_paths import simulate, survival
from ..dynamics.gamma_drivers import unstable
from ..dynamics.ito_taylor import (
    Functions,
    Moves,
    States,
    martingale_increments,
)
from ..path_shares import ON_EVERY_DEVICE, PathShare, check_shares, on_axis, per_device
from ..problem import Problem, State, ends_of_step
from ..solver import AbstractApproximation, AbstractSolver, Date
from .bases import (
    AbstractBasis,
    BasisTargets,
    Hermite,
    MeanPolynomials,
    PayoffBasis,
    compositions,
)

_ROUNDING = 64.0  # multiples of a rounding error below which a direction is noise
_DIVERGED = 2.0  # residual in variances of the target; a proper fit leaves at most one
_HESSIANS = 2**21  # entries of Hessians in memory at once
_CACHED = 2**15  # numbers of a block's states that a core's cache holds beside their derivatives
_MAX_LEVERAGE = 0.1  # largest leverage of a path on the fit at its own state

Values = Float[Array, "contracts paths"]


class RegressionState(NamedTuple):
    """The state on the paths at the last processed date, and the data shared by all dates.

    cash_flow: future cash flows along a path, less the noise of its martingale; value: the regression's
    estimate of them, after exercise or a stop; driver: f there; floor: lower bound of the continuation value
    (`exercise_floor`).
    """

    cash_flow: Values
    value: Values
    driver: Values
    states: Float[Array, "dates dim paths"]
    increments: Float[Array, "steps dim paths"]
    alive: Float[Array, "dates paths"]
    basis_parameters: PyTree[Array]
    floor: Float[Array, " contracts"]


class _DatePaths(NamedTuple):
    """The data of each path for the fit of a date."""

    cash_flow: Values
    driver: Values
    states: States
    increments: States
    alive: Float[Array, " paths"]


class GradientRegression(AbstractSolver):
    """Gradient-enhanced least squares: u at each date is a combination of functions, fitted with its gradient.

    At date n, the latest first, the coefficients c minimize the mean over paths of

        (V_{n+1} + F_n dt - c . (phi + M phi)(X_n))^2,   M phi = D phi + (D^2 phi - dt sum_k D_k^2 phi) / 2,

    where D is the derivative along s dW and D_k along the k-th column of s: M phi is the change of phi over the
    step without its drift (without the bracket if order = 1). It explains the noise of V, so that few paths
    suffice, and its coefficients are those of the gradient. V is the cash flow along the path after exercise,
    less M at later dates: cash flows are fitted, not later fits. F is the mean of f over both ends of the step.
    The Gram matrix is inverted once per date, for any number of contracts.

    Yang, Wang, Li, arXiv:2305.06555 (2023). The second-order term is the Ito-Taylor expansion's (Kloeden,
    Platen (1992), section 5.5).

    Attributes:
        num_paths: The number of paths, a multiple of `block`.
        bases: Sets of basis functions of the state; their union is phi.
        order: 1 or 2, the order of M in the noise.
        initial_dispersion: The dispersion of the paths' initial states, as a fraction of the maturity, so that
            today's Delta and Gamma are fitted around x0. With 0, all paths start at x0, and Delta and Gamma
            come from the first step. Use 0 if x0 is unlike dispersed states (the smallest of a hundred equal
            coordinates is far from the smallest of dispersed ones), or if coordinates depend on each other (a
            spot and its running maximum), because they are dispersed independently unless the problem has a
            `start`.
        block: The maximum number of paths whose functions are evaluated together. A CPU evaluates fewer if
            their states do not fit its cache.
        mesh: The devices that share the paths (axis "paths"), or None.

    Raises:
        ValueError: A setting is out of range.

    Examples:
        >>> from pricing.fbsde import GradientRegression, Hermite, PayoffBasis
        >>> GradientRegression(8192, bases=(Hermite(6), PayoffBasis())).order
        2
    """

    num_paths: int = eqx.field(static=True, default=16384)
    bases: tuple[AbstractBasis, ...] = (Hermite(2), MeanPolynomials(5, above=2), PayoffBasis())
    order: int = eqx.field(static=True, default=2)
    initial_dispersion: float = eqx.field(static=True, default=0.05)
    block: int = eqx.field(static=True, default=4096)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.order not in (1, 2):
            raise ValueError(
                f"order={self.order}: give 1 or 2, the order of the expansion in the noise."
            )
        if self.num_paths % self.block:
            raise ValueError(f"num_paths={self.num_paths} is not a multiple of block={self.block}.")

    def unsupported_reason(self, problem: Problem) -> str | None:
        return unstable(problem)

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps

    def describe_stage(self, problem: Problem, stage: int) -> str:
        return f"date {problem.num_steps - 1 - stage}"

    def init(self, problem: Problem, *, key: PRNGKeyArray) -> RegressionState:
        check_shares(self.mesh, num_paths=self.num_paths)
        dispersion = self.initial_dispersion
        paths = simulate(
            problem, self.num_paths, key=key, initial_dispersion=dispersion, mesh=self.mesh
        )
        states, increments = (jnp.swapaxes(x, 1, 2) for x in paths)
        # x0 alone has no scale: use that of the next date
        scaled = states if dispersion > 0.0 else states.at[0].set(states[1])
        parameters = tuple(basis.init(problem, scaled) for basis in self.bases)
        alive = survival(problem, paths.states).astype(states.dtype)
        at_end = eqx.Partial(self._at_end, problem)
        specs = (on_axis(1), on_axis(0)), on_axis(1)
        paid, driver = per_device(at_end, self.mesh, *specs)(states[-1], alive[-1])
        floor = exercise_floor(problem)
        return RegressionState(paid, paid, driver, states, increments, alive, parameters, floor)

    def stage(self, problem: Problem, state: RegressionState, index: Array, *, key: PRNGKeyArray):
        date = problem.num_steps - 1 - index
        of_date = (part[date] for part in (state.states, state.increments, state.alive))
        paths = _DatePaths(state.cash_flow, state.driver, *of_date)
        values = on_axis(1)
        in_specs = _DatePaths(values, values, values, values, on_axis(0))
        out_specs = values, values, values, ON_EVERY_DEVICE, ON_EVERY_DEVICE, ON_EVERY_DEVICE
        fit = eqx.Partial(self._fitted, problem, date, state.basis_parameters, state.floor, key)
        on_devices = per_device(fit, self.mesh, (in_specs,), out_specs)
        cash_flow, value, driver, trained, coefficients, loss = on_devices(paths)
        set_row = lambda rows, row: rows.at[date].set(row)
        parameters = jax.tree.map(set_row, state.basis_parameters, trained)
        held = {"cash_flow": cash_flow, "value": value, "driver": driver}
        return state._replace(**held, basis_parameters=parameters), coefficients, loss[None]

    def postprocess(
        self, problem: Problem, state: RegressionState, outputs: Any
    ) -> "BasisExpansion":
        parameters = state.basis_parameters
        return BasisExpansion(problem, self.bases, parameters, outputs, problem.contracts)

    def _at_end(
        self, problem: Problem, share: PathShare, x: States, alive: Float[Array, " paths"]
    ) -> tuple[Values, Values]:
        """Return the value and the driver on the paths of a share at maturity."""
        del share
        t = problem.times[-1]
        paid = _flat(jax.vmap(problem.terminal, -1, -1)(x))
        paid = self._after_stop(problem, problem.num_steps, x, alive, paid)
        if problem.reads_gamma:  # Gamma may not be finite at the end: take f at the start
            return paid, jnp.zeros_like(paid)
        z = jax.vmap(lambda x: problem.z_of(t, x, problem.terminal_gradient(x)), -1, -1)(x)
        return paid, _driver(problem, t, x, paid, z)

    def _fitted(
        self,
        problem: Problem,
        date: Array,
        basis_parameters: PyTree[Array],
        floor: Float[Array, " contracts"],
        key: PRNGKeyArray,
        share: PathShare,
        paths: "_DatePaths",
    ) -> tuple[Values, Values, Values, PyTree[Array], Array, Array]:
        """Return cash flow, value and driver on a share's paths, and the date's parameters, fit and loss."""
        t, x, alive = problem.times[date], paths.states, paths.alive
        parameters = self._trained(problem, date, basis_parameters, paths, share, key=key)
        functions, increments = self._functions(problem, parameters, t, x, paths.increments)
        fit = _LeastSquares.of(functions + increments, alive, share)

        target = paths.cash_flow + problem.dt * paths.driver
        guess = fit.coefficients(target)
        slope = self._driver_at(problem, parameters, t, x, guess, guess @ functions)
        slope = fit.bounded(slope)
        late, early = ends_of_step(problem, date)
        earned = paths.cash_flow + problem.dt * (late * paths.driver + early * slope)
        coefficients = fit.coefficients(earned)

        value = coefficients @ functions
        cash_flow = earned - coefficients @ increments
        loss = fit.loss(target, cash_flow - value)
        switched = jax.vmap(partial(problem.after_switch, date), -1, -1)(x, value)
        cash_flow = jnp.where(switched > value, switched, cash_flow)
        exercised, paid = self._exercise(problem, date, x, switched, floor)
        held = jnp.where(exercised, paid, cash_flow), jnp.where(exercised, paid, switched)
        cash_flow, value = (self._after_stop(problem, date, x, alive, v) for v in held)
        driver = self._driver_at(problem, parameters, t, x, coefficients, value)
        return cash_flow, value, fit.bounded(driver), parameters, coefficients, loss

    def _trained(
        self,
        problem: Problem,
        date: Array,
        basis_parameters: PyTree[Array],
        paths: "_DatePaths",
        share: PathShare,
        *,
        key: PRNGKeyArray,
    ) -> PyTree[Array]:
        """Return the bases' parameters at a date; trained ones start from those of the next date."""
        after = jnp.minimum(date + 1, problem.num_steps - 1)
        here, later = (
            jax.tree.map(lambda leaf, row=row: leaf[row], basis_parameters) for row in (date, after)
        )
        if not any(basis.is_trainable for basis in self.bases):
            return here
        t, x, dw = problem.times[date], paths.states, paths.increments
        parameters = tuple(
            basis.warm_start(*both) for basis, *both in zip(self.bases, here, later, strict=True)
        )
        functions, increments = self._functions(problem, parameters, t, x, dw)
        columns, target = functions + increments, paths.cash_flow + problem.dt * paths.driver
        fit = _LeastSquares.of(columns, paths.alive, share)
        coefficients = fit.coefficients(target)
        rest = target - coefficients @ columns
        squares = share.total(jnp.sum(rest**2, axis=1, keepdims=True))
        scale = jnp.sqrt(squares / self.num_paths)
        scale = jnp.where(scale > 0.0, scale, 1.0)
        noise = jax.vmap(partial(problem.diffused, t), -1, -1)(x, dw)

        trained, first = [], 0
        for basis, own in zip(self.bases, parameters, strict=True):
            features = basis.features(problem, own, t, x[:, :1])
            last = first + len(basis.outer(own, features))
            c = coefficients[:, first:last]
            left = (rest + c @ columns[first:last]) / scale
            of_paths = x, noise, paths.alive
            targets = BasisTargets(*of_paths, c / scale, left, self.num_paths, share)
            trained.append(basis.train(own, targets, key=jax.random.fold_in(key, first)))
            first = last
        return tuple(trained)

    def _functions(self, problem: Problem, parameters, t, x: States, dw: States) -> Moves:
        """Return the functions and their increments, evaluated a block of paths at a time."""
        parts = compositions(self.bases, problem, parameters, t)

        def of_block(block: tuple[States, States]):
            return martingale_increments(problem, parts, t, *block, self.order)

        block = math.gcd(self.block, x.shape[1])
        if platforms_in_use() == {"cpu"}:
            while block % 2 == 0 and block * problem.dim > _CACHED:
                block //= 2
        blocks = lambda a: jnp.moveaxis(a.reshape(len(a), -1, block), 1, 0)
        together = lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1)
        return jax.tree.map(together, jax.lax.map(of_block, (blocks(x), blocks(dw))))

    def _driver_at(
        self, problem: Problem, parameters, t, x: States, coefficients, value: Values
    ) -> Values:
        """Return f, with Z from the gradient of the combination, and Gamma if f reads it."""
        parts = compositions(self.bases, problem, parameters, t)

        def value_at(x: State):
            return coefficients @ jnp.concatenate([f(x[:, None])[:, 0] for f in parts])

        slopes = jax.jacrev if len(coefficients) < problem.dim else jax.jacfwd
        gradient = slopes(value_at)
        if not problem.reads_gamma:
            z = jax.vmap(lambda x: problem.z_of(t, x, gradient(x)), -1, -1)(x)
            return _driver(problem, t, x, value, z)

        def at(of_path):
            x, value = of_path
            z = problem.z_of(t, x, gradient(x))
            return problem.flat_driver(t, x, value, z, jax.jacfwd(gradient)(x))

        at_once = max(1, _HESSIANS // (len(coefficients) * problem.dim**2))
        return jax.lax.map(at, (x.T, value.T), batch_size=at_once).T

    def _exercise(self, problem: Problem, date, x: States, continuation: Values, floor: Array):
        """Return the mask of the paths where the holder exercises, and the exercise value."""
        if problem.exercise_value is None:
            return jnp.zeros(continuation.shape, bool), continuation
        t = problem.times[date]
        paid = _flat(jax.vmap(problem.exercise_value, (None, -1), -1)(t, x))
        is_open = jnp.asarray(problem.is_exercise_date)[date]
        return is_open & (paid > jnp.maximum(continuation, floor[:, None])), paid

    def _after_stop(self, problem: Problem, date, x: States, alive, value: Values) -> Values:
        """Return `value` on paths that are alive, and the payment at the stop on the others."""
        if problem.is_alive is None:
            return value
        t = problem.times[date]
        paid = _flat(jax.vmap(problem.paid_at_stop, (None, -1), -1)(t, x))
        return jnp.where(alive[None] > 0.0, value, paid)


class _LeastSquares(NamedTuple):
    """Weighted least squares on common columns for any number of targets, over the paths of all shares.

    has_low_leverage: whether a path does not dominate the fit at its own state.
    """

    columns: Functions
    weights: Float[Array, " paths"]
    inverse: Float[Array, "functions functions"]
    has_low_leverage: Bool[Array, " paths"]
    share: PathShare

    @classmethod
    def of(
        cls, columns: Functions, weights: Float[Array, " paths"], share: PathShare
    ) -> "_LeastSquares":
        weights = weights / jnp.maximum(share.total(jnp.sum(weights)), 1.0)
        inverse = _inverse(share.total((columns * weights[None]) @ columns.T))
        leverage = weights * jnp.sum(columns * (inverse @ columns), axis=0)
        return cls(columns, weights, inverse, (leverage < _MAX_LEVERAGE) & (weights > 0.0), share)

    def bounded(self, driver: Values) -> Values:
        """Return f, clipped on paths of high leverage to its range on all others.

        Far out, the fit is only determined by f itself: without bounds, f would amplify itself.
        """
        low_leverage = self.has_low_leverage[None]
        low = jnp.min(driver, axis=1, keepdims=True, where=low_leverage, initial=jnp.inf)
        high = jnp.max(driver, axis=1, keepdims=True, where=low_leverage, initial=-jnp.inf)
        low, high = self.share.minimum(low), -self.share.minimum(-high)
        return jnp.where(low_leverage | (low > high), driver, jnp.clip(driver, low, high))

    def loss(self, target: Values, residuals: Values) -> Float[Array, ""]:
        """Return the mean square of the residuals; infinite if it far exceeds the target's variance.

        In that case f at this date, which depends on the fit, dominates all data.
        """
        total = self.share.total
        squares, mean = total((residuals**2 @ self.weights, target @ self.weights))
        rounding = jnp.finfo(target.dtype).eps * mean**2  # half of the digits
        variance = total((target - mean[:, None]) ** 2 @ self.weights) + rounding
        return jnp.where(jnp.any(squares > _DIVERGED * variance), jnp.inf, jnp.mean(squares))

    def coefficients(self, target: Values) -> Float[Array, "contracts functions"]:
        """Return the fit to the target plus a fit to its residual, which removes the bias of the ridge."""
        product = lambda target: (target * self.weights[None]) @ self.columns.T
        fit = lambda target: self.share.total(product(target)) @ self.inverse
        first = fit(target)
        return first + fit(target - first @ self.columns)


def _inverse(gram: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return the inverse of a Gram matrix on its numerical range, and zero in other directions."""
    scale = jax.lax.rsqrt(jnp.maximum(jnp.diagonal(gram), jnp.finfo(gram.dtype).tiny))
    values, vectors = jnp.linalg.eigh(gram * scale[:, None] * scale[None, :])
    spanned = values > _ROUNDING * jnp.finfo(gram.dtype).eps * values[-1]
    parts = jnp.where(spanned, 1.0 / jnp.where(spanned, values, 1.0), 0.0)
    rows = vectors * scale[:, None]
    return (rows * parts[None]) @ rows.T


class BasisExpansion(AbstractApproximation):
    """u as coefficients of the functions of every date, the latest first."""

    problem: Problem
    bases: tuple[AbstractBasis, ...]
    basis_parameters: PyTree[Array]
    coefficients: Float[Array, "steps contracts functions"]
    contracts: tuple[int, ...] = eqx.field(static=True)

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        return (self._at(date) @ self._functions(date, x)).reshape(self.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        if self.coefficients.shape[1] < self.problem.dim:  # one reverse sweep per contract
            return super().gradient(date, x)
        slopes = jax.jacfwd(self._functions, argnums=1)(date, x)
        return (self._at(date) @ slopes).reshape(*self.contracts, -1)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        if self.coefficients.shape[1] < self.problem.dim:
            return super().hessian(date, x)
        curves = jax.jacfwd(jax.jacfwd(self._functions, argnums=1), argnums=1)(date, x)
        shape = *self.contracts, self.problem.dim, self.problem.dim
        return jnp.tensordot(self._at(date), curves, 1).reshape(shape)

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "BasisExpansion":
        summed = jnp.einsum("scf,c->sf", self.coefficients, quantities)[:, None]
        return replace(self, coefficients=summed, contracts=())

    def _at(self, date: Date) -> Float[Array, "contracts functions"]:
        return self.coefficients[self.problem.num_steps - 1 - date]

    def _functions(self, date: Date, x: State) -> Float[Array, " functions"]:
        parameters = jax.tree.map(lambda leaf: leaf[date], self.basis_parameters)
        t = self.problem.times[date]
        parts = compositions(self.bases, self.problem, parameters, t)
        return jnp.concatenate([f(x[:, None])[:, 0] for f in parts])


def _flat(values: Float[Array, "*contracts paths"]) -> Values:
    return values.reshape(-1, values.shape[-1])


def _driver(problem: Problem, t, x: States, value: Values, z: Array) -> Values:
    return jax.vmap(partial(problem.flat_driver, t), -1, -1)(x, value, z)
