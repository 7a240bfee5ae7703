"""Solutions of backward equations: value, Delta and Gamma as functions of the state."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ..fields import Number, as_real
from ..numerics.safe_math import clipped, nan_where
from .problem import Problem, State
from .showing import RunNote, draw, summary_of
from .solver import RESULTS, AbstractApproximation, weighted_sum

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

_ROUNDING = 1e-4  # relative to a step: times this close are dates


class AbstractValueFunction(eqx.Module):
    """A function of time and state, known on the dates of the problem's grid, with its derivatives."""

    problem: AbstractVar[Problem]
    approximation: AbstractVar[AbstractApproximation]

    @abc.abstractmethod
    def _terminal(self, x: State) -> Array:
        """Return the value at maturity."""

    def value(self, t: Number, x: Number) -> Float[Array, "*contracts"]:
        """Return u(t, x).

        Args:
            t: The time, between 0 and the maturity. Another time raises ValueError, or gives NaN within
                `jax.jit` or `jax.vmap`.
            x: The state, of shape [dim]; another shape raises ValueError. Where the solver learns no value,
                RuntimeError is raised, or the value is NaN within `jax.jit` or `jax.vmap`.

        Returns:
            The value of every contract.
        """
        return self._derivative(0, t, x)

    def delta(self, t: Number, x: Number) -> Float[Array, "*contracts dim"]:
        """Return the gradient of u, with the arguments and errors of `value`."""
        return self._derivative(1, t, x)

    def gamma(self, t: Number, x: Number) -> Float[Array, "*contracts dim dim"]:
        """Return the Hessian of u, with the arguments and errors of `value`."""
        return self._derivative(2, t, x)

    @full_matmul_precision
    def _derivative(self, order: int, t: Number, x: Number) -> Array:
        """Return a derivative of u in x.

        Raises:
            ValueError: x does not have shape [dim], or t is not between 0 and the maturity.
            RuntimeError: The solver learns no such derivative there.
        """
        dim, dtype = self.problem.dim, self.problem.x0.dtype
        t, x = as_real(t).astype(dtype), as_real(x).astype(dtype)
        if x.shape != (dim,):
            raise ValueError(f"x of shape {x.shape}: give one state, [{dim}]; jax.vmap takes many.")
        is_within = _is_within(self.problem, t)
        if not isinstance(is_within, Tracer) and not bool(is_within):
            maturity = float(self.problem.maturity)
            raise ValueError(
                f"t={float(t):g}: give a time between 0 and the maturity, {maturity:g}."
            )
        figure, result = _interpolated(self, order, t, x)
        if not result.is_traced() and result != RESULTS.successful:
            raise RuntimeError(RESULTS[result])
        return figure


