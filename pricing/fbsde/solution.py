"""Solution of a training: value, Delta and Gamma on the state space."""

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
from ..numerics.safe_math import nan_where
from .problem import Problem, State
from .showing import RunNote, draw, summary_of
from .solver import RESULTS, AbstractApproximation, weighted_sum

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # to checkers of types no argument of `__init__`
else:
    from equinox import AbstractVar

_ROUNDING = 1e-4  # of a step, within which a time is a date


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
            t: The time, between 0 and the maturity; ValueError for another, and NaN within `jax.jit` or
                `jax.vmap`.
            x: The state, of shape [dim]; ValueError for another shape. Where the solver learns no value it is a
                RuntimeError; within `jax.jit` or `jax.vmap` it is NaN.

        Returns:
            The value of every contract.
        """
        return self._derivative(0, t, x)

    def delta(self, t: Number, x: Number) -> Float[Array, "*contracts dim"]:
        """Return the gradient of u in x, with the arguments and errors of `value`."""
        return self._derivative(1, t, x)

    def gamma(self, t: Number, x: Number) -> Float[Array, "*contracts dim dim"]:
        """Return the Hessian of u in x, with the arguments and errors of `value`."""
        return self._derivative(2, t, x)

    @full_matmul_precision
    def _derivative(self, order: int, t: Number, x: Number) -> Array:
        """Return a derivative of u in x.

        Raises:
            ValueError: x is of another shape than [dim], or t is not between 0 and the maturity.
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
    """Result of `solve`: u, its gradient and its Hessian at any time and state, of every contract.

    On a date of the grid u is the continuation value, before an exercise or a stop; between two dates it is
    linear in time.

    Attributes:
        problem: The problem that was solved.
        approximation: u at the dates of the grid.
        result: Result of the training.
        stats: "losses", of every iteration, of shape [stages, iterations]; `solve` without a solver adds more.
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
            quantities: The quantity of each contract, of their shape.

        Returns:
            The portfolio.

        Raises:
            ValueError: The quantities are of another shape.
        """
        quantities, contracts = as_real(quantities), self.problem.contracts
        if quantities.shape != contracts:
            raise ValueError(
                f"quantities of shape {quantities.shape}: the contracts are of shape {contracts}, "
                "give a quantity for each."
            )
        quantities = quantities.astype(self.problem.x0.dtype)
        summed = self.approximation.portfolio(quantities.reshape(-1))
        return Portfolio(self.problem, summed, quantities)

    def summary(self) -> str:
        """Return a table of today's figures as text: value, Delta, and Gamma's diagonal, with their errors.

        The estimates and standard errors are those of the certificate in `stats`, where `solve` selected the
        solver; otherwise the estimates are the solution's own, and `certify` has their errors. Of a long
        figure the first ten entries are shown. A solution of many keys is a ValueError.
        """
        return summary_of(self)

    def plot(self, axis: int = 0, t: float | None = None, axes: Any = None) -> Any:
        """Draw value, Delta and Gamma along one coordinate, and the training's loss, by matplotlib.

        The coordinate runs over the states that 90 % of the paths reach at t; the others are at their medians.
        Farther out a solution is an extrapolation. A coordinate that there is not, a time outside of the
        equation's, and a solution of many keys are ValueErrors.

        Args:
            axis: The coordinate.
            t: The time; None is the middle date of the grid.
            axes: Four axes of matplotlib; None makes a figure.

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
    """The sum of quantity times contract, and its derivatives, as a `Solution` of one contract.

    The quantities are in the coefficients already: Delta takes one reverse sweep of one function, and Gamma one
    for each coordinate, or they are sums that the solver learned, whatever the number of contracts.

    Attributes:
        problem: The problem that was solved.
        approximation: The sum at the dates of the grid.
        quantities: The quantity of each contract, of their shape.
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
    """Return a derivative of that order, linear in time between the dates around t, and whether it is known."""
    problem, found = function.problem, function.approximation
    slope = jax.jacrev(function._terminal)
    at_end = (function._terminal, slope, jax.jacfwd(slope))[order]
    at_date = (found.value, found.gradient, found.hessian)[order]
    last = problem.num_steps
    steps = t / problem.dt
    nearest = jnp.rint(steps)
    steps = jnp.where(
        jnp.abs(steps - nearest) < _ROUNDING, nearest, steps
    )  # t is a date, but rounded
    before = jnp.clip(jnp.floor(steps), 0, last - 1).astype(jnp.int32)
    share = jnp.clip(steps - before.astype(steps.dtype), 0.0, 1.0)

    def at(date):
        return jax.lax.cond(
            date == last, lambda: at_end(x), lambda: at_date(jnp.minimum(date, last - 1), x)
        )

    after = before + (share > 0.0).astype(before.dtype)  # a date, if vmap runs both branches
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
