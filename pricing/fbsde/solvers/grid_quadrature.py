"""Backward induction by quadrature on a grid of states, to high accuracy in one or two dimensions."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...numerics.tridiagonal import Tridiagonal
from ...sampling import normals
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.forward_paths import simulate
from ..dynamics.gamma_drivers import unstable
from ..dynamics.ito_taylor import States
from ..dynamics.node_values import NodeValues, flat, node_values
from ..path_shares import ON_EVERY_DEVICE, PathShare, check_shares, per_device
from ..problem import Problem, State, ends_of_step
from ..solver import (
    SINGLE_START,
    AbstractApproximation,
    AbstractSolver,
    Date,
)

_NODES = {1: 513, 2: 97}  # most nodes of a coordinate, by dimension
_POINTS = {
    1: (513, 4096, 2049),
    2: (13, 80, 65),
}  # points of the quadrature of a coordinate: least, for all dates, most
_POINTS_AT_END = {2: 150}  # most points of a coordinate in the last step, whose payoff may jump
_ENOUGH_OF_COARSER = 11  # points of a coarser grid, whose own error is large with fewer
_REACH = {1: 6.0, 2: 5.0}  # range of the quadrature, in standard deviations of a step
_TURN = np.pi / 8  # angle between points and coordinates; its sign alternates with the date
_WIDTH = 6.0  # half-width of the grid, in standard deviations of the states
_SPACING = 0.25  # of nodes, in standard deviations of a step
_SPACING_IN_SINGLE = 0.75  # in two dimensions: below it, rounding errors of Gamma matter
_SPACING_OF_GAMMA = 0.35  # if f reads Gamma, whose errors feed back
_PATHS = 8192  # paths whose states determine the grid
_GROUPS = 4  # of these paths; nodes extend as far as every group, beyond all but 1 state in 1,000
_HALVINGS = 10  # bisections of a cell in which a contract stops
_BLOCK = 2**16  # evaluations at a time
_SECOND = 3 / 2, -3 / 20, 1 / 90  # of second differences over one to three nodes: sixth order
_STRIDE_IN_SINGLE = 0.5  # of second differences, in standard deviations of a step
_ROUNDING = 3.5  # rounding errors in a second difference: a half for each value, times 1088 / 180
_ROUNDING_OF_SPLINE = 6.0  # in a spline's curvature: a half, times 4, times 3 for its coefficients


Values = Float[Array, "contracts ..."]  # on all nodes


class Axes(NamedTuple):
    """The grid of each date, equally spaced in each coordinate x or in log(x / x0).

    The logarithm of a ratio near one is the most accurate: rounding errors of nodes are errors of Gamma.
    """

    first: Float[Array, "dates dim"]
    step: Float[Array, "dates dim"]
    is_log: Bool[Array, " dim"]
    x0: Float[Array, " dim"]

    @classmethod
    def around(
        cls,
        states: Float[Array, "dates paths dim"],
        count: int,
        spacing: float,
        jumped: Float[Array, "dates paths dim"] | None = None,
    ) -> "Axes":
        """Return axes that extend beyond all but rare states of each date; the first date takes the second's.

        spacing: minimum spacing of nodes at the first date, in standard deviations of a step; jumped: the
        states after a jump, to which axes extend however rare jumps are.
        """
        reached = states if jumped is None else jnp.concatenate([states, jumped], axis=1)
        is_log = jnp.all(reached > 0.0, axis=(0, 1))
        x0 = states[0, 0]
        s = _scaled(states, is_log, x0)
        mean, spread = jnp.mean(s, axis=1), _WIDTH * jnp.std(s, axis=1)
        enough = 0.5 * (count - 1) * spacing * jnp.std(s[1:2], axis=1)
        spread = jnp.maximum(spread, jnp.minimum(enough, spread[-1:]))
        groups = _scaled(reached, is_log, x0).reshape(len(s), -1, _GROUPS, x0.size)
        low = jnp.minimum(mean - spread, jnp.max(jnp.min(groups, axis=1), axis=1))
        high = jnp.maximum(mean + spread, jnp.min(jnp.max(groups, axis=1), axis=1))
        is_bounded = ~is_log & jnp.all(reached >= 0.0, axis=(0, 1))  # such as a variance
        low = jnp.where(is_bounded[None], jnp.maximum(low, 0.0), low)
        step = (high - low) / (count - 1)
        step = jnp.where(step > 0.0, step, 1.0)  # a coordinate may be constant
        return cls(low, step, is_log, x0)

    def place(self, date: Date, x: State) -> Float[Array, " dim"]:
        """Return the position of a state in steps from the first node."""
        return (_scaled(x, self.is_log, self.x0) - self.first[date]) / self.step[date]

    def states(self, date: Date, places: Float[Array, "nodes dim"]) -> Float[Array, "nodes dim"]:
        """Return the states at given positions."""
        s = self.first[date][None] + self.step[date][None] * places
        is_log, x0 = jnp.broadcast_to(self.is_log, s.shape), jnp.broadcast_to(self.x0, s.shape)
        rise = jnp.where(is_log, s, 0.0)
        is_near = jnp.abs(rise) < 0.5  # where the sum has the smaller rounding error
        scaled = jnp.where(is_near, x0 + x0 * jnp.expm1(rise), x0 * jnp.exp(rise))
        return jnp.where(is_log, scaled, s)


def _scaled(
    x: Float[Array, "... dim"], is_log: Bool[Array, " dim"], x0: Float[Array, " dim"]
) -> Float[Array, "... dim"]:
    is_log, x0 = jnp.broadcast_to(is_log, x.shape), jnp.broadcast_to(x0, x.shape)
    return jnp.where(is_log, jnp.log(jnp.where(is_log & (x > 0.0), x / x0, 1.0)), x)


class GridState(NamedTuple):
    """The grid, the coefficients of u (and of f if it reads Gamma) at processed dates, and the floor.

    A separate spline of f is smooth, and so are its means; f of a spline's Gamma is not, and would amplify
    errors.
    """

    axes: Axes
    coefficients: Float[Array, "steps contracts *nodes"]
    driver: Float[Array, "steps contracts *nodes"] | None
    floor: Float[Array, " contracts"]


class GridQuadrature(AbstractSolver):
    """Backward induction on a grid of states, with quadrature over the increments of each step.

    At date n, the latest first, with V the value at the next date after exercise and stop, on all nodes x

        u(x) = E[V(X) + f_{n+1} dt / 2] + f(t_n, x, u, Z) dt / 2,   X the state after a step from x,

    by the trapezoidal rule over normal increments, whose error is smaller than any power of its step if V is
    smooth. If f reads Gamma and V has a kink, all of f is taken at t_n. Between nodes u is a cubic spline,
    linear beyond them, in each coordinate or, if all states are positive, in its logarithm. With jumps, the
    mean after each number of jumps is a quadrature on the nodes. It is for one or two dimensions. It has no
    noise, only errors of the grid (at a jump of V, the jump times the weight of a point) and of time
    discretization.

    Quadrature of the transition density: Andricopoulos et al., J. Financial Economics 67 (2003); trapezoidal
    rule: Trefethen, Weideman, SIAM Review 56 (2014).

    Attributes:
        num_nodes: The number of nodes of a coordinate at each date; None for four per standard deviation of a
            step (4/3 in two dimensions in single precision), at most 513 in one dimension and 97 in two.
        num_points: The number of quadrature points for a coordinate; None for a number chosen by the length of
            a step, 513 to 2,049 in one dimension and 13 to 65 in two.
        mesh: The devices that share the nodes (axis "paths"), or None.

    Raises:
        ValueError: There are fewer than four nodes or three points.
    """

    num_nodes: int | None = eqx.field(static=True, default=None)
    num_points: int | None = eqx.field(static=True, default=None)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        for name, least in {"num_nodes": 4, "num_points": 3}.items():
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name}={number}: give {least} or more.")

    def unsupported_reason(self, problem: Problem) -> str | None:
        if problem.dim > 2:
            return f"{problem.dim} dimensions, and a grid has at most two: GradientRegression has no grid"
        if problem.start is not None:
            return SINGLE_START
        return unstable(problem)

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps

    def describe_stage(self, problem: Problem, stage: int) -> str:
        return f"date {problem.num_steps - 1 - stage}"

    def coarser(self, problem: Problem) -> "tuple[GridQuadrature, GridQuadrature]":
        """Return the solver with about three quarters of the nodes of each coordinate, and of the points.

        The errors of nodes and points may have different signs: together, they may cancel in the difference.
        """
        nodes, points = self._nodes(problem), self._points(problem)
        fewer = lambda count: 1 + 2 * max(2, 3 * (count - 1) // 8)
        fewer_points = max(fewer(points), min(points - 2, _ENOUGH_OF_COARSER))
        with_counts = partial(dataclasses.replace, self)
        return (
            with_counts(num_nodes=fewer(nodes), num_points=points),
            with_counts(num_nodes=nodes, num_points=fewer_points),
        )

    def _nodes(self, problem: Problem) -> int:
        """Return the number of nodes of a coordinate."""
        return self.num_nodes or _usual_nodes(problem)

    def _points(self, problem: Problem) -> int:
        """Return the number of quadrature points of a coordinate."""
        return self.num_points or _usual_points(problem)

    def init(self, problem: Problem, *, key: PRNGKeyArray) -> GridState:
        check_shares(self.mesh)
        dim, count = problem.dim, self._nodes(problem)
        spacing = _spacing(problem) * max(1.0, (_usual_nodes(problem) - 1) / (count - 1))
        states, jumped = simulate(problem, _PATHS, key=key, mesh=self.mesh).states, None
        if problem.jumps is not None:
            noise = normals(jax.random.fold_in(key, 1), states.shape, states.dtype)
            jumped = jax.vmap(jax.vmap(problem.jumps.size))(states, noise)
        axes = Axes.around(states, count, spacing, jumped)
        shape = problem.num_steps, len(_one_axis(problem)), *(count,) * dim
        empty = jnp.zeros(shape, problem.x0.dtype)
        return GridState(
            axes, empty, empty if problem.reads_gamma else None, exercise_floor(problem)
        )

    def stage(self, problem: Problem, state: GridState, index: Array, *, key: PRNGKeyArray):
        del key
        step = eqx.Partial(self._step, problem, state, problem.num_steps - 1 - index)
        return per_device(step, self.mesh, (), ON_EVERY_DEVICE)()

    def _step(self, problem: Problem, state: GridState, date: Array, share: PathShare):
        """Return the result of a date's stage; each device computes a share of the nodes."""
        axes, t, count = state.axes, problem.times[date], state.coefficients.shape[-1]
        nodes = axes.states(date, _places(count, problem.dim, problem.x0.dtype))
        mean, driver, other = self._means(problem, state, date, nodes, share)

        def with_values(values, of=state.coefficients):
            rows = _spline(values.reshape(-1, *(count,) * problem.dim))
            return SplineOnGrid(problem, axes, of.at[date].set(rows), problem.contracts)

        guess = mean + driver
        spline = with_values(guess)

        def slope(node):
            x, y = node
            z = problem.z_of(t, x, spline.gradient(date, x))
            more = (spline.hessian(date, x),) if problem.reads_gamma else ()
            return problem.flat_driver(t, x, y, z, *more)

        before = share.map_rows(slope, (nodes, guess.T), len(nodes)).T
        values = mean + ends_of_step(problem, date)[1] * problem.dt * before
        known = state.driver
        if known is not None:
            known = with_values(before, known).coefficients
        loss = jnp.mean((mean - other) ** 2)
        coefficients = with_values(values).coefficients
        return state._replace(coefficients=coefficients, driver=known), (), loss[None]

    def _means(
        self,
        problem: Problem,
        state: GridState,
        date: Array,
        nodes: Float[Array, "nodes dim"],
        share: PathShare,
    ) -> tuple[Values, Values, Values]:
        """Return means over a step from each node: of V + f dt / 2, of f dt / 2, and with half of the points.

        V is the value at the step's end; all of f is taken at its start if `ends_of_step` says so. The last
        step, whose end costs no interpolation, has more points.
        """
        points = self._points(problem)
        means_by = lambda count: self._means_by(count, problem, state, date, nodes, share)
        multiple = _POINTS_AT_END.get(problem.dim, 0) // _usual_points(problem)
        if multiple < 2 or problem.jumps is not None:
            return means_by(points)
        is_last = date == problem.num_steps - 1
        return jax.lax.cond(is_last, lambda: means_by(multiple * points), lambda: means_by(points))

    def _means_by(
        self,
        points: int,
        problem: Problem,
        state: GridState,
        date: Array,
        nodes: Float[Array, "nodes dim"],
        share: PathShare,
    ) -> tuple[Values, Values, Values]:
        """Return the means of a step with a given number of points of a coordinate."""
        t, dt, after = problem.times[date], problem.dt, date + 1
        noise, weights, fewer = _quadrature(problem, points, date)
        held_at = partial(_held_after, problem, state, after)
        jumped = None
        if problem.jumps is not None:
            jumped = _after_jumps(problem, state, after, held_at, noise, weights, share)

        def of_node(x: State):
            move = lambda noise: problem.advance(t, x, jnp.sqrt(dt) * noise)
            ends = jax.vmap(move, 0, -1)(noise)
            later, driver = held_at(ends)
            values = later.worth + driver
            middle = values[:, len(weights) // 2]  # its difference has the smaller rounding errors
            beyond = values - middle[:, None]
            mean, other = middle + beyond @ weights, middle + beyond @ fewer
            if problem.is_alive is not None and problem.dim == 1:
                lives = partial(problem.is_alive, problem.times[after])
                is_cut = later.ends[0, 1:] != later.ends[0, :-1]
                mean = mean + _cut(noise[:, 0], weights, values, is_cut, lambda w: lives(move(w)))
            if jumped is not None:
                still, rows = jumped
                place = jax.vmap(lambda x: state.axes.place(after, x), -1)(ends)
                values = jax.vmap(partial(_interpolated, rows), 0, -1)(place)
                mean, other = still * mean + values @ weights, still * other + values @ fewer
            return mean, driver @ weights, other

        means = share.map_rows(of_node, nodes, max(1, _BLOCK // len(weights)))
        mean, driver, other = (x.T for x in means)
        return mean, driver, other

    def postprocess(self, problem: Problem, state: GridState, outputs: Any) -> "SplineOnGrid":
        del outputs
        return SplineOnGrid(problem, state.axes, state.coefficients, problem.contracts)


class SplineOnGrid(AbstractApproximation):
    """u as a cubic spline on the grid of every date, by its coefficients."""

    problem: Problem
    axes: Axes
    coefficients: Float[Array, "steps contracts *nodes"]
    contracts: tuple[int, ...] = eqx.field(static=True)

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        place = self.axes.place(date, x)
        return _interpolated(self.coefficients[date], place).reshape(self.contracts)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        return jax.jacfwd(self.value, argnums=1)(date, x)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """Return the Hessian of u, with second differences of its values, of sixth order, on the diagonal.

        A driver that reads Gamma takes the spline's own curvature, of second order: it amplifies less noise.
        """
        found = super().hessian(date, x)
        if self.problem.reads_gamma:
            return found
        rows, place, stride = self.coefficients[date], self.axes.place(date, x), self._stride
        at = partial(_interpolated, rows)
        second, most = jax.jacfwd(jax.jacfwd(at)), stride * len(_SECOND)
        is_inside = (place >= most) & (place <= rows.shape[-1] - 1.0 - most)
        factor = jnp.where(is_inside, 1.0 / self._cell(date, x) ** 2, 0.0)

        def missing(axis: State) -> Array:
            shifts = jnp.outer(stride * jnp.arange(1.0, len(_SECOND) + 1.0, dtype=x.dtype), axis)
            both = jax.vmap(lambda shift: at(place + shift) + at(place - shift) - 2.0 * at(place))
            bend = jnp.asarray(_SECOND, x.dtype) @ both(shifts) / stride**2
            return (factor @ axis) * (bend - second(place) @ axis @ axis)

        axes = jnp.eye(x.size, dtype=x.dtype)
        more = axes[None] * jax.vmap(missing, 0, -1)(axes)[:, None]
        return found + more.reshape(found.shape)

    def hessian_rounding(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """Return a bound of the rounding errors of the Hessian, from those of u and of the nodes' states."""
        count = _ROUNDING_OF_SPLINE if self.problem.reads_gamma else _ROUNDING
        apart = self._stride * self._cell(date, x)
        size = jnp.abs(self.value(date, x)) + jnp.abs(self.gradient(date, x)) @ (jnp.abs(x) + apart)
        of_node = count * jnp.finfo(x.dtype).eps * size
        return jnp.multiply.outer(of_node, 1.0 / jnp.multiply.outer(apart, apart))

    @property
    def _stride(self) -> int:
        """The number of nodes between the values of a second difference."""
        if self.problem.reads_gamma or self.problem.x0.dtype.itemsize > 4:
            return 1
        return max(1, round(_STRIDE_IN_SINGLE / _spacing(self.problem)))

    def _cell(self, date: Date, x: State) -> Float[Array, " dim"]:
        """Return the distance of nodes at a state."""
        return self.axes.step[date] * jnp.where(self.axes.is_log, x, 1.0)

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "SplineOnGrid":
        summed = jnp.tensordot(quantities, self.coefficients, (0, 1))[:, None]
        return SplineOnGrid(self.problem, self.axes, summed, ())


def _quadrature(problem: Problem, count: int, date: Array) -> tuple[Array, Array, Array]:
    """Return normal increments [points, dim], their weights, and weights for every other point.

    In two dimensions the points of consecutive dates are turned against each other. A kink of V leaves an error
    with the period of the points, which points of the same period in the step before would not average out.
    Today's step has none before it; its points are not turned.
    """
    dim, dtype = problem.dim, problem.x0.dtype
    points = np.linspace(-_REACH[dim], _REACH[dim], count)
    weights = np.exp(-0.5 * points**2)
    halved = np.where(np.arange(count) % 2 == 0, weights, 0.0)
    noise = np.stack(np.meshgrid(*(points,) * dim, indexing="ij"), -1).reshape(-1, dim)
    products = (
        np.prod(np.stack(np.meshgrid(*(w / w.sum(),) * dim, indexing="ij")), axis=0).reshape(-1)
        for w in (weights, halved)
    )
    of_all, of_half = (jnp.asarray(w, dtype) for w in products)
    if dim == 1:
        return jnp.asarray(noise, dtype), of_all, of_half
    turn = np.array([[np.cos(_TURN), np.sin(_TURN)], [-np.sin(_TURN), np.cos(_TURN)]])
    straight, one, other = (jnp.asarray(noise @ by, dtype) for by in (np.eye(2), turn, turn.T))
    turned = jnp.where(date % 2 == 0, one, other)
    return jnp.where(date == 0, straight, turned), of_all, of_half


def _held_after(
    problem: Problem, state: GridState, date: Array, x: States
) -> tuple[NodeValues, Float[Array, "contracts paths"]]:
    """Return the values at the end of a step, and dt times the part of f taken there."""
    splines = [
        SplineOnGrid(problem, state.axes, rows, problem.contracts)
        for rows in (state.coefficients, state.driver)
        if rows is not None
    ]
    found, *known = splines
    driver = None
    if known:
        driver = lambda x: flat(jax.vmap(partial(known[0].value, date), -1, -1)(x))
    later = node_values(problem, found, date, x, driver=driver, floor=state.floor)
    return later, ends_of_step(problem, date - 1)[0] * problem.dt * later.driver


def _after_jumps(
    problem: Problem,
    state: GridState,
    date: Array,
    held_at: Callable,
    noise,
    weights,
    share: PathShare,
) -> tuple[Float[Array, ""], Values]:
    """Return the probability of no jump, and the spline of the mean after one or more jumps, weighted.

    Means are weighted by the probability of their number of jumps. The mean after n jumps is the mean, after
    one jump, of that after n - 1, on the nodes of the date.
    """
    jumps, count = problem.jumps, state.coefficients.shape[-1]
    assert jumps is not None
    nodes = state.axes.states(date, _places(count, problem.dim, problem.x0.dtype))
    still, *chances = jumps.chances(problem.dt)

    def after_one(worth: Callable[[States], Array]) -> Values:
        """Return the mean after a jump from each node."""
        mean = lambda x: worth(jax.vmap(jumps.size, (None, 0), -1)(x, noise)) @ weights
        means = share.map_rows(mean, nodes, max(1, _BLOCK // len(weights)))
        return _spline(means.T.reshape(-1, *(count,) * problem.dim))

    def now(x: States) -> Array:
        later, driver = held_at(x)
        return later.worth + driver

    def again(rows: Values, chance: Array) -> tuple[Values, Values]:
        place = lambda x: state.axes.place(date, x)
        rows = after_one(lambda x: jax.vmap(lambda x: _interpolated(rows, place(x)), -1, -1)(x))
        return rows, chance * rows

    first, *others = chances
    rows = after_one(now)
    total = first * rows
    if others:
        total = total + jnp.sum(jax.lax.scan(again, rows, jnp.stack(others))[1], axis=0)
    return still, total


def _places(count: int, dim: int, dtype) -> Float[Array, "nodes dim"]:
    axes = (jnp.arange(count),) * dim
    return jnp.stack(jnp.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim).astype(dtype)


def _interpolated(rows: Values, place: Float[Array, " dim"]) -> Float[Array, " contracts"]:
    """Return the splines with these coefficients at a position on the grid, linear beyond it."""
    cells = jnp.clip(jnp.floor(jax.lax.stop_gradient(place)), 0.0, rows.shape[-1] - 2.0)
    corner = jnp.int32(0), *cells.astype(jnp.int32)
    around = jax.lax.dynamic_slice(_extended(rows), corner, (len(rows), *(4,) * place.size))
    for coordinate in reversed(range(place.size)):
        weights = _weights(place[coordinate] - cells[coordinate])
        first, *others = (weight * around[..., k] for k, weight in enumerate(weights))
        around = sum(others, first)
    return around


def _extended(rows: Values) -> Values:
    """Return the coefficients with one more at each end, on the line through the last two."""
    for axis in range(1, rows.ndim):
        rows = jnp.moveaxis(rows, axis, 0)
        ends = 2.0 * rows[0] - rows[1], 2.0 * rows[-1] - rows[-2]
        rows = jnp.concatenate([ends[0][None], rows, ends[1][None]])
        rows = jnp.moveaxis(rows, 0, axis)
    return rows


def _weights(share: Float[Array, ""]) -> list[Float[Array, ""]]:
    """Return the weights of a cubic B-spline's four coefficients within a cell, linear beyond [0, 1]."""
    nearest = jax.lax.stop_gradient(jnp.clip(share, 0.0, 1.0))
    f = jnp.where((share < 0.0) | (share > 1.0), nearest, share)  # with slope 1 also at a node
    g, beyond = 1.0 - f, share - f
    at = g * g * g, (3 * f - 6) * f * f + 4, (3 * g - 6) * g * g + 4, f * f * f
    edge, other = nearest, 1.0 - nearest
    slope = -other * other, (3 * edge - 4) * edge, (4 - 3 * other) * other, edge * edge
    return [value / 6.0 + 0.5 * beyond * rise for value, rise in zip(at, slope, strict=True)]


def _cut(points, weights, worth, is_cut, lives) -> Float[Array, " contracts"]:
    """Return the correction of a quadrature in cells where the contract stops at only one end.

    The trapezoidal rule is replaced, in such a cell, by lines through the two points on either side, up to the
    place that bisection finds, with the terms of order two that each side's rule leaves out at its end.
    """
    left, right = points[:-1], points[1:]
    at_left = jax.vmap(lives)(left[:, None])

    def halve(_, cells):
        low, high = cells
        middle = 0.5 * (low + high)
        same = jax.vmap(lives)(middle[:, None]) == at_left
        return jnp.where(same, middle, low), jnp.where(same, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (left, right))
    share = ((0.5 * (low + high) - left) / (right - left))[None]
    rises = jnp.diff(worth * weights[None])
    slopes = jnp.pad(jnp.where(is_cut[None], 0.0, rises), ((0, 0), (1, 1)))  # none across a cut
    bent = (0.5 * share**2 - 1 / 12) * slopes[:, :-2]
    bent = bent - (0.5 * (1.0 - share) ** 2 - 1 / 12) * slopes[:, 2:]
    return jnp.sum(jnp.where(is_cut[None], (0.5 - share) * rises + bent, 0.0), axis=1)


def _spline(values: Values) -> Values:
    """Return the coefficients of the natural cubic spline through values, along each axis of nodes."""
    for axis in range(1, values.ndim):
        rows = jnp.moveaxis(values, axis, 0)
        flat = rows.reshape(len(rows), -1)
        side = jnp.full_like(flat, 1.0 / 6.0).at[jnp.array([0, -1])].set(0.0)
        system = Tridiagonal(side, 1.0 - 2.0 * side, side).factored()
        values = jnp.moveaxis(system.solve(flat).reshape(rows.shape), 0, axis)
    return values


def _spacing(problem: Problem) -> float:
    """Return the spacing of nodes at the first date, in standard deviations of a step.

    Rounding errors of Gamma are inversely proportional to its square.
    """
    if problem.reads_gamma:
        return _SPACING_OF_GAMMA
    is_rounded = problem.dim == 2 and problem.x0.dtype.itemsize == 4
    return _SPACING_IN_SINGLE if is_rounded else _SPACING


def _usual_nodes(problem: Problem) -> int:
    """Return the number of nodes of a coordinate if none is given."""
    enough = 1 + 2 * math.ceil(_WIDTH * problem.num_steps**0.5 / _spacing(problem))
    return min(_NODES[problem.dim], enough)


def _usual_points(problem: Problem) -> int:
    """Return the number of quadrature points of a coordinate if none is given."""
    least, for_all, most = _POINTS[problem.dim]
    return min(most, max(least, math.ceil(for_all / problem.num_steps**0.5)))


def _one_axis(problem: Problem) -> Float[Array, " contracts"]:
    return jnp.zeros(problem.contracts).reshape(-1)
