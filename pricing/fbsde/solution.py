"""What a training found: value, Delta and Gamma on the state space."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Number, as_real
from .approximation import AbstractApproximation
from .problem import Problem, State


class RESULTS(eqx.Enumeration):
    """How a training ended."""

    successful = ""
    non_finite = (
        "Lower the learning rate, or look for infinite values of the problem's functions far out."
    )


class Solution(eqx.Module):
    """u, its gradient and Hessian at any time and state, held by what may not happen today.

    On a date of the grid: the continuation value, before exercise or a stop; between two dates: linear in
    time. stats: "losses", of every iteration [stages, iterations].
    """

    problem: Problem
    approximation: AbstractApproximation
    result: RESULTS
    stats: dict[str, Any]

    def value(self, t: float | Array, x: State) -> Float[Array, "*contracts"]:
        """u(t, x), of every contract."""
        problem = self.problem
        return _between(problem, t, x, self.approximation.value, problem.terminal)

    def delta(self, t: float | Array, x: State) -> Float[Array, "*contracts dim"]:
        """The gradient of u in x."""
        problem = self.problem
        return _between(problem, t, x, self.approximation.gradient, problem.terminal_gradient)

    def gamma(self, t: float | Array, x: State) -> Float[Array, "*contracts dim dim"]:
        """The Hessian of u in x."""
        at_end = jax.jacfwd(self.problem.terminal_gradient)
        return _between(self.problem, t, x, self.approximation.hessian, at_end)

    def portfolio(self, quantities: Number) -> "Portfolio":
        """So many of each contract, together; raises ValueError for quantities of another shape."""
        quantities, contracts = as_real(quantities), self.problem.contracts
        if quantities.shape != contracts:
            raise ValueError(
                f"quantities of shape {quantities.shape}: the contracts are of shape {contracts}, "
                "give a quantity for each."
            )
        quantities = quantities.astype(self.problem.x0.dtype)
        total = self.approximation.total(quantities.reshape(-1))
        return Portfolio(self.problem, total, quantities)


class Portfolio(eqx.Module):
    """The sum of quantity times contract, and its derivatives, as a `Solution` has those of each contract.

    The quantities are in the coefficients already: Delta is one reverse sweep and Gamma one for each
    coordinate, of one function, or what the solver learned of them, summed, whatever the number of contracts.
    """

    problem: Problem
    approximation: AbstractApproximation
    quantities: Float[Array, "*contracts"]

    def value(self, t: float | Array, x: State) -> Float[Array, ""]:
        return _between(self.problem, t, x, self.approximation.value, self._paid)

    def delta(self, t: float | Array, x: State) -> Float[Array, " dim"]:
        return _between(self.problem, t, x, self.approximation.gradient, jax.grad(self._paid))

    def gamma(self, t: float | Array, x: State) -> Float[Array, "dim dim"]:
        at_end = jax.jacfwd(jax.grad(self._paid))
        return _between(self.problem, t, x, self.approximation.hessian, at_end)

    def _paid(self, x: State) -> Float[Array, ""]:
        return jnp.sum(self.quantities * self.problem.terminal(x))


def _between(problem: Problem, t: float | Array, x: State, at_date, at_end) -> Array:
    """Linear in time between the dates around t; the last of them is the end."""
    last = problem.num_steps
    steps = as_real(t).astype(problem.x0.dtype) / problem.dt
    nearest = jnp.rint(steps)
    steps = jnp.where(jnp.abs(steps - nearest) < 1e-4, nearest, steps)  # t is a date, but rounded
    before = jnp.clip(jnp.floor(steps), 0, last - 1).astype(jnp.int32)
    share = jnp.clip(steps - before.astype(steps.dtype), 0.0, 1.0)

    def at(date):
        return jax.lax.cond(
            date == last,
            lambda: at_end(x),
            lambda: at_date(jnp.minimum(date, last - 1), x),
        )

    first = at(before)
    after = before + (share > 0.0).astype(before.dtype)  # a date, if vmap runs both branches
    blend = lambda: first + share.astype(first.dtype) * (at(after) - first)  # noqa: E731
    return jax.lax.cond(share > 0.0, blend, lambda: first)
