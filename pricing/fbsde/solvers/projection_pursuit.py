"""Projection pursuit: least squares on a separate function for each of thousands of contracts."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..dynamics.driver_form import driver_forms
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.forward_paths import simulate
from ..dynamics.linear_pieces import MEANS, PieceSums, linear, moments
from ..dynamics.ridge_functions import (
    Coordinates,
    RidgeFit,
    Values,
    discount_factors,
    martingale_functions,
    rate,
    value_functions,
)
from ..dynamics.step_weights import polynomial_weights
from ..path_shares import ON_EVERY_DEVICE, PathShare, check_shares, on_axis, per_device
from ..problem import Problem, State
from ..solver import AbstractApproximation, AbstractSolver, Date, beyond_networks

_RIDGE = 1e3  # in rounding errors of a function's variance
_SPREAD = 1.25  # factor of the noise of training paths, for more of them in the tails
_SIGNIFICANT = 6.0  # standard deviations by which shared functions must explain more than noise


class PursuitState(NamedTuple):
    """The cash flows of the last processed date, less the martingale, in tiles of paths, and the paths."""

    cash_flow: Float[Array, "tiles contracts paths"]
    states: Float[Array, "dates tiles dim paths"]
    noise: Float[Array, "steps tiles dim paths"]
    coordinates: Coordinates
    floor: Float[Array, " contracts"]


class _Tile(NamedTuple):
    """Coordinates and normals of a step, [dim, paths], and the cash flows after it, [contracts, paths]."""

    z: Array
    xi: Array
    target: Values


class ProjectionPursuit(AbstractSolver):
    """Least squares on a function of one direction per contract, and on functions shared by all.

    At date n, the latest first, each contract has a direction (a, b) in the state and the noise of the next
    step. With z the standardized state (log prices) and xi the normals of the step, the discounted cash flow V
    after the date is fitted by a piecewise linear function v of one projection,

        V = v(p) + rest,  p = a . z + b . xi,  |a|^2 + |b|^2 = 1.

    The value of the date is E[v(p) | z], known in closed form, and v(p) - E[v(p) | z] is the noise of V, a
    martingale increment that is subtracted from the next target. The direction comes from a regression of V on
    z and xi and then, with far less noise, of the rest. The rest is fitted by polynomials of degree 2 in z and
    in (z, xi), with one Gram matrix for all contracts, where they explain more of a contract than noise would.
    Payoffs of a weighted mean need no more. The cost per contract is linear in the dimension, not quadratic.
    The noise of the training paths is 1.25 times the equation's, which gives more paths to the tails and to
    contracts far out of the money.

    It is for many contracts whose driver discounts (f = -r y), with or without early exercise. `certify` uses
    both sums as control variates, so that value, Delta and Gamma of all contracts come from the same paths.

    Friedman, Stuetzle, J. Am. Stat. Assoc. 76 (1981). The martingale is that of Belomestny, Milstein,
    Schoenmakers, Decis. Econ. Finance 33 (2010).

    Attributes:
        num_paths: The number of paths, a multiple of `block`.
        knots: The number of knots of v over four standard deviations on both sides, at least 3.
        rounds: The number of improvements of the directions.
        block: The number of paths whose functions are evaluated together.
        mesh: The devices that share the paths (axis "paths"), or None.

    Raises:
        ValueError: A setting is out of range.

    Examples:
        >>> from pricing.fbsde import ProjectionPursuit
        >>> ProjectionPursuit(4096).knots
        129
    """

    num_paths: int = eqx.field(static=True, default=8192)
    knots: int = eqx.field(static=True, default=129)
    rounds: int = eqx.field(static=True, default=3)
    block: int = eqx.field(static=True, default=256)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.num_paths % self.block or self.num_paths < 2:
            raise ValueError(
                f"num_paths={self.num_paths}: give a multiple of block={self.block} paths."
            )
        if self.knots < 3 or self.rounds < 0:
            raise ValueError(f"knots={self.knots}, rounds={self.rounds}: give at least 3 and 0.")

    def unsupported_reason(self, problem: Problem) -> str | None:
        other = ": GradientRegression solves it"
        if (reason := beyond_networks(problem)) is not None:
            return reason
        if problem.stopping_dates:
            return f"stopping times{other}"
        if not driver_forms(problem, "discounts").discounts:
            return f"a driver that does more than discount{other}"
        if polynomial_weights(problem) is None:
            return f"a first step that is not Gaussian in a function of each coordinate{other}"
        return None

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps

    def describe_stage(self, problem: Problem, stage: int) -> str:
        return f"date {problem.num_steps - 1 - stage}"

    def init(self, problem: Problem, *, key: PRNGKeyArray) -> PursuitState:
        check_shares(self.mesh, num_paths=self.num_paths)
        if self.mesh is not None and self.num_paths % (self.block * self.mesh.shape["paths"]):
            raise ValueError(
                f"num_paths={self.num_paths}: give a multiple of block={self.block} paths for each of "
                f"{self.mesh.shape['paths']} devices."
            )
        paths = simulate(problem, self.num_paths, key=key, spread=_SPREAD, mesh=self.mesh)
        of_paths, of_tiles = on_axis(1), on_axis(0)
        at_end = eqx.Partial(self._at_end, problem)
        out_specs = of_tiles, of_paths, of_paths, ON_EVERY_DEVICE
        on_devices = per_device(at_end, self.mesh, (of_paths, of_paths), out_specs)
        paid, states, noise, coordinates = on_devices(*paths)
        return PursuitState(paid, states, noise, coordinates, exercise_floor(problem))

    def _at_end(
        self, problem: Problem, share: PathShare, states: Array, increments: Array
    ) -> tuple[Array, Array, Array, Coordinates]:
        """Return the payoffs, states and normals of a share's tiles, and the coordinates of all paths."""
        states, increments = (jnp.swapaxes(x, 1, 2) for x in (states, increments))
        coordinates = Coordinates.of(states, share)
        coordinates = coordinates._replace(whitening=_SPREAD * coordinates.whitening)
        states, noise = (_tiled(x, self.block) for x in (states, increments / jnp.sqrt(problem.dt)))
        paid = jax.lax.map(lambda x: _flat(jax.vmap(problem.terminal, -1, -1)(x)), states[-1])
        return paid, states, noise, coordinates

    def stage(self, problem: Problem, state: PursuitState, index: Array, *, key: PRNGKeyArray):
        del key
        date = problem.num_steps - 1 - index
        of_date = eqx.Partial(self._of_date, problem, date, state.coordinates, state.floor)
        of_tiles = on_axis(0)
        out_specs = of_tiles, ON_EVERY_DEVICE, ON_EVERY_DEVICE
        on_devices = per_device(of_date, self.mesh, (of_tiles,) * 4, out_specs)
        starts, ends = state.states[date], state.states[date + 1]
        cash_flow, fit, left = on_devices(starts, ends, state.noise[date], state.cash_flow)
        return state._replace(cash_flow=cash_flow), fit, left[None]

    def _of_date(
        self,
        problem: Problem,
        date: Array,
        coordinates: Coordinates,
        floor: Float[Array, " contracts"],
        share: PathShare,
        x: Float[Array, "tiles dim paths"],
        after: Float[Array, "tiles dim paths"],
        noise: Float[Array, "tiles dim paths"],
        cash_flow: Float[Array, "tiles contracts paths"],
    ) -> tuple[Array, RidgeFit, Array]:
        """Return the cash flows of a share's tiles from this date, its fit, and the fraction not explained."""
        t, coordinates = problem.times[date], coordinates.at(date)

        def begun(tile: tuple[Array, Array, Array, Array]) -> _Tile:
            x, after, xi, earned = tile
            discount = discount_factors(problem, t, x, after)
            return _Tile(coordinates(x), xi, discount[None] * earned)

        tiles = jax.lax.map(begun, (x, after, noise, cash_flow))
        fit, left = self._fit(tiles, date > 0, share)

        def held(given: tuple[_Tile, Array]) -> Values:
            """Return the cash flow of the rule from this date, less the martingale of the step."""
            tile, x = given
            value, martingale = fit.both(tile.z, tile.xi)
            earned = tile.target - martingale
            if problem.exercise_value is None:
                return earned
            paid = _flat(jax.vmap(problem.exercise_value, (None, -1), -1)(t, x))
            is_open = jnp.asarray(problem.is_exercise_date)[date]
            exercised = is_open & (paid > jnp.maximum(value, floor[:, None]))
            return jnp.where(exercised, paid, earned)

        return jax.lax.map(held, (tiles, x)), fit, left

    def postprocess(self, problem: Problem, state: PursuitState, outputs: Any) -> "RidgeExpansion":
        weights = polynomial_weights(problem)
        assert weights is not None  # checked by `unsupported_reason`
        weights = jnp.asarray(weights, problem.x0.dtype)
        fits = jax.tree.map(lambda rows: rows[::-1], outputs)
        return RidgeExpansion(problem, state.coordinates, fits, weights)

    def _fit(self, tiles: _Tile, is_late: Array, share: PathShare) -> tuple[RidgeFit, Array]:
        """Return the fit of a date, and the mean fraction of the variance that it does not explain."""

        def left_by(fit: RidgeFit, tile: _Tile) -> tuple[Array, Array, Array]:
            p = fit.projection(tile.z, tile.xi)
            known = linear(fit.after, p)
            rest = tile.target - known
            return rest @ tile.z.T, rest @ tile.xi.T, jnp.sum(p * known, axis=1)

        def improved(_: Any, fit: RidgeFit) -> RidgeFit:
            by_state, by_noise, slope = _summed(partial(left_by, fit), tiles, share)
            # the regression of the fitted part is known: its slope along the direction
            state = slope[:, None] * fit.along_state + by_state
            noise = slope[:, None] * fit.along_noise + by_noise
            noise, state = jnp.split(_unit(jnp.concatenate([noise, state], axis=1)), 2, axis=1)
            fit = fit._replace(along_state=state, along_noise=noise)
            sums_of = lambda tile: PieceSums.of(
                fit.projection(tile.z, tile.xi), tile.target, self.knots
            )
            return fit._replace(after=_summed(sums_of, tiles, share).table())

        fit = jax.lax.fori_loop(0, self.rounds + 1, improved, self._no_functions(tiles))
        return self._with_shared(fit.with_means(share), tiles, is_late, share)

    def _no_functions(self, tiles: _Tile) -> RidgeFit:
        contracts, z, xi = tiles.target.shape[1], tiles.z[0, :, :1], tiles.xi[0, :, :1]
        zero = lambda size: jnp.zeros((contracts, size), z.dtype)
        along, table, means = zero(len(z)), zero(self.knots), zero(MEANS)
        shared = zero(len(value_functions(z))), zero(len(martingale_functions(z, xi)))
        return RidgeFit(along, along, table, means, means, *shared)

    def _with_shared(
        self, fit: RidgeFit, tiles: _Tile, is_late: Array, share: PathShare
    ) -> tuple[RidgeFit, Array]:
        """Return the fit with shared functions, fitted to the residuals of the contracts' polynomials."""

        def columns(tile: _Tile) -> tuple[Array, Array]:
            of_state, both = value_functions(tile.z), martingale_functions(tile.z, tile.xi)
            is_used = is_late | (jnp.arange(len(of_state)) == 0)
            return jnp.where(is_used[:, None], of_state, 0.0), both

        def sums(tile: _Tile) -> tuple[Array, ...]:
            value, martingale = fit.both(tile.z, tile.xi)
            rest = tile.target - value - martingale
            functions = jnp.concatenate(columns(tile))
            squares = jnp.sum(rest**2, axis=1), jnp.sum(tile.target**2, axis=1)
            return functions @ functions.T, rest @ functions.T, *squares, jnp.sum(tile.target, 1)

        means = (total / self.num_paths for total in _summed(sums, tiles, share))
        gram, right, left, square, mean = means
        scale = jnp.diagonal(gram)
        gram = gram + jnp.diag(jnp.where(scale > 0.0, 0.0, 1.0))
        coefficients = _solved(gram, right.T).T
        # the fraction explained by noise alone: functions over paths, and its standard deviation
        functions = gram.shape[0]
        explained = jnp.sum(coefficients * right, axis=1)
        by_noise = left * functions / self.num_paths
        most = by_noise * (1.0 + _SIGNIFICANT * (2.0 / functions) ** 0.5)
        kept = jnp.where(explained > most, 1.0 - by_noise / jnp.maximum(explained, most), 0.0)
        split = fit.shared_value.shape[1]
        value, martingale = jnp.split(kept[:, None] * coefficients, (split,), axis=1)
        variance = square - mean**2
        missed = jnp.where(variance > 0.0, left / jnp.where(variance > 0.0, variance, 1.0), 0.0)
        return fit._replace(shared_value=value, shared_martingale=martingale), jnp.mean(missed)


