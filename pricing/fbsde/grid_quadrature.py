"""Backward induction by quadrature on a grid of states: in one or two dimensions, to many digits."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..numerics.tridiagonal import Tridiagonal
from .held import held
from .problem import Problem, State
from .simulation import simulate
from .solver import SINGLE_START, AbstractApproximation, AbstractSolver, Date

_NODES = {1: 513, 2: 97}  # of a coordinate, at most, by dimension
_POINTS = {
    1: (257, 2048, 1025),
    2: (17, 80, 65),
}  # of the quadrature along one: least, for all dates, most
_REACH = {1: 6.0, 2: 5.0}  # of the quadrature, in standard deviations of a step
_WIDTH = 6.0  # of the grid, in standard deviations of the states
_SPACING = 0.25  # of nodes, in deviations of a step: on that scale values are smooth, rounding errors are not
_PATHS = 8192  # whose states say where the grid lies
_HALVINGS = 10  # of a cell in which a contract stops
_BLOCK = 2**16  # evaluations at a time


Values = Float[Array, "contracts ..."]  # on all nodes


class Axes(NamedTuple):
    """The grid of each date: equal steps along each coordinate, or along its logarithm."""

    first: Float[Array, "dates dim"]
    step: Float[Array, "dates dim"]
    is_log: Bool[Array, " dim"]

    @classmethod
    def around(cls, states: Float[Array, "dates paths dim"], count: int) -> "Axes":
        """Return axes that reach beyond the states of all dates; those of the first are of the next."""
        is_log = jnp.all(states > 0.0, axis=(0, 1))
        s = _scaled(states, is_log)
        mean, spread = jnp.mean(s, axis=1), _WIDTH * jnp.std(s, axis=1)
        enough = 0.5 * (count - 1) * _SPACING * jnp.std(s[1:2], axis=1)
        spread = jnp.maximum(spread, jnp.minimum(enough, spread[-1:]))
        low = jnp.minimum(mean - spread, jnp.min(s, axis=1))
        high = jnp.maximum(mean + spread, jnp.max(s, axis=1))
        is_bounded = ~is_log & jnp.all(states >= 0.0, axis=(0, 1))  # such as a variance
        low = jnp.where(is_bounded[None], jnp.maximum(low, 0.0), low)
        step = (high - low) / (count - 1)
        return cls(low, jnp.where(step > 0.0, step, 1.0), is_log)  # a coordinate may stay as it is

    def place(self, date: Date, x: State) -> Float[Array, " dim"]:
        """Return the place of a state in steps from the first node."""
        return (_scaled(x, self.is_log) - self.first[date]) / self.step[date]

    def states(self, date: Date, places: Float[Array, "nodes dim"]) -> Float[Array, "nodes dim"]:
        """Return the states at places."""
        s = self.first[date][None] + self.step[date][None] * places
        is_log = jnp.broadcast_to(self.is_log, s.shape)
        return jnp.where(is_log, jnp.exp(jnp.where(is_log, s, 0.0)), s)


def _scaled(x: Float[Array, "... dim"], is_log: Bool[Array, " dim"]) -> Float[Array, "... dim"]:
    is_log = jnp.broadcast_to(is_log, x.shape)
    return jnp.where(is_log, jnp.log(jnp.where(is_log & (x > 0.0), x, 1.0)), x)


class _State(NamedTuple):
    """The grid, and the coefficients of the dates that are done."""

    axes: Axes
    coefficients: Float[Array, "steps contracts *nodes"]


class GridQuadrature(AbstractSolver):
    """Backward induction on a grid of states, each step's mean a quadrature over its increments.

    At date n, the latest first, with V the value at the next date after exercise and stop, on all nodes x

        u(x) = E[V(X) + f_{n+1} dt / 2] + f(t_n, x, u, Z) dt / 2,   X the state after a step from x,

    by the trapezoidal rule over normal increments, which errs by less than any power of its step where V is
    smooth. Between nodes u is a cubic spline, linear beyond them, in each coordinate or, where all states are
    above zero, in its logarithm. For one or two dimensions. It has no noise: its errors are those of the grid
    (at a jump of V, the jump times the weight of a point) and of the dates.

    Quadrature of the transition density: Andricopoulos et al., J. Financial Economics 67 (2003); trapezoidal
    rule: Trefethen, Weideman, SIAM Review 56 (2014).

    Attributes:
        num_nodes: The nodes of a coordinate at each date; None is four for each deviation of a step, at most
            513 in one dimension and 97 in two.
        num_points: The points of the quadrature for a coordinate; None is by the length of a step, 257 to 1,025
            in one dimension and 17 to 65 in two.
        mesh: None; the grid is on one device.

    Raises:
        ValueError: There are fewer than four nodes or three points.

    Examples:
        >>> from pricing.fbsde import GridQuadrature, problems
        >>> GridQuadrature().num_stages(problems.different_rates_call(8))
        8
    """

    num_nodes: int | None = eqx.field(static=True, default=None)
    num_points: int | None = eqx.field(static=True, default=None)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        for name, least in {"num_nodes": 4, "num_points": 3}.items():
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name}={number}: give {least} or more.")

    def unsupported(self, problem: Problem) -> str | None:
        if problem.dim > 2:
            return f"{problem.dim} dimensions, and a grid is of two at most: GradientRegression has no grid"
        if problem.start is not None:
            return SINGLE_START
        return None if self.mesh is None else "a mesh, and a grid is on one device: mesh=None"

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps

    def describe_stage(self, problem: Problem, stage: int) -> str:
        return f"date {problem.num_steps - 1 - stage}"

    def init(self, problem: Problem, *, key: PRNGKeyArray) -> _State:
        dim = problem.dim
        enough = 1 + 2 * math.ceil(_WIDTH * problem.num_steps**0.5 / _SPACING)
        count = self.num_nodes or min(_NODES[dim], enough)
        axes = Axes.around(simulate(problem, _PATHS, key=key).states, count)
        shape = problem.num_steps, len(_one_axis(problem)), *(count,) * dim
        return _State(axes, jnp.zeros(shape, problem.x0.dtype))

    def stage(self, problem: Problem, state: _State, index: Array, *, key: PRNGKeyArray):
        del key
        axes, date = state.axes, problem.num_steps - 1 - index
        t, dt = problem.times[date], problem.dt
        count = state.coefficients.shape[-1]
        places = jnp.stack(jnp.meshgrid(*(jnp.arange(count),) * problem.dim, indexing="ij"), -1)
        nodes = axes.states(date, places.reshape(-1, problem.dim).astype(problem.x0.dtype))
        found = SplineOnGrid(problem, axes, state.coefficients, problem.contracts)
        noise, weights, fewer = self._quadrature(problem)
        stops = problem.is_alive is not None and problem.dim == 1
        is_alive: Any = problem.is_alive

        def ahead(x: State):
            """Return the means of V + f dt / 2, of f dt / 2, and of the former by half of the points."""
            move = lambda noise: problem.advance(t, x, jnp.sqrt(dt) * noise)  # noqa: E731
            later = held(problem, found, date + 1, jax.vmap(move, 0, -1)(noise))
            driver = 0.5 * dt * later.driver
            worth = later.worth + driver
            mean = worth @ weights
            if stops:
                lives = lambda noise: is_alive(problem.times[date + 1], move(noise))  # noqa: E731
                is_cut = later.ends[0, 1:] != later.ends[0, :-1]
                mean = mean + _cut(noise[:, 0], weights, worth, is_cut, lives)
            return mean, driver @ weights, worth @ fewer

        means = jax.lax.map(ahead, nodes, batch_size=max(1, _BLOCK // len(weights)))
        mean, driver, other = (x.T for x in means)

        def with_coefficients(values):
            rows = _spline(values.reshape(-1, *(count,) * problem.dim))
            coefficients = state.coefficients.at[date].set(rows)
            return eqx.tree_at(lambda f: f.coefficients, found, coefficients)

        def slope(guess: SplineOnGrid, x: State, y):
            z = problem.z_of(t, x, guess.gradient(date, x))
            return problem.flat_driver(t, x, y, z.reshape(-1, problem.dim))

        guess = mean + driver
        before = jax.vmap(slope, (None, 0, -1), -1)(with_coefficients(guess), nodes, guess)
        values = mean + 0.5 * dt * before
        loss = jnp.mean((mean - other) ** 2)
        return _State(axes, with_coefficients(values).coefficients), (), loss[None]

    def postprocess(self, problem: Problem, state: _State, outputs: Any) -> "SplineOnGrid":
        del outputs
        return SplineOnGrid(problem, state.axes, state.coefficients, problem.contracts)

    def _quadrature(self, problem: Problem) -> tuple[Array, Array, Array]:
        """Return normal increments [points, dim], their weights, and those of every other of them."""
        dim, dtype = problem.dim, problem.x0.dtype
        least, for_all, most = _POINTS[dim]
        enough = math.ceil(for_all / problem.num_steps**0.5)
        count = self.num_points or min(most, max(least, enough))
        points = np.linspace(-_REACH[dim], _REACH[dim], count)
        weights = np.exp(-0.5 * points**2)
        halved = np.where(np.arange(count) % 2 == 0, weights, 0.0)
        noise = np.stack(np.meshgrid(*(points,) * dim, indexing="ij"), -1).reshape(-1, dim)
        products = (
            np.prod(np.stack(np.meshgrid(*(w / w.sum(),) * dim, indexing="ij")), axis=0).reshape(-1)
            for w in (weights, halved)
        )
        of_all, of_half = (jnp.asarray(w, dtype) for w in products)
        return jnp.asarray(noise, dtype), of_all, of_half


class SplineOnGrid(AbstractApproximation):
    """u as a cubic spline on the grid of every date, by its coefficients."""

    problem: Problem
    axes: Axes
    coefficients: Float[Array, "steps contracts *nodes"]
    contracts: tuple[int, ...] = eqx.field(static=True)

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        count, dim = self.coefficients.shape[-1], self.problem.dim
        place = self.axes.place(date, x)
        cell = jnp.clip(jnp.floor(jax.lax.stop_gradient(place)), 0.0, count - 2.0)
        weights = jax.vmap(_weights)(place - cell)
        around = cell.astype(jnp.int32)[:, None] + jnp.arange(-1, 3, dtype=jnp.int32)[None]
        rows = self.coefficients[date]
        (first, shares), *second = [_ends(around[k], weights[k], count) for k in range(dim)]
        if not second:
            return (rows[:, first] @ shares).reshape(self.contracts)
        ((other, of_other),) = second
        near = rows[:, first[:, None], other[None]]
        return jnp.einsum("cij,i,j->c", near, shares, of_other).reshape(self.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        return jax.jacfwd(self.value, argnums=1)(date, x)

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "SplineOnGrid":
        summed = jnp.tensordot(quantities, self.coefficients, (0, 1))[:, None]
        return SplineOnGrid(self.problem, self.axes, summed, ())


def _weights(share: Float[Array, ""]) -> Float[Array, "4"]:
    """Return the weights of a cubic B-spline's four coefficients at a share of a cell, lines beyond [0, 1]."""
    f = jnp.clip(share, 0.0, 1.0)
    g, beyond = 1.0 - f, share - f
    at = jnp.stack([g**3, 3 * f**3 - 6 * f**2 + 4, 3 * g**3 - 6 * g**2 + 4, f**3]) / 6.0
    edge = jax.lax.stop_gradient(f)
    other = 1.0 - edge
    slope = jnp.stack([-(other**2), 3 * edge**2 - 4 * edge, 4 * other - 3 * other**2, edge**2])
    return at + 0.5 * slope * beyond


