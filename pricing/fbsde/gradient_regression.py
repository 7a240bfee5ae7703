"""Gradient-enhanced regression: one linear least squares problem a date, for all contracts at once."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from .approximation import AbstractApproximation, Date
from .bases import AbstractBasis, Hermite, Lesson, Mean, Payoffs, joined
from .expansion import Composed, Functions, States, expanded
from .paths import simulate, survival
from .problem import Problem, State
from .solver import AbstractSolver

_ROUNDING = 64.0  # multiples of a rounding error, below which a direction is one of rounding
_DIVERGED = 2.0  # variances of the target: a fit of it misses one at most
_INFLUENCE = 0.1  # of a path on the fit at its own place, at most

Values = Float[Array, "contracts paths"]


class _State(NamedTuple):
    """Of the paths at the date that was done last, and what all dates share.

    paid: what is earned from here on along a path, less the noise of its martingale; value: what the
    regression says of it, after exercise or a stop; driver: f there.
    """

    paid: Values
    value: Values
    driver: Values
    states: Float[Array, "dates dim paths"]
    increments: Float[Array, "steps dim paths"]
    alive: Float[Array, "dates paths"]
    frames: PyTree[Array]


class GradientRegression(AbstractSolver):
    """u of each date is a combination of functions, fitted together with its gradient, backwards.

    At date n the coefficients c minimize the mean over paths of

        (V_{n+1} + F_n dt - c . (phi + M phi)(X_n))^2,   M phi = D phi + (D^2 phi - dt sum_k D_k^2 phi) / 2,

    where D is the derivative along s dW, D_k along the k-th column of s: M phi is how phi moves over the step
    but for its drift (without the bracket if order = 1). It explains the noise of V, so that few paths
    suffice, and its coefficients are the gradient's. V is what is earned along the path after exercise, less
    M of the later dates: the fit is of cash flows, not of fits. F is the mean of f over both ends of the step.
    The Gram matrix is inverted once a date, whatever the number of contracts.

    Gradient-enhanced least squares Monte Carlo: Yang, Wang, Li, arXiv:2305.06555 (2023). The second-order
    term is the Ito-Taylor expansion's (Kloeden, Platen (1992), section 5.5).

    bases: functions of the state (`bases.py`); their union is phi. scatter: the share of the maturity by which
    starts of paths are spread, so that Delta and Gamma of today are fitted about x0. 0: all start at x0, and
    they are what explains the first step; right where x0 is no point among the others (the smallest of a
    hundred equal coordinates is far from that of scattered ones), or where coordinates are bound to each other
    (a spot and its running maximum): they are scattered apart, unless the problem has a `start`.
    """

    num_paths: int = eqx.field(static=True, default=16384)
    bases: tuple[AbstractBasis, ...] = (Hermite(2), Mean(5, above=2), Payoffs())
    order: int = eqx.field(static=True, default=2)
    scatter: float = eqx.field(static=True, default=0.05)
    block: int = eqx.field(static=True, default=4096)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.order not in (1, 2):
            raise ValueError(f"order={self.order}: moves are of order 1 or 2 in the noise.")
        if self.num_paths % self.block:
            raise ValueError(f"num_paths={self.num_paths} is no multiple of block={self.block}.")

    def lacks(self, problem: Problem) -> str | None:
        del problem
        return None

    def num_stages(self, problem: Problem) -> int:
        return problem.num_steps

    def where(self, problem: Problem, stage: int) -> str:
        return f"date {problem.num_steps - 1 - stage}"

    def start(self, problem: Problem, key: PRNGKeyArray) -> _State:
        paths = simulate(
            problem, key, self.num_paths, at_x0=False, scatter=self.scatter, mesh=self.mesh
        )
        states, increments = (jnp.swapaxes(x, 1, 2) for x in paths)
        # x0 alone has no scale: it is seen as the date after it
        seen = states if self.scatter > 0.0 else states.at[0].set(states[1])
        frames = tuple(basis.frames(problem, seen) for basis in self.bases)
        alive = survival(problem, paths.states).astype(states.dtype)
        paid = _flat(jax.vmap(problem.terminal, -1, -1)(states[-1]))
        paid = self._stopped(problem, problem.num_steps, states[-1], alive[-1], paid)
        z = jax.vmap(
            lambda x: problem.z_of(problem.times[-1], x, problem.terminal_gradient(x)), -1, -1
        )(states[-1])
        driver = _driver(problem, problem.times[-1], states[-1], paid, _flat(z, 2))
        return _State(paid, paid, driver, states, increments, alive, frames)

    def stage(self, problem: Problem, state: _State, index: Array, key: PRNGKeyArray):
        date = problem.num_steps - 1 - index
        t, x = problem.times[date], state.states[date]
        state = self._learned(problem, state, date, key)
        frames = jax.tree.map(lambda leaf: leaf[date], state.frames)
        functions, moves = self._functions(problem, frames, t, x, state.increments[date])
        fit = _Regression.of(functions + moves, state.alive[date])

        target = state.paid + problem.dt * state.driver
        guess = fit.coefficients(target)
        slope = self._driver_at(problem, frames, t, x, guess, guess @ functions)
        slope = fit.within(slope)
        earned = state.paid + 0.5 * problem.dt * (state.driver + slope)
        coefficients = fit.coefficients(earned)

        value = coefficients @ functions
        paid = earned - coefficients @ moves
        loss = fit.loss(target, paid - value)
        taken, now = self._taken(problem, date, x, value)
        paid, value = jnp.where(taken, now, paid), jnp.where(taken, now, value)
        paid, value = (self._stopped(problem, date, x, state.alive[date], v) for v in (paid, value))
        driver = fit.within(self._driver_at(problem, frames, t, x, coefficients, value))
        state = state._replace(paid=paid, value=value, driver=driver)
        return state, coefficients, loss[None]

    def approximation(self, problem: Problem, state: _State, outputs: Any) -> "Combination":
        return Combination(problem, self.bases, state.frames, outputs)

    def _learned(self, problem: Problem, state: _State, date, key: PRNGKeyArray) -> _State:
        """Frames of the date after their descent, from those of the date after it."""
        if not any(basis.learns for basis in self.bases):
            return state
        before = jnp.minimum(date + 1, problem.num_steps - 1)
        t, x, dw = problem.times[date], state.states[date], state.increments[date]
        here, after = (
            jax.tree.map(lambda leaf, row=row: leaf[row], state.frames) for row in (date, before)
        )
        frames = tuple(
            basis.following(*both) for basis, *both in zip(self.bases, here, after, strict=True)
        )
        functions, moves = self._functions(problem, frames, t, x, dw)
        columns, target = functions + moves, state.paid + problem.dt * state.driver
        fit = _Regression.of(columns, state.alive[date])
        coefficients = fit.coefficients(target)
        rest = target - coefficients @ columns
        unit = jnp.sqrt(jnp.mean(rest**2, axis=1, keepdims=True))
        unit = jnp.where(unit > 0.0, unit, 1.0)
        noise = jax.vmap(partial(problem.diffused, t), -1, -1)(x, dw)

        found, first = [], 0
        for basis, frame in zip(self.bases, frames, strict=True):
            features = basis.features(problem, frame, t, x[:, :1])
            last = first + len(basis.outer(frame, features))
            own = coefficients[:, first:last]
            lesson = Lesson(
                x, noise, state.alive[date], own / unit, (rest + own @ columns[first:last]) / unit
            )
            found.append(basis.learned(frame, lesson, jax.random.fold_in(key, first)))
            first = last
        kept = jax.tree.map(lambda rows, row: rows.at[date].set(row), state.frames, tuple(found))
        return state._replace(frames=kept)

    def _functions(
        self, problem: Problem, frames, t, x: States, dw: States
    ) -> tuple[Functions, Functions]:
        """The functions and their moves, a block of paths at a time."""

        composed = [
            Composed(
                partial(basis.features, problem, frame, t),
                partial(basis.outer, frame),
                basis.is_linear,
            )
            for basis, frame in zip(self.bases, frames, strict=True)
        ]

        def of_block(block: tuple[States, States]):
            x, dw = block
            return expanded(problem, composed, t, x, dw, self.order)

        blocks = lambda a: jnp.moveaxis(a.reshape(len(a), -1, self.block), 1, 0)  # noqa: E731
        together = lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1)  # noqa: E731
        return jax.tree.map(together, jax.lax.map(of_block, (blocks(x), blocks(dw))))

    def _driver_at(
        self, problem: Problem, frames, t, x: States, coefficients, value: Values
    ) -> Values:
        """f, with Z from the gradient of the combination."""

        def value_at(x: State):
            return coefficients @ joined(self.bases, problem, frames, t, x[:, None])[:, 0]

        slopes = jax.jacrev if len(coefficients) < problem.dim else jax.jacfwd
        z = jax.vmap(lambda x: problem.z_of(t, x, slopes(value_at)(x)), -1, -1)(x)
        return _driver(problem, t, x, value, z)

    def _taken(self, problem: Problem, date, x: States, held: Values):
        """Where the holder takes what exercise pays, and what that is."""
        if problem.exercise_value is None:
            return jnp.zeros(held.shape, bool), held
        t = problem.times[date]
        now = _flat(jax.vmap(problem.exercise_value, (None, -1), -1)(t, x))
        is_open = jnp.asarray(problem.is_exercise_date)[date]
        return is_open & (now > held) & (now > 0.0), now

    def _stopped(self, problem: Problem, date, x: States, alive, value: Values) -> Values:
        """`value` on living paths, what a stop pays on the others."""
        if problem.is_alive is None:
            return value
        if problem.stopped_value is None:
            return jnp.where(alive[None] > 0.0, value, 0.0)
        t = problem.times[date]
        paid = _flat(jax.vmap(problem.stopped_value, (None, -1), -1)(t, x))
        return jnp.where(alive[None] > 0.0, value, paid)


class _Regression(NamedTuple):
    """Weighted least squares on the same columns for any number of targets."""

    columns: Functions
    weights: Float[Array, " paths"]
    inverse: Float[Array, "functions functions"]
    held: Bool[Array, " paths"]  # by others: no path that tells the fit at its own place what to be

    @classmethod
    def of(cls, columns: Functions, weights: Float[Array, " paths"]) -> "_Regression":
        weights = weights / jnp.maximum(jnp.sum(weights), 1.0)
        inverse = _inverse((columns * weights[None]) @ columns.T)
        influence = weights * jnp.sum(columns * (inverse @ columns), axis=0)
        return cls(columns, weights, inverse, (influence < _INFLUENCE) & (weights > 0.0))

    def within(self, driver: Values) -> Values:
        """f, on paths that are not held, between its ends on those that are.

        Far out f is of a fit that nothing holds but f itself: without ends it would feed itself.
        """
        held = self.held[None]
        low = jnp.min(driver, axis=1, keepdims=True, where=held, initial=jnp.inf)
        high = jnp.max(driver, axis=1, keepdims=True, where=held, initial=-jnp.inf)
        return jnp.where(held | (low > high), driver, jnp.clip(driver, low, high))

    def loss(self, target: Values, missed: Values) -> Float[Array, ""]:
        """The mean square of what is missed; infinite where that is far more than all that the target varies.

        Then f at this date, which is of the fit, is larger than all that it should follow from.
        """
        squares = missed**2 @ self.weights
        mean = target @ self.weights
        rounding = jnp.finfo(target.dtype).eps * mean**2  # half of the digits
        variance = (target - mean[:, None]) ** 2 @ self.weights + rounding
        return jnp.where(jnp.any(squares > _DIVERGED * variance), jnp.inf, jnp.mean(squares))

    def coefficients(self, target: Values) -> Float[Array, "contracts functions"]:
        """A fit to the target, and one to what that leaves: it takes the ridge's bias away."""
        fitted = lambda target: ((target * self.weights[None]) @ self.columns.T) @ self.inverse  # noqa: E731
        first = fitted(target)
        return first + fitted(target - first @ self.columns)


