"""How many bytes the gradient of a chain needs: the compiler is asked about a short one."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.export
from jax.extend.core import Var, jaxprs_in_params

from ..schedules.table import Budget, revolve_table
from .chain import Arrays, Chain
from .masks import Active, Mask, inexact, leaf_bytes, merge, pick
from .needed import needed_state, pullback_of_node
from .pullback import spreading
from .scheduled import first_sweep, reverse_sweep
from .slots import host_is_apart, stored

_NODES, _SLOTS = 9, 3  # of a short chain that the compiler treats like a long one


class Footprint(NamedTuple):
    """Bytes of a gradient's temporaries: `work` whatever is kept, and `state` for each state kept."""

    work: int
    state: int


def peak_bytes(kept: list[int], footprints: list[Footprint]) -> int:
    """Of segments in order, with the bytes kept in each: while one is reversed, those before it keep theirs."""
    totals = itertools.accumulate(kept)
    return max((t + f.work for t, f in zip(totals, footprints, strict=True)), default=0)


def reversible(chain: Chain, active: Active, needed: Mask, arrays: Arrays) -> Chain:
    """The chain as it is reversed, now that its states are known: a table in the place of a budget.

    Raises:
        ValueError: If a budget is too small, or is given where a shape is symbolic (`jax.export`), or if
            states lie in the host's memory and the step has ordered side effects.
    """
    if _is_symbolic(arrays):
        return _without_sizes(chain)
    _check_effects(chain)
    chain = _spread(chain, active, needed, arrays)
    if not isinstance(chain.table, Budget):
        return chain
    work, state = footprint(chain, active, needed, arrays)
    return dataclasses.replace(chain, table=chain.table.table(work, state))


def everything_active(chain: Chain, arrays: Arrays) -> Active:
    """Every leaf that can vary does."""
    consts, state, xs = map(inexact, arrays)
    return Active(consts, state, xs, inexact(chain.y_avals))


def footprint_of(chain: Chain, arrays: Arrays) -> Footprint:
    """Of the gradient with respect to everything."""
    active = everything_active(chain, arrays)
    return footprint(chain, active, needed_state(chain, active, arrays), arrays)


def footprint(chain: Chain, active: Active, needed: Mask, arrays: Arrays) -> Footprint:
    """Bytes of the sweeps of a chain, whatever its length; its table says how much it keeps, and how.

    The work is what the compiler says of a chain of the same nodes with a few slots, less those slots.
    Inside `shard_map`, where no program of its own can be compiled, and of a step with effects, it is the
    sum of what one node's pullback holds at a time, which no fusion makes less.
    """
    chain, state = _spread(chain, active, needed, arrays), _slot_bytes(chain, needed, arrays)
    if _is_manual(chain, arrays):
        return Footprint(_live_bytes(pullback_of_node(chain, active, arrays)) + state, state)
    table = revolve_table(min(chain.length, _NODES), min(chain.length, _SLOTS))
    dtype, on_host = chain.table.checkpoint_dtype, min(chain.table.host_slots, 1)
    table = dataclasses.replace(table, checkpoint_dtype=dtype, host_slots=on_host)
    short = dataclasses.replace(chain, table=table)

    def sweeps(arrays: Arrays):
        out, ys, kept = first_sweep(short, needed, arrays)
        bars = pick(active.state, out), pick(active.ys, ys)
        return out, ys, reverse_sweep(short, active, needed, arrays, kept, *bars)

    on_device = table.slots - (table.host_slots if host_is_apart() else 0)
    return Footprint(_temporaries(sweeps, short, arrays) - on_device * state, state)


def stored_footprint(chain: Chain, arrays: Arrays) -> Footprint:
    """Bytes of `lax.scan`'s own gradient: `state` is what it keeps of every node."""
    active = everything_active(chain, arrays)

    def measured(nodes: int) -> int:
        short = dataclasses.replace(chain, table=revolve_table(nodes, 1))

        def sweeps(arrays: Arrays):
            def run(*varied):
                state, ys = short.scan(*map(merge, active.inputs, varied, arrays))
                return pick(active.state, state), pick(active.ys, ys)

            out, pullback = jax.vjp(run, *map(pick, active.inputs, arrays))
            return out, pullback(out)

        return _temporaries(sweeps, short, arrays)

    few, many = measured(_NODES), measured(2 * _NODES)
    state = (many - few) // _NODES
    return Footprint(few - _NODES * state, state)