def _ends(around: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """Return the indices and weights with a neighbour beyond an end expressed by the two before it."""
    low, high = around[0] < 0, around[3] > count - 1
    first, last = (jnp.array(row, weights.dtype) for row in ([-1, 2, -1, 0], [0, -1, 2, -1]))
    weights = weights + jnp.where(low, weights[0], 0.0) * first
    weights = weights + jnp.where(high, weights[3], 0.0) * last
    return jnp.clip(around, 0, count - 1), weights


def _cut(points, weights, worth, is_cut, lives) -> Float[Array, " contracts"]:
    """Return what is to be added to a quadrature in cells where the contract stops at one end alone.

    There the values of both ends count half of the cell each, in place of their shares, found by bisection.
    """
    left, right = points[:-1], points[1:]
    at_left = jax.vmap(lives)(left[:, None])

    def halve(_, cells):
        low, high = cells
        middle = 0.5 * (low + high)
        same = jax.vmap(lives)(middle[:, None]) == at_left
        return jnp.where(same, middle, low), jnp.where(same, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (left, right))
    share = (0.5 * (low + high) - left) / (right - left)
    size = jnp.sqrt(weights[:-1] * weights[1:])
    cell = jnp.where(is_cut, (share - 0.5) * size, 0.0)
    return (worth[:, :-1] - worth[:, 1:]) @ cell


def _spline(values: Values) -> Values:
    """Return the coefficients of the natural cubic spline through values, along each axis of nodes."""
    for axis in range(1, values.ndim):
        rows = jnp.moveaxis(values, axis, 0)
        flat = rows.reshape(len(rows), -1)
        side = jnp.full_like(flat, 1.0 / 6.0).at[jnp.array([0, -1])].set(0.0)
        system = Tridiagonal(side, 1.0 - 2.0 * side, side).factored()
        values = jnp.moveaxis(system.solve(flat).reshape(rows.shape), 0, axis)
    return values


def _one_axis(problem: Problem) -> Float[Array, " contracts"]:
    return jnp.zeros(problem.contracts).reshape(-1)
