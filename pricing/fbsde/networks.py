"""Multilayer perceptrons, as equinox modules of arrays alone (they can be carried by a loop)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

_EPSILON = 1e-5  # keeps the variance of a layer above zero


class Network(eqx.Module):
    """x -> W_n a(... a(W_1 x + b_1)) + b_n; layer_norm: each hidden layer is standardized before a."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: Callable = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = x @ weight + bias.reshape((1,) * (x.ndim - 1) + bias.shape)
            x = self.activation(_standardized(x) if self.layer_norm else x)
        weight, bias = last
        return x @ weight + bias.reshape((1,) * (x.ndim - 1) + bias.shape)

    def total(self, quantities: Float[Array, " contracts"]) -> "Network":
        """The sum of quantity times outputs; these are of many contracts, contract by contract."""
        last = lambda n: (n.weights[-1], n.biases[-1])  # noqa: E731
        return eqx.tree_at(last, self, tuple(summed(leaf, quantities) for leaf in last(self)))


def summed(
    rows: Float[Array, "*batch outputs"], quantities: Float[Array, " contracts"]
) -> Float[Array, "*batch outputs_of_one"]:
    """The sum over contracts of an axis that has the outputs of one after those of another."""
    of_each = rows.reshape(*rows.shape[:-1], quantities.size, -1)
    return jnp.einsum("...ck,c->...k", of_each, quantities)


class Architecture(eqx.Module):
    """How the networks of a solver are made: `depth` hidden layers of `width` (None: the dimension + 10)."""

    width: int | None = eqx.field(static=True, default=None)
    depth: int = eqx.field(static=True, default=2)
    activation: Callable = eqx.field(static=True, default=jax.nn.relu)
    layer_norm: bool = eqx.field(static=True, default=False)

    def __call__(
        self, key: PRNGKeyArray, inputs: int, outputs: int, dim: int, dtype, first_output=None
    ) -> Network:
        """A network with weights of variance 1 / fan-in, whose outputs start as `first_output` (or 0)."""
        width = dim + 10 if self.width is None else self.width
        sizes = [inputs, *(width,) * self.depth, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        weights = [
            jax.random.normal(k, (m, n), dtype) / m**0.5
            for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]
        weights[-1] = jnp.zeros_like(weights[-1])
        biases = [jnp.zeros(n, dtype) for n in sizes[1:]]
        if first_output is not None:
            biases[-1] = jnp.broadcast_to(first_output, (outputs,)).astype(dtype)
        return Network(tuple(weights), tuple(biases), self.activation, self.layer_norm)


def _standardized(x: Array) -> Array:
    apart = x - jnp.mean(x, axis=-1, keepdims=True)
    return apart * jax.lax.rsqrt(jnp.mean(apart**2, axis=-1, keepdims=True) + _EPSILON)