def step_footprint(step: Callable, params, state) -> Footprint:
    """Of a node that changes the structure of the state: its first state is kept, and run again."""

    def gradient(params, state):
        varied, held = eqx.partition((params, state), eqx.is_inexact_array)

        def run(varied):
            out = jax.checkpoint(step)(*eqx.combine(varied, held))
            return eqx.filter(out, eqx.is_inexact_array)

        out, pullback = jax.vjp(run, varied)
        return out, pullback(out)

    size = leaf_bytes(jax.tree.leaves(state))
    return Footprint(_temp_bytes(gradient, *map(_shapes, (params, state))), size)


def _spread(chain: Chain, active: Active, needed: Mask, arrays: Arrays) -> Chain:
    """The chain with shared values spread in its pullback, if what its table keeps is much more."""
    table = chain.table
    if isinstance(table, Budget):
        return spreading(chain, active, arrays, table.bytes)
    kept_bytes = table.slots * _slot_bytes(chain, needed, arrays)
    return spreading(chain, active, arrays, kept_bytes)


def _check_effects(chain: Chain) -> None:
    ordered = [effect for effect in chain.jaxpr.effects if str(effect).startswith("Ordered")]
    if ordered and chain.table.host_slots and host_is_apart():
        raise ValueError(
            f"The step has ordered side effects ({', '.join(map(str, ordered))}), which JAX does not compile "
            "beside states in the host's memory: give ordered=False, or Revolve(slots) for MultiStage."
        )


def _is_symbolic(arrays: Arrays) -> bool:
    """Whether a size is known only when an exported program runs."""
    sizes = [size for leaf in jax.tree.leaves(tuple(arrays)) for size in jax.typeof(leaf).shape]
    return any(map(jax.export.is_symbolic_dim, sizes))


def _without_sizes(chain: Chain) -> Chain:
    """The chain as it is reversed where bytes cannot be compared: no shared value is spread."""
    if isinstance(chain.table, Budget):
        raise ValueError(
            f"A budget of {chain.table.bytes:,} bytes needs concrete shapes, and the shape of an array is "
            "symbolic: give a number of slots, such as Revolve(slots=12), or export a program for each size."
        )
    return chain


def _slot_bytes(chain: Chain, needed: Mask, arrays: Arrays) -> int:
    slot = lambda leaves: tuple(stored(x, chain.table.checkpoint_dtype) for x in leaves)  # noqa: E731
    return leaf_bytes(jax.eval_shape(slot, _shapes(pick(needed, arrays.init))))


def _temporaries(sweeps: Callable, chain: Chain, arrays: Arrays) -> int:
    """Bytes of temporaries of `sweeps(arrays)`, compiled for as many nodes as the chain has.

    Cotangents come of the values, as those of a loss do: if they were arguments, the compiler would
    let the value's last step run beside the way back, and both would need memory.
    """
    stacked = lambda x: jax.ShapeDtypeStruct((chain.length, *x.shape[1:]), x.dtype)  # noqa: E731
    xs = tuple(map(stacked, arrays.xs))
    return _temp_bytes(sweeps, Arrays(_shapes(arrays.consts), _shapes(arrays.init), xs))


def _temp_bytes(function: Callable, *shapes) -> int:
    analysis = jax.jit(function).lower(*shapes).compile().memory_analysis()
    if analysis is None:
        raise RuntimeError(
            f"The compiler for {jax.default_backend()} does not tell what memory a program needs, so bytes "
            "cannot be planned: give a number of slots."
        )
    return analysis.temp_size_in_bytes


def _is_manual(chain: Chain, arrays: Arrays) -> bool:
    """Whether the step speaks of mesh axes that are bound outside of it, or has effects."""
    varying = [jax.typeof(leaf).manual_axis_type.varying for leaf in (*arrays.consts, *arrays.init)]
    return any(varying) or bool(chain.jaxpr.effects)


def _live_bytes(jaxpr: Any) -> int:
    """The most that a program holds at a time if every value lives from its making to its last use."""
    reads = [*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars]
    last = {v: i for i, variables in enumerate(reads) for v in variables if isinstance(v, Var)}
    live, most = {}, 0
    for i, eqn in enumerate(jaxpr.eqns):
        inner = max(map(_live_bytes, jaxprs_in_params(eqn.params)), default=0)
        live |= {v: leaf_bytes((v.aval,)) for v in eqn.outvars}
        most = max(most, sum(live.values()) + inner)
        live = {v: size for v, size in live.items() if last.get(v, -1) > i}
    return most


def _shapes(tree):
    """The types of arrays without mesh axes, for a program of its own."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
