"""Measure the bytes that the gradient of a chain needs, by compiling a short chain."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
from jax import lax

from ..jax_private import Var, dce_jaxpr, jaxprs_in_params
from ..jax_settings.platform import traced_for
from ..programs.compile_for import TargetCompiler
from ..programs.compiled_report import CompiledReport
from ..schedules.schedule import AbstractSchedule
from ..schedules.table import slots_within
from .chain import AbstractExecutor, Active, Arrays, Chain
from .cost import flops
from .dependence import needed_state, pullback_of_node
from .kernel_executor import kernels_or_reason
from .leaves import avals, first_node, leaf_bytes, merge, pick, shapes
from .pullback import fewest_to_broadcast
from .state_store import host_slots, slot_bytes

_PER_SEGMENT = 288  # bytes for the loops of one more segment: their counters, and the tables of what they carry
_NODES, _SLOTS = 9, 3  # of a short chain that the compiler treats like a long one


class Footprint(NamedTuple):
    """The bytes that a gradient takes.

    Attributes:
        work: The bytes of its temporaries, without the kept states.
        state: The bytes of each state kept.
        repeats: Whether steps are run again from the kept states. They are not if no pullback reads a state.
        residuals: The bytes of residuals kept beside the states.
    """

    work: int
    state: int
    repeats: bool = True
    residuals: int = 0


def peak_bytes(kept: list[int], footprints: list[Footprint]) -> int:
    """Return the peak over segments in order: while one is reversed, those before it keep their bytes."""
    totals = itertools.accumulate(kept)
    peak = max((t + f.work for t, f in zip(totals, footprints, strict=True)), default=0)
    return peak + _of_loops(footprints)


def most_work(footprints: list[Footprint]) -> int:
    """Return the maximum bytes of work over the segments, whichever is being reversed."""
    return max(footprint.work for footprint in footprints) + _of_loops(footprints)


def _of_loops(footprints: list[Footprint]) -> int:
    return _PER_SEGMENT * max(len(footprints) - 1, 0)


class Measure:
    """The gradient of a chain whose needed leaves are known, measured on demand.

    Its pullback broadcasts shared values if they are small beside the kept states, and this takes memory
    (`jaxtape/sweeps/pullback.py`). So the work depends on the number of states kept.
    """

    def __init__(self, chain: Chain, active: Active, arrays: Arrays):
        self.chain, self.active, self.arrays = chain, active, arrays
        self.state = slot_bytes(chain, arrays.init)
        self._fewest_to_broadcast = fewest_to_broadcast(chain, active, arrays)
        self._found = {}

    @property
    def cost(self) -> int:
        """The operations of a step that is run again, for the needed leaves only."""
        chain, node = self.chain, self.arrays._replace(xs=first_node(self.arrays.xs))
        outputs = [*chain.needed, *[False] * len(chain.y_avals)]
        return flops(dce_jaxpr(jax.make_jaxpr(chain.step)(*node).jaxpr, outputs)[0])

    @classmethod
    def of(cls, chain: Chain, active: Active, arrays: Arrays) -> "Measure":
        """Return the measure of the gradient of a chain whose needed leaves are not yet known."""
        needed = needed_state(chain, active, arrays)
        return cls(dataclasses.replace(chain, needed=needed), active, arrays)

    def kernels(self, executor: AbstractExecutor, kind: str) -> Any:
        """Return the chain's `KernelSweeps` under an executor, or the reason why there are none."""
        return kernels_or_reason(self._scheduled(executor), avals(tuple(self.arrays)), kind)

    def compiled(self, executor: AbstractExecutor) -> CompiledReport | None:
        """Return the compiler's report of both sweeps under an executor; None without a target."""
        if (compiler := _compiler.get()) is None:
            return None
        sweeps = _sweeps(self._scheduled(executor), self.active)
        return compiler.compile(sweeps, Arrays(*map(shapes, self.arrays)))

    def _scheduled(self, executor: AbstractExecutor) -> Chain:
        return dataclasses.replace(self.chain, executor=executor, pulled=self.active)

    def broadcasts(self, kept: int) -> bool:
        """Return True if shared values are broadcast when this number of states is kept."""
        return kept >= self._fewest_to_broadcast

    def footprint(self, kept: int) -> Footprint:
        """Return the footprint when this number of states is kept."""
        broadcasts = self.broadcasts(kept)
        if broadcasts not in self._found:
            chain = dataclasses.replace(self.chain, broadcasts=broadcasts)
            self._found[broadcasts] = footprint(chain, self.active, self.arrays)
        return self._found[broadcasts]

    def slots_within(self, budget: int, length: int, marks: int = 0) -> int:
        """Return the most slots for `length` nodes within a budget.

        The state before the last node and the states at `marks` are kept as well. `ValueError` is raised if not
        even one state fits.
        """
        work = lambda kept: self.footprint(kept).work + marks * self.state
        return slots_within(budget, length, work, self.state, self._fewest_to_broadcast)


