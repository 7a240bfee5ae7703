"""How many bytes the gradient of a chain needs: the compiler is asked about a short one."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Var, jaxprs_in_params

from .chain import Arrays, Chain
from .needed import needed_state, pullback_of_node
from .slots import Mask, pick
from .sweep import Active, first_sweep, inexact, merge, reverse_sweep
from .table import Budget, revolve_table

_NODES, _SLOTS = (
    9,
    3,
)  # of the short chain: enough of both that the compiler treats it like a long one


class Footprint(NamedTuple):
    """Bytes of a gradient's temporaries: `work` whatever is kept, and `state` for each state kept."""

    work: int
    state: int


def reversible(chain: Chain, active: Active, needed: Mask, arrays: Arrays) -> Chain:
    """The chain with a table in the place of a budget, now that its states are known."""
    if not isinstance(chain.table, Budget):
        return chain
    work, state = footprint(chain, active, needed, arrays, chain.table.checkpoint_dtype)
    return dataclasses.replace(chain, table=chain.table.table(work, state))


def everything_active(chain: Chain, arrays: Arrays) -> Active:
    """Every leaf that can vary does."""
    consts, state, xs = map(inexact, arrays)
    return Active(consts, state, xs, inexact(chain.y_avals))


def footprint_of(chain: Chain, arrays: Arrays, dtype=None) -> Footprint:
    """Of the gradient with respect to everything, slots at precision `dtype`."""
    active = everything_active(chain, arrays)
    return footprint(chain, active, needed_state(chain, active, arrays), arrays, dtype)


def footprint(chain: Chain, active: Active, needed: Mask, arrays: Arrays, dtype=None) -> Footprint:
    """Bytes of the sweeps of a chain, whatever its length.

    The work is what the compiler says of a chain of the same nodes with a few slots, less those slots.
    Inside `shard_map`, where no program of its own can be compiled, it is the sum of what one node's
    pullback holds at a time, which no fusion makes less.
    """
    state = _slot_bytes(chain, needed, arrays, dtype)
    if _is_manual(chain, arrays):
        return Footprint(_live_bytes(pullback_of_node(chain, active, arrays)) + state, state)
    table = revolve_table(min(chain.length, _NODES), min(chain.length, _SLOTS))
    short = dataclasses.replace(chain, table=dataclasses.replace(table, checkpoint_dtype=dtype))

    def sweeps(arrays: Arrays, bars):
        state, ys, kept = first_sweep(short, needed, arrays)
        return state, ys, reverse_sweep(short, active, needed, arrays, kept, *bars)

    return Footprint(_temporaries(sweeps, short, active, arrays) - table.slots * state, state)


def stored_footprint(chain: Chain, arrays: Arrays) -> Footprint:
    """Bytes of `lax.scan`'s own gradient: `state` is what it keeps of every node."""
    active = everything_active(chain, arrays)

    def measured(nodes: int) -> int:
        short = dataclasses.replace(chain, table=revolve_table(nodes, 1))

        def sweeps(arrays: Arrays, bars):
            def run(*varied):
                state, ys = short.scan(*map(merge, active.inputs, varied, arrays))
                return pick(active.state, state), pick(active.ys, ys)

            out, pullback = jax.vjp(run, *map(pick, active.inputs, arrays))
            return out, pullback(bars)

        return _temporaries(sweeps, short, active, arrays)

    few, many = measured(_NODES), measured(2 * _NODES)
    state = (many - few) // _NODES
    return Footprint(few - _NODES * state, state)


def step_footprint(step: Callable, params, state) -> Footprint:
    """Of a node that changes the structure of the state: its first state is kept, and run again."""

    def gradient(params, state, bar):
        out, pullback = jax.vjp(jax.checkpoint(step), params, state)
        return out, pullback(bar)

    bar = jax.eval_shape(step, params, state)
    size = sum(map(_bytes, jax.tree.leaves(state)))
    return Footprint(_temp_bytes(gradient, *map(_shapes, (params, state, bar))), size)


def _slot_bytes(chain: Chain, needed: Mask, arrays: Arrays, dtype) -> int:
    lowered = lambda leaf: dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
    return sum(
        leaf.size * jnp.dtype(dtype if lowered(leaf) else leaf.dtype).itemsize
        for leaf in pick(needed, arrays.init)
    )


def _temporaries(sweeps: Callable, chain: Chain, active: Active, arrays: Arrays) -> int:
    """Bytes of temporaries of `sweeps(arrays, bars)`, compiled for as many nodes as the chain has."""
    n = chain.length
    stacked = lambda aval: jax.ShapeDtypeStruct((n, *aval.shape[1:]), aval.dtype)  # noqa: E731
    xs = tuple(stacked(jax.typeof(x)) for x in arrays.xs)
    shapes = Arrays(_shapes(arrays.consts), _shapes(arrays.init), xs)
    state_bar = pick(active.state, shapes.init)
    ys_bar = tuple(
        jax.ShapeDtypeStruct((n, *aval.shape), aval.dtype)
        for aval in pick(active.ys, chain.y_avals)
    )
    return _temp_bytes(sweeps, shapes, (state_bar, ys_bar))


def _temp_bytes(function: Callable, *shapes) -> int:
    return jax.jit(function).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


def _is_manual(chain: Chain, arrays: Arrays) -> bool:
    """Whether the step speaks of mesh axes that are bound outside of it."""
    varying = [jax.typeof(leaf).manual_axis_type.varying for leaf in (*arrays.consts, *arrays.init)]
    return any(varying) or bool(chain.jaxpr.effects)


def _live_bytes(jaxpr: Any) -> int:
    """The most that a program holds at a time if every value lives from its making to its last use."""
    reads = [*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars]
    last = {v: i for i, variables in enumerate(reads) for v in variables if isinstance(v, Var)}
    live, most = {}, 0
    for i, eqn in enumerate(jaxpr.eqns):
        inner = max(map(_live_bytes, jaxprs_in_params(eqn.params)), default=0)
        live |= {v: _bytes(v.aval) for v in eqn.outvars}
        most = max(most, sum(live.values()) + inner)
        live = {v: size for v, size in live.items() if last.get(v, -1) > i}
    return most


def _bytes(aval) -> int:
    return aval.size * aval.dtype.itemsize


def _shapes(tree):
    """The types of arrays without mesh axes, for a program of its own."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