class RidgeExpansion(AbstractApproximation):
    """u from ridge functions at every date; today it is the parabola given by its first-step moments.

    Attributes:
        problem: The problem that was solved.
        coordinates: Coordinates of the states at every date.
        fits: The fit of every date, today first.
        weights: Figures of today from the Hermite moments of the first step (`polynomial_weights`).
    """

    problem: Problem
    coordinates: Coordinates
    fits: RidgeFit
    weights: Float[Array, "functions figures"]

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        fit = jax.tree.map(lambda rows: rows[date], self.fits)
        later = fit.value(self.coordinates.at(date)(x[:, None]))[:, 0]
        today = lambda: self._parabola(x)
        value = jax.lax.cond(jnp.asarray(date) == 0, today, lambda: later)
        return value.reshape(self.problem.contracts)

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "SumOfContracts":
        return SumOfContracts(self, quantities)

    def moments(self) -> Float[Array, "contracts functions"]:
        """Return the Hermite moments over the first step from the fit of today."""
        return hermite_moments(jax.tree.map(lambda rows: rows[0], self.fits))

    def _parabola(self, x: State) -> Float[Array, " contracts"]:
        value, delta, gamma = figures_of(self.problem, self.moments() @ self.weights)
        h = x - self.problem.x0
        return value + delta @ h + 0.5 * jnp.einsum("cij,i,j->c", gamma, h, h)