class Solution(AbstractValueFunction):
    """The result of `solve`: u, its gradient and its Hessian at any time and state, for every contract.

    On a grid date, u is the continuation value, before exercise or a stop; between dates it is linear in time.

    Attributes:
        problem: The problem that was solved.
        approximation: u at the dates of the grid.
        result: Result of the training.
        stats: "losses" of every iteration, of shape [stages, iterations]; `solve` without a solver adds more.
        run: A note of the solver and its time, for `summary`.
    """

    problem: Problem
    approximation: AbstractApproximation
    result: RESULTS
    stats: dict[str, Any]
    run: RunNote = RunNote("", None)

    @full_matmul_precision
    def portfolio(self, quantities: Number) -> "Portfolio":
        """Return the sum of quantity times contract.

        Args:
            quantities: The quantity of each contract, of the shape of the contracts.

        Returns:
            The portfolio.

        Raises:
            ValueError: The quantities have another shape.
        """
        quantities, contracts = as_real(quantities), self.problem.contracts
        if quantities.shape != contracts:
            raise ValueError(
                f"quantities of shape {quantities.shape}: the contracts have shape {contracts}; "
                f"give a quantity for each."
            )
        quantities = quantities.astype(self.problem.x0.dtype)
        summed = self.approximation.portfolio(quantities.reshape(-1))
        return Portfolio(self.problem, summed, quantities)

    def summary(self) -> str:
        """Return a table of today's figures as text: value, Delta and Gamma, with their errors.

        If `solve` selected the solver, estimates and standard errors are those of the certificate in `stats`,
        and an error has all known sources: noise (three standard errors, or more for many entries), dates,
        functions and rounding. Otherwise estimates are those of the solution, and `certify` computes standard
        errors. Only the first ten entries of a figure are shown, of Gamma those of the diagonal first. A
        solution for several keys raises ValueError.
        """
        return summary_of(self)

    def plot(self, axis: int = 0, t: float | None = None, axes: Any = None) -> Any:
        """Plot value, Delta and Gamma along one coordinate, and the training loss, with matplotlib.

        The coordinate covers the central 90 % of paths at t; the others are at their medians. Outside this
        range, a solution is an extrapolation. An invalid coordinate or time, and a solution for several keys,
        raise ValueError.

        Args:
            axis: The coordinate.
            t: The time; None for the middle date of the grid.
            axes: Four matplotlib axes; None to create a figure.

        Returns:
            The figure.

        Examples:
            >>> from pricing.fbsde import Solution
            >>> def picture(solution: Solution, path):
            ...     solution.plot(axis=0).savefig(path)
        """
        return draw(self, axis, t, axes)

    def _terminal(self, x: State) -> Float[Array, "*contracts"]:
        return self.problem.terminal(x)


class Portfolio(AbstractValueFunction):
    """The sum of quantity times contract, and its derivatives, like a `Solution` of one contract.

    The quantities are already multiplied into the coefficients, so the cost does not depend on the number of
    contracts: Delta takes one reverse sweep of one function and Gamma one for each coordinate, or they are sums
    that the solver learned.

    Attributes:
        problem: The problem that was solved.
        approximation: The sum at the dates of the grid.
        quantities: The quantity of each contract, of the shape of the contracts.
    """

    problem: Problem
    approximation: AbstractApproximation
    quantities: Float[Array, "*contracts"]

    def _terminal(self, x: State) -> Float[Array, ""]:
        return jnp.sum(self.quantities * self.problem.terminal(x))


@stored_jit
def _interpolated(
    function: AbstractValueFunction, order: int, t: Array, x: State
) -> tuple[Array, RESULTS]:
    """Return a derivative of an order, linear in time between dates, and its result code."""
    problem, found = function.problem, function.approximation
    slope = jax.jacrev(function._terminal)
    at_end = (function._terminal, slope, jax.jacfwd(slope))[order]
    at_date = (found.value, found.gradient, found.hessian)[order]
    last = problem.num_steps
    steps = t / problem.dt
    nearest = jnp.rint(steps)
    steps = jnp.where(
        jnp.abs(steps - nearest) < _ROUNDING, nearest, steps
    )  # t is a date up to rounding
    before = jnp.clip(jnp.floor(steps), 0, last - 1).astype(jnp.int32)
    share = clipped(steps - before.astype(steps.dtype), 0.0, 1.0)

    def at(date):
        return jax.lax.cond(
            date == last, lambda: at_end(x), lambda: at_date(jnp.minimum(date, last - 1), x)
        )

    after = before + (share > 0.0).astype(before.dtype)  # valid if vmap runs both branches
    dates, weights = jnp.stack([before, after]), jnp.stack([1.0 - share, share])

    def result_at(date, weight):
        unread = (weight == 0.0) | (date == last)
        return RESULTS.where(unread, RESULTS.successful, found.result(order, date, x))  # pyright: ignore[reportArgumentType]

    result = jax.tree.map(jnp.max, jax.vmap(result_at)(dates, weights))
    figure = weighted_sum(at, dates, weights, jax.eval_shape(at_end, x))
    return nan_where(~_is_within(problem, t), figure), result


def _is_within(problem: Problem, t: Array) -> Array:
    """Return True if a time lies between today and the maturity, up to rounding."""
    steps = t / problem.dt
    return (steps > -_ROUNDING) & (steps < problem.num_steps + _ROUNDING)
