"""Multilayer perceptrons as pytrees of arrays, and their training inside a program."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

_EPSILON = 1e-5  # keeps the variance of a layer above zero


class Perceptron(eqx.Module):
    """The function W_n a(... a(W_1 x + b_1)) + b_n; with layer_norm hidden layers are normalized before a."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: Callable = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer > 0:
                x = self.activation(_layer_norm(x) if self.layer_norm else x)
            x = x @ weight + bias.reshape((1,) * (x.ndim - 1) + bias.shape)
        return x

    def portfolio(self, quantities: Float[Array, " contracts"]) -> "Perceptron":
        """Return the network of the sum of quantity times outputs, which are in order of their contracts."""
        last = lambda n: (n.weights[-1], n.biases[-1])
        return eqx.tree_at(
            last, self, tuple(sum_over_contracts(leaf, quantities) for leaf in last(self))
        )


def sum_over_contracts(
    rows: Float[Array, "*batch outputs"], quantities: Float[Array, " contracts"]
) -> Float[Array, "*batch outputs_of_one"]:
    """Return the sum of quantity times outputs, over an axis with the outputs of one contract after another."""
    of_each = rows.reshape(*rows.shape[:-1], quantities.size, -1)
    return jnp.einsum("...ck,c->...k", of_each, quantities)


class Architecture(eqx.Module):
    """Architecture of the networks of a solver.

    Attributes:
        width: The units of a hidden layer; None is the problem's dimension + 10.
        depth: The number of hidden layers.
        activation: The function after each hidden layer.
        layer_norm: Whether hidden layers are normalized before the activation.
    """

    width: int | None = eqx.field(static=True, default=None)
    depth: int = eqx.field(static=True, default=2)
    activation: Callable = eqx.field(static=True, default=jax.nn.relu)
    layer_norm: bool = eqx.field(static=True, default=False)

    def __call__(
        self, inputs: int, outputs: int, dim: int, dtype: DTypeLike, *, key: PRNGKeyArray
    ) -> Perceptron:
        """Draw a network with weights of variance 1 / fan-in, whose outputs start as 0."""
        width = dim + 10 if self.width is None else self.width
        sizes = [inputs, *(width,) * self.depth, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        weights = [
            jax.random.normal(k, (m, n), dtype) / m**0.5
            for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]
        weights[-1] = jnp.zeros_like(weights[-1])
        biases = [jnp.zeros(n, dtype) for n in sizes[1:]]
        return Perceptron(tuple(weights), tuple(biases), self.activation, self.layer_norm)


def _layer_norm(x: Array) -> Array:
    """Normalize the last axis: Ba, Kiros, Hinton, arXiv:1607.06450 (2016)."""
    apart = x - jnp.mean(x, axis=-1, keepdims=True)
    return apart * jax.lax.rsqrt(jnp.mean(apart**2, axis=-1, keepdims=True) + _EPSILON)


class OptimizerState(NamedTuple):
    """Parameters in training, and the optimizer's state."""

    parameters: PyTree[Array]
    memory: optax.OptState

    @classmethod
    def init(cls, optimizer: optax.GradientTransformation, parameters: PyTree) -> "OptimizerState":
        """Return the state before the first iteration."""
        return cls(parameters, optimizer.init(parameters))


def minimize(
    loss: Callable[[PyTree, PRNGKeyArray], Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    state: OptimizerState,
    num_iterations: int,
    *,
    key: PRNGKeyArray,
) -> tuple[OptimizerState, Float[Array, " iterations"]]:
    """Return the state after `num_iterations` iterations, each on a batch from its own key, and the losses."""

    def iteration(state: OptimizerState, index):
        parameters, memory = state
        value, slope = jax.value_and_grad(loss)(parameters, jax.random.fold_in(key, index))
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by counts
            change, memory = optimizer.update(slope, memory, parameters)
        return OptimizerState(optax.apply_updates(parameters, change), memory), value

    return jax.lax.scan(iteration, state, jnp.arange(num_iterations))


def adam(learning_rate: float, num_iterations: int) -> optax.GradientTransformation:
    """Return Adam, its rate falling to a hundredth along a cosine."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, num_iterations, 0.01))
