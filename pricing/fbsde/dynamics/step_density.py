"""Derivatives of a step's density to the state before it: weights for Delta and Gamma of any mean.

d/dx E[V(X_1)] = E[V(X_1) d/dx log p(X_1 | x)] for any V, which need not be smooth.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..problem import Problem, Real, State

_PROBES = 4  # steps that determine the form of the noise
_ROUNDING = 64.0  # rounding errors within which directions are equal
_MOST_CONDITION = 1e3  # largest condition number of L, which is inverted
_SHORT = 1e-4  # of a step: in so short a time an exact step is x + s dW
_APART = 0.1  # between a step's noise and the diffusion, relative to the coordinate's noise


class Derivatives(NamedTuple):
    """A gradient and a Hessian to the state, [..., dim] and [..., dim, dim], or their estimates."""

    first: Any
    second: Any


class Parabola(NamedTuple):
    """A quadratic function of the state for each contract, zero at a point."""

    at: State
    first: Float[Array, "contracts dim"]
    second: Float[Array, "contracts dim dim"]

    def __call__(
        self, x: State
    ) -> tuple[Float[Array, " contracts"], Float[Array, "contracts dim"]]:
        """Return its value and its slope."""
        h = x - self.at
        bent = self.second @ h
        return (self.first + 0.5 * bent) @ h, self.first + bent


class NoiseForm(NamedTuple):
    """The form of the noise of a step.

    scale: the change of each coordinate by a unit of noise; derivatives are taken along steps of that length,
    so that rounding is similar for coordinates in different units. factor: L, if coordinate i only depends on
    its own state and (L dW)_i, like correlated assets: no linear system is then solved for a path, and the
    noise is L dW. None if there is no such matrix.
    """

    scale: State
    factor: Float[Array, "dim dim"] | None


class StepDensity(eqx.Module):
    """One step from x0 at t, X_1 = advance(t, x0, dw), as a function of other start states x."""

    problem: Problem
    t: Real
    x0: State
    dw: State
    form: NoiseForm

    def increments(self, x: State) -> State:
        """Return the noise that leads from x to X_1, exact to the third order in x - x0.

        It takes two Newton steps from the noise at x0, each of which doubles the order.
        """
        noise = self._noise
        end = self._move(self.x0, noise)
        for _ in range(2):
            noise = noise - self._solve(x, noise, self._move(x, noise) - end)
        return noise

    def log_density(self, x: State) -> Float[Array, ""]:
        """Return log p(X_1 | x), up to a term that does not depend on x."""
        noise = self.increments(x)
        slopes = jax.jacfwd(self._move, 1)(x, noise) / self.form.scale[:, None]
        return -0.5 * noise @ self._precision @ noise - jnp.linalg.slogdet(slopes)[1]

    def weights(self) -> Derivatives:
        """Return the weights for derivatives of means over X_1: derivatives to x of p(X_1 | x), over p."""
        x0 = self.x0
        if self.form.factor is None:
            slope, second = jax.grad(self.log_density)(x0), jax.hessian(self.log_density)(x0)
            return Derivatives(slope, second + slope[:, None] * slope[None])
        steepness = lambda x: jnp.log(jnp.abs(self._slopes(x, self.increments(x))))
        g, h = own_derivatives(self.increments, x0, self.form.scale)
        of_log, its_second = own_derivatives(steepness, x0, self.form.scale)
        precision = self._precision
        pull = precision @ self._noise
        slope = -g * pull - of_log
        second = -precision * g[:, None] * g[None] - jnp.diag(h * pull + its_second)
        return Derivatives(slope, second + slope[:, None] * slope[None])

    def along(self, direction: State) -> Derivatives:
        """Return the gradient and Hessian in x of direction . dW, with X_1 fixed."""
        x0 = self.x0
        if self.form.factor is None:
            total = lambda x: direction @ self.increments(x)
            return Derivatives(jax.grad(total)(x0), jax.hessian(total)(x0))
        own = jnp.linalg.solve(self.form.factor.T, direction)
        first, second = own_derivatives(self.increments, x0, self.form.scale)
        return Derivatives(own * first, jnp.diag(own * second))

    def carried(self, of: "Parabola") -> tuple[Array, Array, Array]:
        """Return a parabola of X_1, and its pathwise gradient and Hessian in x (dW fixed)."""
        x0, move = self.x0, lambda x: self._move(x, self._noise)
        value, slope = of(move(x0))
        if self.form.factor is not None:
            j, bend = own_derivatives(move, x0, self.form.scale)
            second = slope[:, None, :] * jnp.diag(bend)[None]
            return value, slope * j[None], j[None, :, None] * of.second * j[None, None] + second
        j = jax.jacfwd(move)(x0)
        bend = jax.jacfwd(jax.jacfwd(move))(x0)
        return value, slope @ j, j.T @ of.second @ j + jnp.tensordot(slope, bend, 1)

    def along_path(self, slope: Float[Array, "contracts dim"]) -> tuple[Array, Array]:
        """Return the derivative in x of a function of X_1 along the path (dW fixed), given its slope at X_1.

        The derivative of that to x with X_1 and the slope fixed, [contracts, dim, dim], is returned as well.
        """
        x0 = self.x0
        if self.form.factor is not None:
            scale = self.form.scale
            steep = lambda x: _by_coordinate(lambda s: self._move(s, self.increments(x)), x, scale)
            first, second = steep(x0), _by_coordinate(steep, x0, scale)
            return slope * first[None], slope[:, :, None] * jnp.diag(second)[None]

        def moved(x):
            return slope @ jax.jacfwd(self._move)(x, self.increments(x))

        return moved(x0), jax.jacfwd(moved)(x0)

    @property
    def _noise(self) -> State:
        """The noise of X_1 today: L dW."""
        return self.dw if self.form.factor is None else self.form.factor @ self.dw

    @property
    def _precision(self) -> Float[Array, "dim dim"]:
        """The inverse of the covariance of the noise."""
        own = jnp.eye(self.problem.dim, dtype=self.dw.dtype) / self.problem.dt
        if self.form.factor is None:
            return own
        return jnp.linalg.inv(self.form.factor @ self.form.factor.T) @ own

    def _move(self, x: State, noise: State) -> State:
        dw = noise if self.form.factor is None else jnp.linalg.solve(self.form.factor, noise)
        return self.problem.advance(self.t, x, dw)

    def _slopes(self, x: State, noise: State) -> State:
        """Return the derivative of each coordinate to its own noise."""
        return _by_coordinate(lambda noise: self._move(x, noise), noise, jnp.ones_like(noise))

    def _solve(self, x: State, noise: State, rest: State) -> State:
        if self.form.factor is not None:
            return rest / self._slopes(x, noise)
        slopes = jax.jacfwd(self._move, 1)(x, noise) / self.form.scale[:, None]
        return jnp.linalg.solve(slopes, rest / self.form.scale)


def _by_coordinate(function: Callable[[State], State], x: State, scale: State) -> State:
    """Return the slope of each output to its own input, for a function without cross dependence.

    scale: the length along each coordinate; a single derivative along all would round each by the longest.
    """
    return jax.jvp(function, (x,), (scale,))[1] / scale


def own_derivatives(
    function: Callable[[State], State], x: State, scale: State
) -> tuple[State, State]:
    """Return the first and second derivatives of each output to its own input."""
    first = lambda x: _by_coordinate(function, x, scale)
    return first(x), _by_coordinate(first, x, scale)


def noise_form(problem: Problem, t: Real | None = None, starts: Array | None = None) -> NoiseForm:
    """Return the form of the noise of a step.

    The rows of L are the directions of the noise at the first state; some steps test whether they hold for all.

    t: start of the step, today by default; starts: states at its start, [states, dim], x0 by default.
    """
    t = problem.times[0] if t is None else t
    states: Array = problem.x0[None] if starts is None else starts
    of_states, of_noise = _at_probes(problem, t, states)
    all_lengths = np.linalg.norm(of_noise, axis=2)
    lengths = all_lengths[0]
    scale = jnp.asarray(np.where(lengths > 0.0, lengths, 1.0))
    none = NoiseForm(scale, None)
    if not np.all(lengths > 0.0):
        return none
    factor = of_noise[0] / lengths[:, None]
    if not np.linalg.cond(factor) < _MOST_CONDITION:
        return none
    apart = of_noise[1:] - np.sum(of_noise[1:] * factor, axis=2, keepdims=True) * factor
    off_diagonal = ~np.eye(problem.dim, dtype=bool)
    smallest = _ROUNDING * np.finfo(factor.dtype).eps
    is_own = np.all(np.abs(apart) <= smallest * all_lengths[1:, :, None])
    if not is_own or np.any(of_states[:, off_diagonal]):
        return none
    return NoiseForm(scale, jnp.asarray(factor))


def moves_every_coordinate(problem: Problem) -> bool:
    """Return True if the noise of the first step moves the coordinates in linearly independent directions."""
    _, (at_rest, *_) = _at_probes(problem, problem.times[0], problem.x0[None])
    lengths = np.linalg.norm(at_rest, axis=1, keepdims=True)
    rank = np.linalg.matrix_rank(at_rest / np.where(lengths > 0.0, lengths, 1.0))
    return bool(rank == problem.dim)


def check_step(problem: Problem) -> None:
    """Check that the noise of an exact step is s dW in a short time, with s the problem's diffusion.

    Raises:
        ValueError: It is not: z and errors would be those of another equation.
    """
    if problem.step is None:
        return
    of_step, of_whole_step, of_diffusion = map(np.asarray, _noise_of_short_step(problem))
    # an integral of another coordinate has noise in a whole step, and next to none in a short one
    size = np.max(np.abs(np.stack([of_step, of_whole_step, of_diffusion])), axis=(0, 2))
    apart = np.max(np.abs(of_step - of_diffusion), axis=1)
    wrong = np.flatnonzero(apart > _APART * size)  # none if one is not finite
    if wrong.size:
        place = int(wrong[0])
        raise ValueError(
            f"in a short time `step` moves coordinate {place} of x0 by {of_step[place]} times dW, and "
            f"`diffusion` is {of_diffusion[place]} there: give both of the same equation"
        )


@eqx.filter_jit
def _noise_of_short_step(problem: Problem) -> tuple[Array, Array, Array]:
    """Return the derivatives of a short step, a whole step and s dW from x0 to the noise, each [dim, dim]."""
    t, x0 = problem.times[0], problem.x0
    short_step = lambda dw: problem.advance(t, x0, dw, _SHORT * problem.dt)
    whole_step = lambda dw: problem.advance(t, x0, dw, problem.dt)
    diffusion = lambda dw: problem.diffused(t, x0, dw)
    short, whole, diffused = (
        jax.jacfwd(of)(jnp.zeros_like(x0)) for of in (short_step, whole_step, diffusion)
    )
    return short, whole, diffused


def _at_probes(problem: Problem, t: Real, states: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the Jacobians of a step to its states and noise, [-1, dim, dim], at no noise and at some."""
    probes = jax.random.normal(jax.random.key(0), (_PROBES, problem.dim), problem.x0.dtype)
    noise = jnp.sqrt(problem.dt) * jnp.concatenate([jnp.zeros_like(probes[:1]), probes])
    of_states, of_noise = _jacobians(problem, t, states, noise)
    shape = -1, problem.dim, problem.dim
    return np.asarray(of_states).reshape(shape), np.asarray(of_noise).reshape(shape)


@eqx.filter_jit
def _jacobians(problem: Problem, t: Real, starts: Array, increments: Array) -> tuple[Array, Array]:
    move = lambda x, dw: problem.advance(t, x, dw)
    both = jax.jacfwd(move, (0, 1))
    return jax.vmap(jax.vmap(both, (None, 0)), (0, None))(starts, increments)