class FixedMeasure(NamedTuple):
    """The gradient of nodes whose footprint does not depend on the number of kept states."""

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

    The work is the compiler's figure for a short chain of the same nodes with a few slots, less what is kept.
    Inside `shard_map`, where no separate program can be compiled, and for a step with effects, it is the total
    of all values live at once in one node's pullback, ignoring fusion.
    """
    state, chain = slot_bytes(chain, arrays.init), dataclasses.replace(chain, pulled=active)
    repeats, residuals = any(chain.needed), chain.executor.residual_bytes(chain, arrays)
    if is_manual(chain, arrays):
        work = live_bytes(pullback_of_node(chain, active, arrays)) + state
        return Footprint(work, state, repeats, residuals)
    executor = chain.executor.short(min(chain.length, _NODES), min(chain.length, _SLOTS))
    few = dataclasses.replace(chain, executor=executor)
    on_device = executor.table.slots - host_slots(executor)
    kept = on_device * state + executor.residual_bytes(few, arrays)
    work = _temporaries(_sweeps(few, active), few, arrays) - kept
    return Footprint(work, state, repeats, residuals)


def _sweeps(chain: Chain, active: Active) -> Callable:
    """Return a function that runs both sweeps, with cotangents computed from the values."""

    def sweeps(arrays: Arrays):
        out, ys, kept = chain.first_sweep(arrays)
        bars = pick(active.state, out), pick(active.ys, ys)
        return out, ys, chain.reverse_sweep(active, arrays, kept, bars)

    return sweeps


def stored_footprint(
    chain: Chain, arrays: Arrays, active: Active, schedule: AbstractSchedule
) -> Footprint:
    """Measure `lax.scan`'s own gradient: `state` is the bytes that it keeps per node."""

    def measured(nodes: int) -> int:
        few = dataclasses.replace(chain, executor=chain.executor.short(nodes, 1))

        def sweeps(arrays: Arrays):
            out, pullback = stored_pullback(few, active, arrays, schedule)
            bars = tuple(map(pick, (active.state, active.ys), out))
            return bars, pullback(bars)

        return _temporaries(sweeps, few, arrays)

    nodes = _NODES
    if chain.length == 1:  # XLA sees no loop, only the nodes of all such segments
        step = schedule.checkpointed(chain.step, prevent_cse=True)
        nodes, measured = 2, functools.partial(_stored_bytes, step, active, arrays)
    few, many = measured(nodes), measured(2 * nodes)
    state = (many - few) // nodes
    work = few - nodes * state
    return Footprint(max(work, measured(1) - state) if chain.length == 1 else work, state, False)


def stored_pullback(chain: Chain, active: Active, arrays: Arrays, schedule: AbstractSchedule):
    """Return the last state and ys of `lax.scan`, and its pullback to the active leaves."""
    step = schedule.checkpointed(chain.step, prevent_cse=chain.length == 1)

    def run(*varied):
        consts, init, xs = map(merge, active.inputs, varied, arrays)
        node = functools.partial(step, consts)
        state, ys = lax.scan(node, init, xs, chain.length, reverse=chain.reverse)
        return (pick(active.state, state), pick(active.ys, ys)), (state, ys)

    _, pullback, out = jax.vjp(run, *map(pick, active.inputs, arrays), has_aux=True)
    return out, pullback


def stored_bridge(
    chain: Chain, arrays: Arrays, active: Active, schedule: AbstractSchedule
) -> Footprint:
    """Measure JAX's own gradient of a node that changes the state's structure; all of it counts as kept."""
    step = schedule.checkpointed(chain.step, prevent_cse=True)
    return Footprint(0, _stored_bytes(step, active, arrays, 1), False)


