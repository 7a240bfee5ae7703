"""Measure the bytes that the gradient of a chain needs, by compiling a short chain."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import Var, jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

from ..schedules.table import slots_within
from .chain import Active, Arrays, Chain, first_node, inexact, leaf_bytes, merge, pick, shapes
from .cost import flops
from .pullback import fewest_to_broadcast, needed_state, pullback_of_node

_NODES, _SLOTS = 9, 3  # of a short chain that the compiler treats like a long one


class Footprint(NamedTuple):
    """The bytes that a gradient takes.

    Attributes:
        work: The bytes of its temporaries beside the kept states.
        state: The bytes of each state kept.
        repeats: Whether steps are run again from the states kept. They are not if no pullback reads a state.
    """

    work: int
    state: int
    repeats: bool = True


def peak_bytes(kept: list[int], footprints: list[Footprint]) -> int:
    """Return the peak over segments in order: while one is reversed, those before it keep their bytes."""
    totals = itertools.accumulate(kept)
    return max((t + f.work for t, f in zip(totals, footprints, strict=True)), default=0)


def everything_active(chain: Chain, arrays: Arrays) -> Active:
    """Return the masks under which every leaf that can vary does."""
    consts, state, xs = map(inexact, arrays)
    return Active(consts, state, xs, inexact(chain.y_avals))


class Measure:
    """The gradient of a chain whose needed leaves are known, measured when asked.

    Its pullback broadcasts shared values if they are small beside the kept states, and this takes memory of its
    own (`jaxtape/sweeps/pullback.py`). So the work depends on the number of states kept.
    """

    def __init__(self, chain: Chain, active: Active, arrays: Arrays):
        self._chain, self._active, self._arrays = chain, active, arrays
        self.state = chain.slot_bytes(arrays)
        self._fewest_to_broadcast = fewest_to_broadcast(chain, active, arrays)
        self._found = {}

    @property
    def cost(self) -> int:
        """The operations of a step that is run again, for the needed leaves only."""
        chain, node = self._chain, self._arrays._replace(xs=first_node(self._arrays.xs))
        outputs = [*chain.needed, *[False] * len(chain.y_avals)]
        return flops(dce_jaxpr(jax.make_jaxpr(chain.step)(*node).jaxpr, outputs)[0])

    @classmethod
    def of_everything(cls, chain: Chain, arrays: Arrays) -> "Measure":
        """Return the measure of the gradient with respect to everything."""
        active = everything_active(chain, arrays)
        needed = needed_state(chain, active, arrays)
        return cls(dataclasses.replace(chain, needed=needed), active, arrays)

    def broadcasts(self, kept: int) -> bool:
        """Return True if shared values are broadcast beside this number of states."""
        return kept >= self._fewest_to_broadcast

    def footprint(self, kept: int) -> Footprint:
        """Return the footprint beside this number of states."""
        broadcasts = self.broadcasts(kept)
        if broadcasts not in self._found:
            chain = dataclasses.replace(self._chain, broadcasts=broadcasts)
            self._found[broadcasts] = footprint(chain, self._active, self._arrays)
        return self._found[broadcasts]

    def slots_within(self, budget: int, length: int, marks: int = 0) -> int:
        """Return the most slots of `length` nodes within a budget, the state before the last node apart.

        The states of `marks` are kept beside them. `ValueError` is raised if not one state fits.
        """
        work = lambda kept: self.footprint(kept).work + marks * self.state  # noqa: E731
        return slots_within(budget, length, work, self.state, self._fewest_to_broadcast)


class FixedMeasure(NamedTuple):
    """The gradient of nodes that take the same whatever is kept."""

    found: Footprint
    cost: int = 0

    def footprint(self, kept: int) -> Footprint:
        """Return the footprint."""
        del kept
        return self.found

    @property
    def state(self) -> int:
        """The bytes of each state kept."""
        return self.found.state


def footprint(chain: Chain, active: Active, arrays: Arrays) -> Footprint:
    """Measure the sweeps of a chain, whatever its length.

    The work is the compiler's figure for a chain of the same nodes with a few slots, less those slots. Inside
    `shard_map`, where no program of its own can be compiled, and for a step with effects, it is the sum of all
    values that one node's pullback holds at a time, which no fusion reduces.
    """
    state = chain.slot_bytes(arrays)
    if _is_manual(chain, arrays):
        work = _live_bytes(pullback_of_node(chain, active, arrays)) + state
        return Footprint(work, state, any(chain.needed))
    executor = chain.executor.short(min(chain.length, _NODES), min(chain.length, _SLOTS))
    few = dataclasses.replace(chain, executor=executor)

    def sweeps(arrays: Arrays):
        out, ys, kept = few.first_sweep(arrays)
        bars = pick(active.state, out), pick(active.ys, ys)
        return out, ys, few.reverse_sweep(active, arrays, kept, bars)

    on_device = executor.slots - executor.slots_apart
    work = _temporaries(sweeps, few, arrays) - on_device * state
    return Footprint(work, state, any(chain.needed))


def stored_footprint(chain: Chain, arrays: Arrays) -> Footprint:
    """Measure `lax.scan`'s own gradient: `state` is the bytes that it keeps of every node."""
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
    return Footprint(few - _NODES * state, state, False)


def _temporaries(sweeps: Callable, chain: Chain, arrays: Arrays) -> int:
    """Return the bytes of temporaries of `sweeps(arrays)`, compiled for the chain's number of nodes.

    Cotangents are computed from the values, as for a loss: if they were arguments, the compiler could run the
    value's last step beside the way back, and both would need memory.
    """
    stacked = lambda x: jax.ShapeDtypeStruct((chain.length, *x.shape[1:]), x.dtype)  # noqa: E731
    xs = tuple(map(stacked, arrays.xs))
    return _temp_bytes(sweeps, Arrays(shapes(arrays.consts), shapes(arrays.init), xs))


def _temp_bytes(function: Callable, *shapes) -> int:
    analysis = jax.jit(function).lower(*shapes).compile().memory_analysis()
    if analysis is None:
        raise RuntimeError(
            f"The compiler for {jax.default_backend()} does not report the memory that a program needs, so "
            "bytes cannot be planned: give a number of slots."
        )
    return analysis.temp_size_in_bytes


def _is_manual(chain: Chain, arrays: Arrays) -> bool:
    """Return True if the step names mesh axes that are bound outside of it, or has effects."""
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
