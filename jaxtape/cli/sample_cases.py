"""Named sample cases for `jaxtape compare`: a chain on a tape, a recurrent cell, a transformer block."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

import jaxtape as jt

from ..torch.case import Case
from ..torch.modules import module_case
from ..torch.weights import from_state_dict

_NODES, _WIDTH, _TIMES, _BATCH = 12, 8, 10, 4


def chain() -> Case:
    """Return a chain of dense nodes on a tape with two kept states, against a loop; every state is a node."""

    def ours(params, state):
        def step(state, node):
            state = jnp.tanh(node["weight"] @ state + node["bias"]) + 0.5 * jnp.sin(state)
            return state, state

        last, states = jt.scan(step, state, params, schedule=jt.Revolve(2))
        return (*states, jnp.sum(last**2))

    def theirs(params, state):
        states = []
        for weight, bias in zip(params["weight"], params["bias"], strict=True):
            state = torch.tanh(weight @ state + bias) + 0.5 * torch.sin(state)
            states.append(state)
        return (*states, (state**2).sum())

    def inputs(rng: np.random.Generator):
        weight = rng.normal(size=(_NODES, _WIDTH, _WIDTH)) / _WIDTH**0.5
        return {"weight": weight, "bias": rng.normal(size=(_NODES, _WIDTH))}, rng.normal(
            size=_WIDTH
        )

    return Case(ours, theirs, inputs, (*(f"node {k}" for k in range(_NODES)), "value"))


def gru() -> Case:
    """Return a gated recurrent unit over a sequence; the hidden state of each time is a node."""
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(_WIDTH, _WIDTH)
    weights = {name: value.detach().numpy() for name, value in cell.state_dict().items()}
    own = eqx.nn.GRUCell(_WIDTH, _WIDTH, key=jax.random.key(0))

    def ours(weights, xs, hidden):
        module = from_state_dict(own, weights)

        def step(hidden, x):
            hidden = module(x, hidden)
            return hidden, hidden

        last, states = jax.lax.scan(step, hidden, xs)
        return (*states, jnp.sum(last))

    def theirs(weights, xs, hidden):
        states = []
        for x in xs:
            hidden = torch.func.functional_call(cell, weights, (x, hidden))
            states.append(hidden)
        return (*states, hidden.sum())

    def inputs(rng: np.random.Generator):
        return weights, rng.normal(size=(_TIMES, _WIDTH)), rng.normal(size=_WIDTH)

    return Case(ours, theirs, inputs, (*(f"time {k}" for k in range(_TIMES)), "value"))


class _Block(eqx.Module):
    """A transformer encoder block, with the names of `torch.nn.TransformerEncoderLayer`."""

    self_attn: eqx.nn.MultiheadAttention
    linear1: eqx.nn.Linear
    linear2: eqx.nn.Linear
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm

    def __init__(self, width: int, heads: int, hidden: int):
        keys = jax.random.split(jax.random.key(0), 3)
        biases = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        self.self_attn = eqx.nn.MultiheadAttention(heads, width, **biases, key=keys[0])
        self.linear1 = eqx.nn.Linear(width, hidden, key=keys[1])
        self.linear2 = eqx.nn.Linear(hidden, width, key=keys[2])
        self.norm1, self.norm2 = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)

    def __call__(self, x):
        x = jax.vmap(self.norm1)(x + self.self_attn(x, x, x))
        hidden = jax.nn.relu(jax.vmap(self.linear1)(x))
        return jax.vmap(self.norm2)(x + jax.vmap(self.linear2)(hidden))


def transformer() -> Case:
    """Return a transformer encoder block on a batch of sequences, a module in both libraries."""
    torch.manual_seed(0)
    settings = {"dim_feedforward": 2 * _WIDTH, "dropout": 0.0, "batch_first": True}
    theirs = torch.nn.TransformerEncoderLayer(_WIDTH, 2, **settings)
    x = np.random.default_rng(0).normal(size=(_BATCH, _TIMES, _WIDTH)).astype(np.float32)
    ours = from_state_dict(_Block(_WIDTH, 2, 2 * _WIDTH), theirs.state_dict())
    return module_case(ours, theirs, (x,))
