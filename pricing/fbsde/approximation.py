"""What a solver hands over: u at every date, its gradient and its Hessian."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int

from .problem import State

Date = int | Int[Array, ""]


class AbstractApproximation(eqx.Module):
    """u on the dates of a problem's grid, before what may happen there (exercise, a stop)."""

    @abc.abstractmethod
    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        """u(t_date, x), date < num_steps."""

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        """Of the value; by default its derivative."""
        return jax.jacrev(self.value, argnums=1)(date, x)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """Of the value; by default the derivative of the gradient."""
        return jax.jacfwd(self.gradient, argnums=1)(date, x)

    @abc.abstractmethod
    def total(self, quantities: Float[Array, " contracts"]) -> "AbstractApproximation":
        """Of one contract, the sum of quantity times contract, these in their flat order.

        The quantities are multiplied into what the outputs are linear in: nothing is of all contracts any more.
        """