def _stored_bytes(step: Callable, active: Active, arrays: Arrays, nodes: int) -> int:
    """Return the bytes of temporaries of JAX's own gradient of a few nodes in sequence."""

    def sweeps(arrays: Arrays):
        def run(consts, state, xs):
            consts, state = map(merge, active.inputs, (consts, state), arrays)
            ys = []
            for picked, x in zip(xs, arrays.xs, strict=True):
                state, y = step(consts, state, merge(active.xs, picked, x))
                ys.append(pick(active.ys, y))
            return pick(active.state, state), ys

        varied = *map(pick, active.inputs[:2], arrays), [pick(active.xs, x) for x in arrays.xs]
        out, pullback = jax.vjp(run, *varied)
        return out, pullback(out)

    xs = (shapes(first_node(arrays.xs)),) * nodes
    return _temp_bytes(sweeps, Arrays(shapes(arrays.consts), shapes(arrays.init), xs))


def _temporaries(sweeps: Callable, chain: Chain, arrays: Arrays) -> int:
    """Return the bytes of temporaries of `sweeps(arrays)`, compiled for the chain's number of nodes.

    Cotangents are computed from the values, as for a loss: if they were arguments, the compiler could overlap
    the last step of the value with the way back, and both would need memory.
    """
    stacked = lambda x: jax.ShapeDtypeStruct((chain.length, *x.shape[1:]), x.dtype)
    xs = tuple(map(stacked, arrays.xs))
    return _temp_bytes(sweeps, Arrays(shapes(arrays.consts), shapes(arrays.init), xs))


_compiler: ContextVar[TargetCompiler | None] = ContextVar("compiler", default=None)


@contextlib.contextmanager
def measured_for(target: str | None) -> Iterator[None]:
    """Within the block, measure with a target's compiler; None is the compiler of the devices in use."""
    if target is None:
        yield
        return
    with TargetCompiler(target) as compiler, traced_for([compiler.target.platform]):
        token = _compiler.set(compiler)
        try:
            yield
        finally:
            _compiler.reset(token)


def _temp_bytes(function: Callable, *shapes) -> int:
    """Return the bytes of temporaries of a function; equal programs are compiled once.

    Raises:
        RuntimeError: If the compiler does not report them.
    """
    if (compiler := _compiler.get()) is not None:
        report = compiler.compile(function, *shapes)
        if not report.compiles:
            raise RuntimeError(f"The gradient of a few nodes cannot be measured: {report}")
        return report.temporary_bytes
    lowered = jax.jit(function).lower(*shapes)
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    text = f"{jax.default_backend()} {device} {lowered.as_text()}"
    program = hashlib.sha256(text.encode()).digest()
    if program not in _found:
        analysis = lowered.compile().memory_analysis()
        if analysis is None:
            raise RuntimeError(
                f"The compiler for {jax.default_backend()} does not report the memory that a program needs, "
                "so bytes cannot be planned: give a number of slots."
            )
        while len(_found) >= _MOST_FOUND:
            _found.pop(next(iter(_found)), None)
        _found[program] = analysis.temp_size_in_bytes
    return _found[program]


_found: dict[bytes, int] = {}
_MOST_FOUND = 1024


def is_manual(chain: Chain, arrays: Arrays) -> bool:
    """Return True if the step names mesh axes bound outside of it, or has effects."""
    varying = [jax.typeof(leaf).manual_axis_type.varying for leaf in (*arrays.consts, *arrays.init)]
    return any(varying) or bool(chain.jaxpr.effects)


def live_bytes(jaxpr: Any) -> int:
    """Return the peak bytes of a program if every value lives from its definition to its last use."""
    reads = [*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars]
    last = {v: i for i, variables in enumerate(reads) for v in variables if isinstance(v, Var)}
    live, most = {}, 0
    for i, eqn in enumerate(jaxpr.eqns):
        called = max(map(live_bytes, jaxprs_in_params(eqn.params)), default=0)
        live |= {v: leaf_bytes((v.aval,)) for v in eqn.outvars}
        most = max(most, sum(live.values()) + called)
        live = {v: size for v, size in live.items() if last.get(v, -1) > i}
    return most