class SumOfContracts(AbstractApproximation):
    """The sum of quantity times contract of another approximation."""

    of: AbstractApproximation
    quantities: Float[Array, " contracts"]

    def value(self, date: Date, x: State) -> Float[Array, ""]:
        return self.quantities @ self.of.value(date, x).reshape(-1)

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "SumOfContracts":
        return SumOfContracts(self.of, quantities[0] * self.quantities)


def hermite_moments(fit: RidgeFit) -> Float[Array, "contracts functions"]:
    """Return E[V h_f(xi)] of a fit of today: h_2(b . xi) is a sum of products of normals."""
    b = fit.along_noise
    dim = b.shape[1]
    rows, columns = jnp.triu_indices(dim)
    scale = jnp.where(rows == columns, 1.0, 2.0**0.5).astype(b.dtype)
    own = moments(fit.after)
    pairs = own[:, 2:] * scale[None] * b[:, rows] * b[:, columns]
    found = jnp.concatenate([own[:, :1], own[:, 1:2] * b, pairs], axis=1)
    value, of_noise = fit.shared_value[:, :1], fit.shared_martingale
    known = min(of_noise.shape[1], found.shape[1] - 1)
    shared = jnp.concatenate([value, of_noise[:, :known]], axis=1)
    return found.at[:, : shared.shape[1]].add(shared)


