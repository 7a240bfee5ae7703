"""The few directions on which a problem in many dimensions depends, and the problem along them.

A payoff of an index, of a geometric mean or of some of the factors is a function of w = P s(x), a few
combinations of the coordinates or of their logarithms. If the distribution of the steps of w only depends on w,
then u(t, x) = v(t, w), and v solves an equation in as many dimensions as w has.

Directions from gradients: Constantine, Active Subspaces, SIAM Spotlights 2 (2015). Here they hold exactly.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit

from ..functions import with_traced_functions
from ..problem import Problem, Real, State
from ..solver import RESULTS, AbstractApproximation, Date
from .forward_paths import simulate

_PATHS, _LEAST_PATHS = 1024, 8  # paths whose states are samples
_NUMBERS = 2**22  # most numbers of the gradients: with more per path, there are fewer paths
_SPREAD = 1.5  # factor of the paths' increments
_ROUNDING = 1e3  # rounding errors within which functions are equal

Rows = Float[Array, "rows dim"]


class ActiveSubspace(eqx.Module):
    """Coordinates w = P s(x), with s_i = log(x_i / x0_i) or x_i - x0_i, in units of their deviations.

    Attributes:
        x0: The state at which w = 0.
        unit: The unit of each s_i.
        is_log: Whether s_i is a logarithm.
        directions: The rows of P, orthonormal.
    """

    x0: State
    unit: State
    is_log: Bool[Array, " dim"]
    directions: Float[Array, "active dim"]

    def scaled(self, x: State) -> State:
        """Return s(x)."""
        ratio = jnp.where(self.is_log, x / jnp.where(self.is_log, self.x0, 1.0), 1.0)
        return jnp.where(self.is_log, jnp.log(ratio), x - self.x0) / self.unit

    def unscaled(self, s: State) -> State:
        """Return the state x with s(x) = s."""
        move = self.unit * s
        grown = self.x0 * jnp.exp(jnp.where(self.is_log, move, 0.0))
        return jnp.where(self.is_log, grown, self.x0 + move)

    def project(self, x: State) -> Float[Array, " active"]:
        """Return w of a state."""
        return self.directions @ self.scaled(x)

    def lift(self, w: Float[Array, " active"]) -> State:
        """Return the state of that w without displacement in the other directions."""
        return self.unscaled(self.directions.T @ w)

    def slopes(self, x: State) -> Float[Array, "active dim"]:
        """Return the derivatives of w in x."""
        return self.directions / (self.unit * jnp.where(self.is_log, x, 1.0))[None]

    def noise(
        self, problem: Problem, t: Real, x: State
    ) -> tuple[Float[Array, "active active"], Float[Array, "active dim"]]:
        """Return L and R, with L R dW the noise of w and the rows of R orthonormal (Gram-Schmidt).

        LAPACK is not used: on a CPU, concurrent batched calls can deadlock (jaxlib 0.10.0 to 0.11.0).
        """
        rows = problem.z_of(t, x, self.slopes(x))
        factor, across = jnp.zeros((len(rows), len(rows)), rows.dtype), []
        for i, row in enumerate(rows):
            for j, other in enumerate(across):
                factor = factor.at[i, j].set(row @ other)
                row = row - factor[i, j] * other
            factor = factor.at[i, i].set(jnp.sqrt(row @ row))
            across.append(row / factor[i, i])
        return factor, jnp.stack(across)

    def reduced(self, problem: Problem) -> Problem:
        """Return the problem of v(t, w), whose steps are affine in their noise."""
        count = len(self.directions)

        def driver(t, w, y, z):
            x = self.lift(w)
            return problem.driver(t, x, y, z @ self.noise(problem, t, x)[1])

        def step(t, dt, w, noise):
            x = self.lift(w)
            across = self.noise(problem, t, x)[1]
            end = lambda noise: self.project(problem.advance(t, x, noise @ across, dt))
            still = jnp.zeros_like(noise)
            return end(still) + jax.jacfwd(end)(still) @ noise

        def lifted(function: Callable | None) -> Callable | None:
            return None if function is None else lambda t, w, *y: function(t, self.lift(w), *y)

        found = problem.replace(
            dim=count,
            x0=jnp.zeros(count, problem.x0.dtype),
            drift=lambda t, w: (step(t, problem.dt, w, jnp.zeros_like(w)) - w) / problem.dt,
            diffusion=lambda t, w: self.noise(problem, t, self.lift(w))[0],
            driver=driver,
            terminal=lambda w: problem.terminal(self.lift(w)),
            exercise_value=lifted(problem.exercise_value),
            exercise_in_step=None,
            switch=lifted(problem.switch),
            is_alive=lifted(problem.is_alive),
            stopped_value=lifted(problem.stopped_value),
            step=step,
            step_is_exact=problem.step is not None and problem.step_is_exact,
            scheme="euler",
        )
        return with_traced_functions(found)


class OnSubspace(AbstractApproximation):
    """u(t, x) = v(t, w), with `inner` the approximation of v."""

    inner: AbstractApproximation
    subspace: ActiveSubspace

    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        return self.inner.value(date, self.subspace.project(x))

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        return self.inner.gradient(date, self.subspace.project(x)) @ self.subspace.slopes(x)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        w, slopes = self.subspace.project(x), self.subspace.slopes(x)
        bent = slopes.T @ self.inner.hessian(date, w) @ slopes
        of_logs = jnp.diag(jnp.where(self.subspace.is_log, -1.0 / x, 0.0))
        return bent + jnp.einsum("...i,ij->...ij", self.inner.gradient(date, w) @ slopes, of_logs)

    def hessian_rounding(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        slopes = jnp.abs(self.subspace.slopes(x))
        return slopes.T @ self.inner.hessian_rounding(date, self.subspace.project(x)) @ slopes

    def result(self, order: int, date: Date, x: State) -> RESULTS:
        return self.inner.result(order, date, self.subspace.project(x))

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "OnSubspace":
        return OnSubspace(self.inner.portfolio(quantities), self.subspace)


class _Samples(eqx.Module):
    """States of some paths; at each, random noise of a step, and y and z of all contracts."""

    states: Float[Array, "dates paths dim"]
    noise: Float[Array, "steps paths dim"]
    y: Float[Array, "steps paths contracts"]
    z: Float[Array, "steps paths contracts most"]


def active_subspace(problem: Problem, most: int) -> ActiveSubspace | None:
    """Return the directions on which a problem depends, at most `most` and fewer than its coordinates, or None.

    The directions span the gradients of all functions at the states of some paths. They are accepted if, at
    these states, every function equals that of the reduced problem up to rounding. A dependence that no sample
    shows is not noticed. Problems with jumps, a `start` or a driver that reads Gamma have no directions here,
    and neither has a payoff with a gradient of zero, such as a digital.
    """
    if problem.jumps is not None or problem.start is not None or problem.reads_gamma:
        return None
    of_path = math.prod(problem.contracts) * problem.num_steps * problem.dim
    samples = _drawn(problem, most, max(_LEAST_PATHS, min(_PATHS, _NUMBERS // of_path)))
    found = ActiveSubspace(problem.x0, *_scaling(problem, samples), _no_directions(problem))
    rows = _payoff_gradients(problem, found, samples)
    while True:
        directions = _row_space([*map(np.asarray, rows)])
        if not 0 < len(directions) <= min(most, problem.dim - 1):
            return None
        if len(directions) == len(found.directions):
            break
        found = dataclasses.replace(found, directions=jnp.asarray(directions))
        rows = [*rows, *_dynamics_gradients(problem, found, samples)]
    holds = _holds(problem, found.reduced(problem), found, samples)
    return found if bool(holds) else None


@stored_jit
def _drawn(problem: Problem, most: int, count: int) -> _Samples:
    paths, *keys = jax.random.split(jax.random.key(0), 4)
    states = simulate(problem, count, key=paths, spread=_SPREAD).states
    contracts = math.prod(problem.contracts)
    noise, y, z = (
        jax.random.normal(key, (problem.num_steps, count, *shape), problem.x0.dtype)
        for key, shape in zip(keys, ((problem.dim,), (contracts,), (contracts, most)), strict=True)
    )
    size = 1.0 + jnp.max(jnp.abs(problem.terminal(problem.x0)))
    return _Samples(states, _SPREAD * jnp.sqrt(problem.dt) * noise, size * y, size * z)


@stored_jit
def _scaling(problem: Problem, samples: _Samples) -> tuple[State, Bool[Array, " dim"]]:
    """Return the units of the coordinates, and whether their logarithm has the steadier noise."""
    states = samples.states

    def length(t, x):
        s = problem.diffusion(t, x)
        return jnp.linalg.norm(s, axis=1) if jnp.ndim(s) == 2 else jnp.broadcast_to(s, x.shape)

    lengths = jax.vmap(jax.vmap(length, (None, 0)))(problem.times[:-1], states[:-1])
    is_positive = jnp.all(states > 0.0, axis=(0, 1))
    smallest = jnp.finfo(states.dtype).tiny

    def variation(x):
        return jnp.std(x, axis=(0, 1)) / jnp.maximum(jnp.mean(jnp.abs(x), axis=(0, 1)), smallest)

    relative = lengths / jnp.where(is_positive[None, None], states[:-1], 1.0)
    is_log = is_positive & (variation(relative) < variation(lengths))
    in_own_units = ActiveSubspace(
        problem.x0, jnp.ones_like(problem.x0), is_log, _no_directions(problem)
    )
    unit = jnp.std(jax.vmap(in_own_units.scaled)(states[-1]), axis=0)
    return jnp.where(unit > 0.0, unit, 1.0), is_log


def _no_directions(problem: Problem) -> Float[Array, "0 dim"]:
    return jnp.zeros((0, problem.dim), problem.x0.dtype)


@stored_jit
def _payoff_gradients(problem: Problem, subspace: ActiveSubspace, samples: _Samples) -> list[Rows]:
    """Return the gradients in s of all payments, each relative to its size."""
    found = []
    for function, dates in _payments(problem):

        def of_state(date, x, function=function):
            t, s = problem.times[date], subspace.scaled(x)
            paid = lambda s: jnp.atleast_1d(function(t, subspace.unscaled(s)))
            return paid(s), jax.jacrev(paid)(s)

        values, slopes = _at_samples(of_state, dates, samples.states[np.array(dates)])
        found.append(_relative(slopes, values))
    return found


@stored_jit
def _dynamics_gradients(
    problem: Problem, subspace: ActiveSubspace, samples: _Samples
) -> list[Rows]:
    """Return the gradients in s of w after a step and of the driver, each relative to its size."""

    def of_state(date, x, noise, y, z):
        t, s = problem.times[date], subspace.scaled(x)
        z = z[:, : len(subspace.directions)]

        def after(s):
            return subspace.project(problem.advance(t, subspace.unscaled(s), noise))

        def driver(s):
            x = subspace.unscaled(s)
            return problem.flat_driver(t, x, y, z @ subspace.noise(problem, t, x)[1])

        both = after(s), driver(s)
        return both, (jax.jacrev(after)(s), jax.jacrev(driver)(s))

    values, slopes = _at_samples(of_state, range(problem.num_steps), *_of_steps(samples))
    return [*map(_relative, slopes, values)]


@stored_jit
def _holds(
    problem: Problem, reduced: Problem, subspace: ActiveSubspace, samples: _Samples
) -> Bool[Array, ""]:
    """Return True if the functions of the reduced problem have the values of the problem's own."""
    pairs = []
    for (function, dates), (of_reduced, _) in zip(
        _payments(problem), _payments(reduced), strict=True
    ):

        def paid(date, x, function=function, of_reduced=of_reduced):
            t = problem.times[date]
            return function(t, x), of_reduced(t, subspace.project(x))

        pairs.append(_at_samples(paid, dates, samples.states[np.array(dates)]))

    def of_step(date, x, noise, y, z):
        t, w = problem.times[date], subspace.project(x)
        across = subspace.noise(problem, t, x)[1]
        z = z[:, : len(subspace.directions)]
        after = subspace.project(problem.advance(t, x, noise))
        driver = problem.flat_driver(t, x, y, z @ across)
        own = reduced.advance(t, w, across @ noise), reduced.flat_driver(t, w, y, z)
        switched = problem.after_switch(date, x, y), reduced.after_switch(date, w, y)
        return (after, own[0]), (driver, own[1]), switched

    pairs += _at_samples(of_step, range(problem.num_steps), *_of_steps(samples))
    return jnp.all(jnp.stack([_are_equal(*pair) for pair in pairs]))


