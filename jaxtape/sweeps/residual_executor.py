"""The executor of a chain whose last nodes keep residuals, and whose other nodes keep states."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..schedules.schedule import AbstractSchedule
from ..schedules.table import no_nodes, revolve_table
from .chain import Active, Arrays, Chain
from .executor import Forward, TableExecutor, reverse_in_place, waiting
from .leaves import get, merge, pick, put, with_bits_of, zeros_stack
from .pullback import SharedValues
from .residuals import Residuals
from .state_store import packed
from .static_executor import StaticExecutor

Stored = tuple[tuple[int, AbstractSchedule], ...]


@dataclasses.dataclass(frozen=True)
class ResidualExecutor(TableExecutor):
    """The executor of nodes in order: those of the table keep states, and those after them residuals.

    It keeps `(slots, stacks)`: the slots of the table, and the residuals of each run of nodes that follows.

    Attributes:
        stored: The number and the schedule, such as `StoreAll`, of the nodes in each run after the table's.
    """

    stored: Stored = ()

    @classmethod
    def of(cls, schedule: AbstractSchedule, length: int) -> "ResidualExecutor":
        """Return the executor of `length` >= 1 nodes under a schedule of several parts."""
        (count, first), *rest = parts = schedule.parts(length)
        if first.keeps_residuals:
            return cls(no_nodes(), stored=parts)
        return cls(first.table(count), first.checkpoint_dtype, tuple(rest))

    @property
    def length(self) -> int:
        return len(self.table) + sum(count for count, _ in self.stored)

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        forward = Forward.of_all(chain, arrays)
        ys = packed(chain, tuple(zeros_stack(chain.length, aval) for aval in chain.y_avals))
        slots, carry = forward.store.empty(), (arrays.init, ys)
        if len(self.table):
            slots, carry = self.keep_states(chain, arrays, forward, (slots, carry))
        kept = []
        for first, count, residuals in self._runs(chain, arrays):

            def node(i, reached, first=first, residuals=residuals):
                (state, ys), stacks = reached
                at = self.index(chain, first + i, arrays.consts)
                inputs = arrays.consts, state, get(arrays.xs, at)
                state, y, stacks = residuals.tape(inputs, stacks, i)
                return (state, put(ys, y, at) if ys else ys), stacks

            start = carry, residuals.empty(count)
            carry, stacks = lax.fori_loop(np.int32(0), np.int32(count), node, start)
            kept.append(residuals.unpack(stacks))
        state, ys = carry
        ys = tuple(with_bits_of(y, aval.dtype) for y, aval in zip(ys, chain.y_avals, strict=True))
        return state, ys, (forward.store.unpack(slots), tuple(kept))

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        (slots, stacks), (state_bar, ys_bar) = packed(chain, kept), bars
        shared = SharedValues.of(chain, active, arrays.consts)
        carry = state_bar, shared.init()
        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        for run, own in reversed([*zip(self._runs(chain, arrays), stacks, strict=True)]):
            first, count, residuals = run
            pull = _node_puller(active, arrays, residuals, own, first)
            nodes = np.int32(first), np.int32(first + count)
            carry, xs_bar = reverse_in_place(chain, arrays, pull, nodes, carry, (ys_bar, xs_bar))
        if count := len(self.table):
            if count == 1:
                slots, arrays = waiting(slots, arrays, carry[0])
            pull, nodes = self.node_puller(shared, arrays), (np.int32(0), np.int32(count))
            start = slots, *carry
            (_, *carry), xs_bar = reverse_in_place(
                chain, arrays, pull, nodes, start, (ys_bar, xs_bar)
            )
        init_bar, shared_bar = carry
        return Arrays(shared.finish(shared_bar), init_bar, xs_bar)

    def kept_dims(self, kept, of_leaves: tuple, dim: Any, of_residuals: Any):
        slots, stacks = kept
        slots = super().kept_dims(slots, of_leaves, dim, of_residuals)
        return slots, jax.tree.map(lambda _: of_residuals, stacks)

    def short(self, nodes: int, slots: int) -> "ResidualExecutor":
        table, stored = self.table, self.stored
        if count := min(len(table), nodes):
            on_host = min(table.host_slots, 1)
            table = revolve_table(count, min(count, slots))
            table = dataclasses.replace(table, host_slots=on_host)
        stored = tuple((min(count, nodes), schedule) for count, schedule in stored)
        return ResidualExecutor(table, self.checkpoint_dtype, stored)

    def residual_bytes(self, chain: Chain, arrays: Arrays) -> int:
        runs = self._runs(chain, arrays)
        return sum(count * residuals.bytes for _, count, residuals in runs)

    def _runs(self, chain: Chain, arrays: Arrays) -> list[tuple[int, int, Residuals]]:
        """Return the first node, the number and the residuals of the nodes of each run."""
        counts = [count for count, _ in self.stored]
        firsts = itertools.accumulate(counts, initial=len(self.table))
        return [
            (first, count, Residuals.of(chain, arrays, schedule, count))
            for first, (count, schedule) in zip(firsts, self.stored, strict=False)
        ]


def _node_puller(
    active: Active, arrays: Arrays, residuals: Residuals, stacks: tuple, first: int
) -> Callable:
    """Return the function `pull(k, x, y_bar, carry)` that pulls node k back from its residuals."""
    chain = residuals.chain
    whole = chain.pulled
    assert whole is not None
    zeros = tuple(zeros_stack(1, aval)[0] for aval in chain.y_avals)

    def pull_node(k, x, y_bar, carry: tuple) -> tuple[tuple, tuple]:
        state_bar, shared_bar = carry
        y_bar = pick(whole.ys, merge(active.ys, y_bar, zeros))
        bars = state_bar, y_bar
        node_bar, state_bar, x_bar = residuals.pull(arrays.consts, x, stacks, k - first, bars)
        rest = shared_bar[len(node_bar) :]  # of values that are lifted where states are kept
        return (state_bar, (*map(jnp.add, shared_bar, node_bar), *rest)), x_bar

    return pull_node


def executor_of(schedule: AbstractSchedule, length: int) -> StaticExecutor | ResidualExecutor:
    """Return the executor of `length` >= 1 nodes in order under a schedule."""
    if len(schedule.parts(length)) > 1:
        return ResidualExecutor.of(schedule, length)
    return StaticExecutor.of(schedule, length)
