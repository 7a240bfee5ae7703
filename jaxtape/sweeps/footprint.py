"""How many bytes the gradient of a chain needs: the compiler is asked about a short one."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax.extend.core import Var, jaxprs_in_params

from .chain import Active, Arrays, Chain, inexact, leaf_bytes, merge, pick, shapes
from .pullback import needed_state, pullback_of_node, with_broadcasts

_NODES, _SLOTS = 9, 3  # of a short chain that the compiler treats like a long one


class Footprint(NamedTuple):
    """Bytes of a gradient's temporaries: `work` whatever is kept, and `state` for each state kept."""

    work: int
    state: int


def peak_bytes(kept: list[int], footprints: list[Footprint]) -> int:
    """Return the peak over segments in order: while one is reversed, those before it keep their bytes."""
    totals = itertools.accumulate(kept)
    return max((t + f.work for t, f in zip(totals, footprints, strict=True)), default=0)


def everything_active(chain: Chain, arrays: Arrays) -> Active:
    """Return the masks under which every leaf that can vary does."""
    consts, state, xs = map(inexact, arrays)
    return Active(consts, state, xs, inexact(chain.y_avals))


def footprint_of(chain: Chain, arrays: Arrays) -> Footprint:
    """Measure the gradient with respect to everything."""
    active = everything_active(chain, arrays)
    chain = dataclasses.replace(chain, needed=needed_state(chain, active, arrays))
    kept = chain.executor.kept_bytes(chain.slot_bytes(arrays))
    return footprint(with_broadcasts(chain, active, arrays, kept), active, arrays)


def footprint(chain: Chain, active: Active, arrays: Arrays) -> Footprint:
    """Measure the sweeps of a chain, whatever its length.

    The work is what the compiler says of a chain of the same nodes with a few slots, less those slots.
    Inside `shard_map`, where no program of its own can be compiled, and of a step with effects, it is the
    sum of what one node's pullback holds at a time, which no fusion makes less.
    """
    state = chain.slot_bytes(arrays)
    if _is_manual(chain, arrays):
        return Footprint(_live_bytes(pullback_of_node(chain, active, arrays)) + state, state)
    executor = chain.executor.short(min(chain.length, _NODES), min(chain.length, _SLOTS))
    few = dataclasses.replace(chain, executor=executor)

    def sweeps(arrays: Arrays):
        out, ys, kept = few.first_sweep(arrays)
        bars = pick(active.state, out), pick(active.ys, ys)
        return out, ys, few.reverse_sweep(active, arrays, kept, bars)

    on_device = executor.slots - executor.slots_apart
    return Footprint(_temporaries(sweeps, few, arrays) - on_device * state, state)


def stored_footprint(chain: Chain, arrays: Arrays) -> Footprint:
    """Measure `lax.scan`'s own gradient: `state` is what it keeps of every node."""
    active = everything_active(chain, arrays)

    def measured(nodes: int) -> int:
        few = dataclasses.replace(chain, executor=chain.executor.short(nodes, 1))

        def sweeps(arrays: Arrays):
            def run(*varied):
                state, ys = few.run(Arrays(*map(merge, active.inputs, varied, arrays)))
                return pick(active.state, state), pick(active.ys, ys)

            out, pullback = jax.vjp(run, *map(pick, active.inputs, arrays))
            return out, pullback(out)

        return _temporaries(sweeps, few, arrays)

    few, many = measured(_NODES), measured(2 * _NODES)
    state = (many - few) // _NODES
    return Footprint(few - _NODES * state, state)


def step_footprint(step: Callable, params, state) -> Footprint:
    """Measure a node that changes the structure of the state: its first state is kept, and run again."""

    def gradient(params, state):
        varied, held = eqx.partition((params, state), eqx.is_inexact_array)

        def run(varied):
            out = jax.checkpoint(step)(*eqx.combine(varied, held))
            return eqx.filter(out, eqx.is_inexact_array)

        out, pullback = jax.vjp(run, varied)
        return out, pullback(out)

    size = leaf_bytes(jax.tree.leaves(state))
    return Footprint(_temp_bytes(gradient, *map(shapes, (params, state))), size)


def _temporaries(sweeps: Callable, chain: Chain, arrays: Arrays) -> int:
    """Return the bytes of temporaries of `sweeps(arrays)`, compiled for as many nodes as the chain has.

    Cotangents come of the values, as those of a loss do: if they were arguments, the compiler would
    let the value's last step run beside the way back, and both would need memory.
    """
    stacked = lambda x: jax.ShapeDtypeStruct((chain.length, *x.shape[1:]), x.dtype)  # noqa: E731
    xs = tuple(map(stacked, arrays.xs))
    return _temp_bytes(sweeps, Arrays(shapes(arrays.consts), shapes(arrays.init), xs))


def _temp_bytes(function: Callable, *shapes) -> int:
    analysis = jax.jit(function).lower(*shapes).compile().memory_analysis()
    if analysis is None:
        raise RuntimeError(
            f"The compiler for {jax.default_backend()} does not tell what memory a program needs, so bytes "
            "cannot be planned: give a number of slots."
        )
    return analysis.temp_size_in_bytes


def _is_manual(chain: Chain, arrays: Arrays) -> bool:
    """Say whether the step speaks of mesh axes that are bound outside of it, or has effects."""
    varying = [jax.typeof(leaf).manual_axis_type.varying for leaf in (*arrays.consts, *arrays.init)]
    return any(varying) or bool(chain.jaxpr.effects)


def _live_bytes(jaxpr: Any) -> int:
    """Return the most that a program holds at a time if every value lives from its making to its last use."""
    reads = [*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars]
    last = {v: i for i, variables in enumerate(reads) for v in variables if isinstance(v, Var)}
    live, most = {}, 0
    for i, eqn in enumerate(jaxpr.eqns):
        called = max(map(_live_bytes, jaxprs_in_params(eqn.params)), default=0)
        live |= {v: leaf_bytes((v.aval,)) for v in eqn.outvars}
        most = max(most, sum(live.values()) + called)
        live = {v: size for v, size in live.items() if last.get(v, -1) > i}
    return most