def _payments(problem: Problem) -> list[tuple[Callable, tuple[int, ...]]]:
    """Return the functions of (t, x) that determine what is paid, and their dates."""
    found: list[tuple[Callable, tuple[int, ...]]] = [
        (lambda t, x: problem.terminal(x), (problem.num_steps,))
    ]
    if problem.exercise_value is not None:
        found.append((problem.exercise_value, problem.exercise_dates))
    if problem.is_alive is not None:
        lives = problem.is_alive
        found.append((lambda t, x: lives(t, x).astype(x.dtype), problem.stopping_dates))
        found.append((problem.paid_at_stop, problem.stopping_dates))
    return found


def _of_steps(samples: _Samples) -> tuple[Array, ...]:
    return samples.states[:-1], samples.noise, samples.y, samples.z


def _at_samples(function: Callable, dates: Iterable[int], *given: Array) -> Any:
    """Return a function's values for dates and samples [dates, paths, ...]."""
    of_date = jax.vmap(function, (None, *(0,) * len(given)))
    return jax.vmap(of_date)(jnp.asarray([*dates]), *given)


def _relative(slopes: Array, values: Array) -> Rows:
    """Return gradients as rows, relative to the largest slope or value."""
    size = jnp.maximum(jnp.max(jnp.abs(slopes)), jnp.max(jnp.abs(values)))
    return slopes.reshape(-1, slopes.shape[-1]) / jnp.where(size > 0.0, size, 1.0)


def _are_equal(one: Array, other: Array) -> Bool[Array, ""]:
    is_finite = jnp.isfinite(one)
    size = jnp.max(jnp.abs(jnp.where(is_finite, one, 0.0)))
    is_near = jnp.abs(one - other) <= _ROUNDING * jnp.finfo(one.dtype).eps * size
    return jnp.all(jnp.where(is_finite, is_near, ~jnp.isfinite(other)))


def _row_space(rows: list[np.ndarray]) -> np.ndarray:
    """Return an orthonormal basis of the space of all rows, up to rounding."""
    stacked = np.concatenate(rows)
    stacked = stacked[np.all(np.isfinite(stacked), axis=1)]
    _, sizes, directions = np.linalg.svd(stacked, full_matrices=False)
    return directions[sizes > _ROUNDING * np.finfo(stacked.dtype).eps * np.max(sizes, initial=1.0)]
