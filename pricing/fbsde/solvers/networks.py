"""Multilayer perceptrons as pytrees of arrays, and their training inside compiled programs."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..path_shares import PathShare

_EPSILON = 1e-5  # keeps the variance of a layer above zero


class Perceptron(eqx.Module):
    """The function W_n a(... a(W_1 x + b_1)) + b_n; with layer_norm, hidden layers are normalized before a."""

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
        """Return the network of the sum of quantity times outputs, which are ordered by contract."""
        last = lambda n: (n.weights[-1], n.biases[-1])
        return eqx.tree_at(
            last, self, tuple(sum_over_contracts(leaf, quantities) for leaf in last(self))
        )


def sum_over_contracts(
    rows: Float[Array, "*batch outputs"], quantities: Float[Array, " contracts"]
) -> Float[Array, "*batch outputs_of_one"]:
    """Return the sum of quantity times outputs over an axis ordered by contract."""
    of_each = rows.reshape(*rows.shape[:-1], quantities.size, -1)
    return jnp.einsum("...ck,c->...k", of_each, quantities)


class Architecture(eqx.Module):
    """The architecture of a solver's networks.

    Attributes:
        width: The number of units per hidden layer; None for the problem's dimension + 10.
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
        """Return a random network with weights of variance 1 / fan-in and initial outputs of 0."""
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
    loss: Callable[[PyTree, Array, PathShare], tuple[Array, Array]],
    optimizer: optax.GradientTransformation,
    state: OptimizerState,
    num_iterations: int,
    share: PathShare,
    micro_batches: int = 1,
) -> tuple[OptimizerState, Float[Array, " iterations"]]:
    """Minimize the mean of a loss over paths shared by devices and micro-batches.

    Args:
        loss: loss(parameters, iteration, share) returns the sum over the share's paths, and their total weight.
        optimizer: The optimizer.
        state: The state before the first iteration.
        num_iterations: Number of iterations.
        share: The paths of this device. Gradients are summed over devices, with one all-reduce per iteration.
        micro_batches: The number of equal shares of the device's paths, whose gradients are accumulated.

    Returns:
        The state after the iterations, and their losses.
    """

    def mean(parameters: PyTree, index: Array) -> tuple[Array, PyTree]:
        def whole(parameters: PyTree) -> Array:
            total, weight = loss(parameters, index, share)
            return total / jnp.maximum(weight, 1.0)

        if share.count * micro_batches == 1:
            return jax.value_and_grad(whole)(parameters)

        def of_micro_batch(part: Array):
            of_part = lambda p: loss(p, index, share.micro_batch(part, micro_batches))
            return jax.value_and_grad(of_part, has_aux=True)(parameters)

        def add(total, part: Array):
            return jax.tree.map(jnp.add, total, of_micro_batch(part)), None

        if micro_batches == 1:
            found = of_micro_batch(jnp.int32(0))
        else:
            like = jax.eval_shape(of_micro_batch, jnp.int32(0))
            zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
            found, _ = jax.lax.scan(add, zero, jnp.arange(micro_batches, dtype=jnp.int32))
        (total, weight), slope = share.total(found)
        return jax.tree.map(lambda x: x / jnp.maximum(weight, 1.0), (total, slope))

    def iteration(state: OptimizerState, index):
        parameters, memory = state
        value, slope = mean(parameters, index)
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by counts
            change, memory = optimizer.update(slope, memory, parameters)
        return OptimizerState(optax.apply_updates(parameters, change), memory), value

    return jax.lax.scan(iteration, state, jnp.arange(num_iterations))


def adam(learning_rate: float, num_iterations: int) -> optax.GradientTransformation:
    """Return Adam with cosine decay of its learning rate to one hundredth."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, num_iterations, 0.01))
