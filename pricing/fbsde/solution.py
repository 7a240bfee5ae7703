"""What a training found: value, Delta and Gamma on the state space."""

import abc
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
        "Lower the learning rate; of a regression, take functions of lower degree, order=1, a wider scatter "
        "or more paths; or look for infinite values of the problem's functions far out."
    )


class _Known(eqx.Module):
    """A function of time and state, known on the dates of the problem's grid, with its derivatives.

    All raise ValueError for a state of another shape than [dim].
    """

    problem: eqx.AbstractVar[Problem]
    approximation: eqx.AbstractVar[AbstractApproximation]

    @abc.abstractmethod
    def _paid(self, x: State) -> Array:
        """At the end."""

    def value(self, t: Number, x: Number) -> Float[Array, "*contracts"]:
        """u(t, x)."""
        return self._derivative(0, t, x)

    def delta(self, t: Number, x: Number) -> Float[Array, "*contracts dim"]:
        """The gradient of u in x."""
        return self._derivative(1, t, x)

    def gamma(self, t: Number, x: Number) -> Float[Array, "*contracts dim dim"]:
        """The Hessian of u in x."""
        return self._derivative(2, t, x)

    def _derivative(self, order: int, t: Number, x: Number) -> Array:
        dim, dtype = self.problem.dim, self.problem.x0.dtype
        t, x = as_real(t).astype(dtype), as_real(x).astype(dtype)
        if x.shape != (dim,):
            raise ValueError(f"x of shape {x.shape}: give one state, [{dim}]; jax.vmap takes many.")
        return _between(self, order, t, x)


class Solution(_Known):
    """u, its gradient and Hessian at any time and state, of every contract, held by what may not happen today.

    On a date of the grid: the continuation value, before exercise or a stop; between two dates: linear in
    time. stats: "losses", of every iteration [stages, iterations].
    """

    problem: Problem
    approximation: AbstractApproximation
    result: RESULTS
    stats: dict[str, Any]

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

    def _paid(self, x: State) -> Float[Array, "*contracts"]:
        return self.problem.terminal(x)


class Portfolio(_Known):
    """The sum of quantity times contract, and its derivatives, as a `Solution` has those of each contract.

    The quantities are in the coefficients already: Delta is one reverse sweep and Gamma one for each
    coordinate, of one function, or what the solver learned of them, summed, whatever the number of contracts.
    """

    problem: Problem
    approximation: AbstractApproximation
    quantities: Float[Array, "*contracts"]

    def _paid(self, x: State) -> Float[Array, ""]:
        return jnp.sum(self.quantities * self.problem.terminal(x))


@eqx.filter_jit
def _between(known: _Known, order: int, t: Array, x: State) -> Array:
    """A derivative of that order, linear in time between the dates around t, of which the last is the end."""
    problem, found = known.problem, known.approximation
    slope = jax.jacrev(known._paid)
    at_end = (known._paid, slope, jax.jacfwd(slope))[order]
    at_date = (found.value, found.gradient, found.hessian)[order]
    last = problem.num_steps
    steps = t / problem.dt
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
