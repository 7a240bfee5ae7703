"""Drivers that read Gamma: the variance that they add to the state, and paths with that variance."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..problem import Problem, Real, State
from .driver_form import reads_diagonal
from .step_density import noise_form, own_derivatives

_MOST_ADDED = 2.0  # multiples of the paths' variance up to which explicit schemes are stable
_ROUNDING = 1e-3
_LEAST = 64.0  # multiples of a rounding error


def added_variance(problem: Problem, gamma: Array) -> Float[Array, "contracts dim"]:
    """Return the variance that f adds today, by direction, in multiples of the paths' variance.

    For small changes of Gamma, f acts as if s s' were s s' + 2 f_Gamma: these are the eigenvalues of 2 f_Gamma
    in the directions of s.
    """
    t, x0, dim = problem.times[0], problem.x0, problem.dim
    y = jnp.ravel(problem.terminal(x0))
    z = jnp.zeros((y.size, dim), x0.dtype)
    many = jnp.broadcast_to(gamma, (y.size, dim, dim))
    slopes = jax.jacrev(lambda gamma: problem.flat_driver(t, x0, y, z, gamma))(many)
    own = jnp.moveaxis(jnp.diagonal(slopes, axis1=0, axis2=1), -1, 0)
    return 2.0 * jnp.linalg.eigvalsh(
        jax.vmap(lambda a: _in_units_of_diffusion(problem, t, x0, a))(own)
    )


def unstable(problem: Problem) -> str | None:
    """Return the reason why an explicit step is unstable, in words; None if it is stable.

    It is tested at today's state for convex and concave u.
    """
    if not problem.reads_gamma:
        return None
    t, x0 = problem.times[0], problem.x0
    bends = jnp.linalg.inv(problem.covariance(t, x0)) * (
        1.0 + jnp.max(jnp.abs(problem.terminal(x0)))
    )
    added = np.stack([np.asarray(added_variance(problem, sign * bends)) for sign in (1.0, -1.0)])
    low, high = added.min(), added.max()
    if low >= -1.0 - _ROUNDING and high <= _MOST_ADDED + _ROUNDING:
        return None
    return (
        f"a driver that makes the variance of the state {1.0 + low:.2g} to {1.0 + high:.2g} times that of its "
        "paths, where 0 to 3 are stable: give the problem another diffusion, and its driver the difference"
    )


class LinearizedDiffusion(eqx.Module):
    """The dynamics of solution errors if the driver reads Gamma.

    With C the solution's Gamma and a = f_Gamma, f is f(C) + a : (Gamma - C) up to the square of Gamma - C.
    Errors therefore move like states with covariance s s' + 2 a. Over a step this is s A A' s', with A from its
    start: paths have the diffusion s A, and the driver f - (s A A' s' - s s') : Gamma / 2. Under uncertain
    volatility, these are paths with the volatility chosen by the solution.

    is_diagonal: whether each coordinate has its own noise and f only reads Gamma's diagonal; then A has shape
    [dim], else [dim, dim].
    """

    problem: Problem
    is_diagonal: bool = eqx.field(static=True)

    def factor(self, t: Real, x: State, y: Real, z: State, gamma: Array) -> Array:
        """Return A, given the solution at x."""
        slope = jax.grad(lambda gamma: self.problem.driver(t, x, y, z, gamma))(gamma)
        # the variance may be 0, or negative by rounding
        least = _LEAST * jnp.finfo(x.dtype).eps
        if self.is_diagonal:
            own = jnp.diagonal(self.problem.covariance(t, x))
            return jnp.sqrt(jnp.maximum(1.0 + 2.0 * jnp.diagonal(slope) / own, least))
        turned = _in_units_of_diffusion(self.problem, t, x, slope)
        return jnp.linalg.cholesky((1.0 + least) * jnp.eye(len(x), dtype=x.dtype) + 2.0 * turned)

    def advance(self, t: Real, x: State, dw: State, factor: Array) -> State:
        """Return the state after the problem's step along A dW, shifted to keep its mean.

        A step that is exact for lognormal states stays exact.
        """
        dt = self.problem.dt
        noise = factor * dw if self.is_diagonal else factor @ dw
        move = lambda noise: self.problem.advance(t, x, noise)
        return move(noise - 0.5 * dt * self._bend(move, factor))

    def compensator(self, t: Real, x: State, gamma: Array, factor: Array) -> Real:
        """Return the part of the driver contained in the paths' diffusion."""
        if self.is_diagonal:
            own = jnp.diagonal(self.problem.covariance(t, x)) * jnp.diagonal(gamma)
            return 0.5 * jnp.sum((factor**2 - 1.0) * own)
        along = jax.vmap(lambda row: self.problem.z_of(t, x, row))  # rows of a matrix, times s
        turned = along(along(gamma).T)
        return 0.5 * jnp.sum((factor @ factor.T) * turned) - 0.5 * jnp.trace(turned)

    def drift(self, t: Real, x: State, y: Real, z: State, gamma: Array, factor: Array) -> State:
        """Return A^-1 f_z, the drift of dW if the driver also reads z."""
        f_z = jax.grad(lambda z: self.problem.driver(t, x, y, z, gamma))(z)
        return f_z / factor if self.is_diagonal else jnp.linalg.solve(factor, f_z)

    def _bend(self, move: Callable[[State], State], factor: Array) -> State:
        """Return the drift of a step's mean from its curvature in the noise, as noise per year."""
        still = jnp.zeros_like(self.problem.x0)
        if self.is_diagonal:
            slope, bend = own_derivatives(move, still, jnp.ones_like(still))
            return (factor**2 - 1.0) * bend / slope
        along = lambda v: jax.jvp(lambda n: jax.jvp(move, (n,), (v,))[1], (still,), (v,))[1]
        bends = jax.vmap(along)(factor.T) - jax.vmap(along)(jnp.eye(len(still), dtype=still.dtype))
        return jnp.linalg.solve(jax.jacfwd(move)(still), jnp.sum(bends, axis=0))


def linearized_dynamics(problem: Problem) -> LinearizedDiffusion | None:
    """Return the dynamics of errors if the driver reads Gamma, else None."""
    return LinearizedDiffusion(problem, _is_diagonal(problem)) if problem.reads_gamma else None


def linearized_first_step(linearized: LinearizedDiffusion, factor: Array) -> Problem:
    """Return the problem of the first step of errors, with A at x0 for any start."""
    return linearized.problem.replace(step=Partial(_linearized_step, linearized, factor))


def with_frozen_gamma(linearized: LinearizedDiffusion, factor: Array, gamma: Array) -> Problem:
    """Return the problem with the driver of errors over the first step, with the solution's Gamma there."""
    problem = linearized.problem
    own = problem.driver
    driver = lambda t, x, y, z: own(t, x, y, z, gamma) - linearized.compensator(t, x, gamma, factor)
    return eqx.tree_at(lambda p: p.driver, problem, driver)


def _linearized_step(
    linearized: LinearizedDiffusion, factor: Array, t: Real, dt: Real, x: State, dw: State
) -> State:
    return linearized.advance(t, x, dw, factor)


def _in_units_of_diffusion(
    problem: Problem, t: Real, x: State, a: Array
) -> Float[Array, "dim dim"]:
    """Return the symmetric part of a in units of s: s^-1 a s^-T."""
    s, a = problem.diffusion(t, x), 0.5 * (a + a.T)
    if jnp.ndim(s) < 2:
        s = jnp.broadcast_to(s, x.shape)
        return a / (s[:, None] * s[None])
    return jnp.linalg.solve(s, jnp.linalg.solve(s, a).T)


def _is_diagonal(problem: Problem) -> bool:
    """Return True if each coordinate has its own noise and f only reads Gamma's diagonal."""
    factor = noise_form(problem).factor
    is_own = factor is not None and not np.any(np.asarray(factor) != np.eye(problem.dim))
    return is_own and reads_diagonal(problem)