def figures_of(
    problem: Problem, ahead: Float[Array, "contracts figures"]
) -> tuple[Array, Array, Array]:
    """Return today's value, Delta and Gamma from those at a fixed rate; the rate also depends on the state."""
    dim, x0, dt = problem.dim, problem.x0, problem.dt

    def discount(x: State) -> Array:
        both = rate(problem, problem.times[0], jnp.stack([x, x0], axis=1))
        return jnp.exp(-0.5 * dt * (both[0] - both[1]))

    value, delta, gamma = ahead[:, 0], ahead[:, 1 : 1 + dim], ahead[:, 1 + dim :]
    gamma = gamma.reshape(-1, dim, dim)
    slope, bend = jax.grad(discount)(x0), jax.hessian(discount)(x0)
    cross = delta[:, :, None] * slope[None, None]
    gamma = gamma + cross + jnp.swapaxes(cross, 1, 2) + value[:, None, None] * bend[None]
    return value, delta + value[:, None] * slope[None], gamma


def _solved(gram: Float[Array, "n n"], right: Float[Array, "n targets"]) -> Array:
    """Solve gram x = right, with functions in standard units."""
    scale = jax.lax.rsqrt(jnp.maximum(jnp.diagonal(gram), jnp.finfo(gram.dtype).tiny))
    ridge = _RIDGE * jnp.finfo(gram.dtype).eps * jnp.eye(len(gram), dtype=gram.dtype)
    factor = jnp.linalg.cholesky(gram * scale[:, None] * scale[None] + ridge)
    return scale[:, None] * jax.scipy.linalg.cho_solve((factor, True), scale[:, None] * right)


def _unit(rows: Float[Array, "contracts dim"]) -> Float[Array, "contracts dim"]:
    """Return directions of length 1; the first coordinate for a zero direction."""
    length = jnp.linalg.norm(rows, axis=1, keepdims=True)
    safe = jnp.where(length > 0.0, length, 1.0)
    first = jnp.zeros_like(rows).at[:, 0].set(1.0)
    return jnp.where(length > 0.0, rows / safe, first)


def _summed(function: Any, tiles: _Tile, share: PathShare) -> PyTree[Array]:
    """Return the sum of a function over the tiles of all paths: one all-reduce."""
    like = jax.eval_shape(function, jax.tree.map(lambda a: a[0], tiles))
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
    add = lambda sums, tile: (jax.tree.map(jnp.add, sums, function(tile)), None)
    return share.total(jax.lax.scan(add, zero, tiles)[0])


def _tiled(a: Float[Array, "dates dim paths"], block: int) -> Float[Array, "dates tiles dim block"]:
    return jnp.swapaxes(a.reshape(*a.shape[:2], -1, block), 1, 2)


def _flat(values: Float[Array, "*contracts paths"]) -> Values:
    return values.reshape(-1, values.shape[-1])
