"""Gradient descent inside a program: optimizer steps by `lax.scan`."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


class Descent(NamedTuple):
    """Parameters on their way down."""

    parameters: PyTree[Array]
    memory: optax.OptState

    @classmethod
    def start(cls, optimizer: optax.GradientTransformation, parameters: PyTree) -> "Descent":
        return cls(parameters, optimizer.init(parameters))

    def advanced(
        self,
        optimizer: optax.GradientTransformation,
        loss: Callable[[PyTree, PRNGKeyArray], Float[Array, ""]],
        key: PRNGKeyArray,
        num_iterations: int,
    ) -> tuple["Descent", Float[Array, " iterations"]]:
        """So many iterations further, each on a batch drawn from its own key; and the loss of each."""

        def iteration(descent: Descent, index):
            parameters, memory = descent
            value, slope = jax.value_and_grad(loss)(parameters, jax.random.fold_in(key, index))
            with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by counts
                change, memory = optimizer.update(slope, memory, parameters)
            return Descent(optax.apply_updates(parameters, change), memory), value

        return jax.lax.scan(iteration, self, jnp.arange(num_iterations))


def adam(learning_rate: float, num_iterations: int) -> optax.GradientTransformation:
    """Adam, its rate falling to a hundredth along a cosine."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, num_iterations, 0.01))
