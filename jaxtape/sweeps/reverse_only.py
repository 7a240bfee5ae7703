"""The sweeps as a `jax.custom_vjp`, for JAX without `VJPHiPrimitive`. It refuses forward mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .chain import Arrays, Chain
from .dependence import active_leaves
from .differentiable import refuse_stuck
from .leaves import Static, inexact, merge, pick
from .prepare import prepare_for_reverse


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
    """Run a chain, differentiable in reverse mode by its schedule; return the last state and ys."""
    return chain.run(arrays)


def _forward(chain: Chain, given: Arrays):
    values = Arrays(*(tuple(leaf.value for leaf in part) for part in given))
    perturbed = tuple(tuple(leaf.perturbed for leaf in part) for part in given)
    active = active_leaves(chain, values, perturbed)
    to_reverse, pulled = prepare_for_reverse(chain, active, values)
    state, ys, kept = to_reverse.first_sweep(values)
    return (state, ys), (values, kept, Static((to_reverse, active, pulled)))


def _backward(chain: Chain, saved: tuple, bars: tuple):
    del chain
    arrays, kept, static = saved
    to_reverse, active, pulled = static.value
    arrived = tuple(tuple(not isinstance(bar, SymbolicZero) for bar in part) for part in bars)
    refuse_stuck(to_reverse, active, pulled, arrays, arrived)
    state_bar, ys_bar = (tuple(map(_as_array, part)) for part in bars)
    bars = pick(pulled.state, state_bar), pick(pulled.ys, ys_bar)
    out = to_reverse.reverse_sweep(pulled, arrays, kept, bars)
    nothing = jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0), arrays)
    return (Arrays(*map(merge, pulled.inputs, out, map(_floating, arrays, nothing))),)


def _as_array(bar):
    if not isinstance(bar, SymbolicZero):
        return bar
    return jnp.zeros(bar.aval.shape, bar.aval.dtype)  # pyright: ignore[reportAttributeAccessIssue]


def _floating(leaves: tuple, nothing: tuple) -> tuple:
    """Return zeros for leaves that have no cotangent: `nothing` for integers."""
    pairs = zip(inexact(leaves), leaves, nothing, strict=True)
    return tuple(jnp.zeros_like(leaf) if real else none for real, leaf, none in pairs)


run.defvjp(_forward, _backward, symbolic_zeros=True)
