"""How the density of the first step moves with the state today: weights for Delta and Gamma of any mean.

d/dx E[V(X_1)] = E[V(X_1) d/dx log p(X_1 | x)], whatever V is: no slope of V is asked for, nor a smooth one.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .problem import Problem, State

_PROBES = 4  # steps on which the form of the noise is looked at


class Weights(NamedTuple):
    """The first and the second derivative of p(X_1 | x) in x, over p, at x0."""

    slope: Float[Array, " dim"]
    curvature: Float[Array, "dim dim"]


class Parabola(NamedTuple):
    """A function of second degree of the state for each contract, zero at a point."""

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


class FirstStep(eqx.Module):
    """One step from today, X_1 = advance(x0, dw), as seen from other states x that could have led there.

    is_coordinatewise: whether each coordinate moves by itself, along its own noise: then no system is solved.
    """

    problem: Problem
    dw: State
    is_coordinatewise: bool = eqx.field(static=True)

    def increments(self, x: State) -> State:
        """Return the increments that lead from x to X_1, exact to the third order in x - x0.

        By Newton's method from those of x0: each of the two steps doubles the order.
        """
        end, dw = self._move(self.problem.x0, self.dw), self.dw
        for _ in range(2):
            dw = dw - self._solve(x, dw, self._move(x, dw) - end)
        return dw

    def log_density(self, x: State) -> Float[Array, ""]:
        """Return log p(X_1 | x), but for what does not depend on x."""
        dw = self.increments(x)
        noise = jax.jacfwd(self._move, 1)(x, dw)
        return -0.5 * dw @ dw / self.problem.dt - jnp.linalg.slogdet(noise)[1]

    def weights(self) -> Weights:
        """Return the weights for the derivatives of a mean of what follows on X_1."""
        slope, second = self._derivatives(self.log_density, self._log_densities)
        return Weights(slope, second + slope[:, None] * slope[None])

    def along(self, direction: State) -> Weights:
        """Return how direction . dW moves with x where X_1 stays: its gradient and its Hessian."""
        parts = lambda x: direction * self.increments(x)  # noqa: E731
        return Weights(*self._derivatives(lambda x: jnp.sum(parts(x)), parts))

    def carried(self, of: "Parabola") -> tuple[Array, Array, Array]:
        """Return a parabola of X_1, and its gradient and Hessian in x where dW stays: along the path."""
        x0, move = self.problem.x0, lambda x: self._move(x, self.dw)
        value, slope = of(move(x0))
        if self.is_coordinatewise:
            first = lambda x: _by_coordinate(move, x)  # noqa: E731
            j, bend = first(x0), jnp.diag(_by_coordinate(first, x0))
            second = slope[:, None, :] * bend[None]
            return value, slope * j[None], j[None, :, None] * of.second * j[None, None] + second
        j = jax.jacfwd(move)(x0)
        bend = jax.jacfwd(jax.jacfwd(move))(x0)
        return value, slope @ j, j.T @ of.second @ j + jnp.tensordot(slope, bend, 1)

    def _derivatives(
        self, total: Callable[[State], Array], parts: Callable[[State], State]
    ) -> tuple[State, Float[Array, "dim dim"]]:
        """Return gradient and Hessian at x0 of a total, given its parts, each of its own coordinate."""
        x0 = self.problem.x0
        if not self.is_coordinatewise:
            return jax.grad(total)(x0), jax.hessian(total)(x0)
        slopes = lambda x: _by_coordinate(parts, x)  # noqa: E731
        return slopes(x0), jnp.diag(_by_coordinate(slopes, x0))

    def _log_densities(self, x: State) -> State:
        """Return the logarithm of each coordinate's density."""
        dw = self.increments(x)
        return -0.5 * dw**2 / self.problem.dt - jnp.log(jnp.abs(self._noise(x, dw)))

    def _move(self, x: State, dw: State) -> State:
        return self.problem.advance(self.problem.times[0], x, dw)

    def _noise(self, x: State, dw: State) -> State:
        """Return by how much each coordinate moves with its own noise."""
        return _by_coordinate(lambda dw: self._move(x, dw), dw)

    def _solve(self, x: State, dw: State, rest: State) -> State:
        if self.is_coordinatewise:
            return rest / self._noise(x, dw)
        return jnp.linalg.solve(jax.jacfwd(self._move, 1)(x, dw), rest)


def _by_coordinate(function: Callable[[State], State], x: State) -> State:
    """Return the slope of each output in its own input, of a function with no others."""
    return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def is_coordinatewise(problem: Problem) -> bool:
    """Return whether each coordinate's first step depends on its own state and noise alone."""
    probes = jax.random.normal(jax.random.key(0), (_PROBES, problem.dim), problem.x0.dtype)
    found = _jacobians(problem, jnp.sqrt(problem.dt) * probes)
    off_diagonal = ~np.eye(problem.dim, dtype=bool)
    return all(not np.any(np.asarray(one)[:, off_diagonal]) for one in found)


@eqx.filter_jit
def _jacobians(problem: Problem, increments: Array) -> tuple[Array, Array]:
    move = lambda x, dw: problem.advance(problem.times[0], x, dw)  # noqa: E731
    return jax.vmap(jax.jacfwd(move, (0, 1)), (None, 0))(problem.x0, increments)