def _inverse(gram: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Of a Gram matrix, in the directions that its columns span but for rounding; zero in the others."""
    scale = jax.lax.rsqrt(jnp.maximum(jnp.diagonal(gram), jnp.finfo(gram.dtype).tiny))
    values, vectors = jnp.linalg.eigh(gram * scale[:, None] * scale[None, :])
    spanned = values > _ROUNDING * jnp.finfo(gram.dtype).eps * values[-1]
    parts = jnp.where(spanned, 1.0 / jnp.where(spanned, values, 1.0), 0.0)
    rows = vectors * scale[:, None]
    return (rows * parts[None]) @ rows.T


class Combination(AbstractApproximation):
    """Coefficients of the functions at every date, latest first."""

    problem: Problem
    bases: tuple[AbstractBasis, ...]
    frames: PyTree[Array]
    coefficients: Float[Array, "steps contracts functions"]

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        return self.combined(date, x).reshape(self.problem.contracts)

    def combined(self, date: Date, x: State) -> Float[Array, " contracts"]:
        """The value, flat."""
        return self._of_date(date) @ self._functions(date, x)

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        slopes = jax.jacfwd(self._functions, argnums=1)(date, x)
        return (self._of_date(date) @ slopes).reshape(*self.problem.contracts, -1)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        curves = jax.jacfwd(jax.jacfwd(self._functions, argnums=1), argnums=1)(date, x)
        shape = *self.problem.contracts, self.problem.dim, self.problem.dim
        return jnp.tensordot(self._of_date(date), curves, 1).reshape(shape)

    def total(self, quantities: Float[Array, " contracts"]) -> "Combined":
        coefficients = jnp.einsum("scf,c->sf", self.coefficients, quantities)[:, None]
        return Combined(Combination(self.problem, self.bases, self.frames, coefficients))

    def _of_date(self, date: Date) -> Float[Array, "contracts functions"]:
        return self.coefficients[self.problem.num_steps - 1 - date]

    def _functions(self, date: Date, x: State) -> Float[Array, " functions"]:
        frames = jax.tree.map(lambda leaf: leaf[date], self.frames)
        return joined(self.bases, self.problem, frames, self.problem.times[date], x[:, None])[:, 0]


class Combined(AbstractApproximation):
    """A single combination: its gradient is one reverse sweep, its Hessian one for each coordinate."""

    row: Combination

    def value(self, date: Date, x: State) -> Float[Array, ""]:
        return self.row.combined(date, x)[0]

    def total(self, quantities: Float[Array, " contracts"]) -> "Combined":
        return Combined(self.row.total(quantities).row)


def _flat(values: Array, rank: int = 1) -> Array:
    """[*contracts, ..., paths], as the `rank` last axes are kept, with one axis for all contracts."""
    kept = values.shape[values.ndim - rank :]
    return values.reshape(-1, *kept)


def _driver(
    problem: Problem, t, x: States, value: Values, z: Float[Array, "contracts dim paths"]
) -> Values:
    """f at every path, of every contract."""
    return jax.vmap(partial(problem.flat_driver, t), -1, -1)(x, value, z)
