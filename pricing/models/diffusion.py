"""The ability of models given by a stochastic differential equation, for backward equations."""

import abc
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..market.state import MarketState
from .model import AbstractModel, Scalar

State = Float[Array, " dim"]


class Diffusion(AbstractModel):
    """Ability: contracts depend only on a Markov state X, dX = b(t, X) dt + s(t, X) dW.

    All functions take one time (years) and one state, of shape (dim,).

    Attributes:
        step_is_exact: Whether `step` has the law of X after any dt; an Euler step has not.

    Examples:
        >>> from pricing.models import Heston
        >>> model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        >>> [f"{x:.2f}" for x in model.drift(0.5, model.state0)]
        ['3.00', '0.03']
    """

    step_is_exact: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def state0(self) -> State:
        """Today's state."""

    @abc.abstractmethod
    def drift(self, t: Scalar, x: State) -> State:
        """Return b."""

    @abc.abstractmethod
    def diffusion(self, t: Scalar, x: State) -> Array:
        """Return s: a number (times the identity), a vector (a diagonal) or a matrix of shape (dim, dim)."""

    @abc.abstractmethod
    def observed(self, t: Scalar, x: State) -> MarketState:
        """Return the market state for payoffs."""

    def step(self, t: Scalar, dt: Scalar, x: State, dw: State) -> State:
        """Return the state after dt for the increments dw of W: an Euler step, unless a model overrides it.

        A model whose own step is exact sets `step_is_exact`.
        """
        s = self.diffusion(t, x)
        return x + self.drift(t, x) * dt + (s @ dw if jnp.ndim(s) == 2 else s * dw)

    def short_rate(self, t: Scalar, x: State) -> Scalar:
        """Return the discounting rate; by default today's forward rate at t."""
        del x
        return -time_derivative(lambda t: jnp.log(self.discount(t)), t)


def time_derivative(function: Callable[[Scalar], Array], t: Scalar) -> Array:
    """Return the time derivative of a function."""
    return jax.jvp(function, (t,), (jnp.ones_like(t),))[1]
