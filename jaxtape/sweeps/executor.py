"""Run a chain, and reverse it by a table, with states in slots.

The two sweeps follow the table as described in `ScheduleTable`. `StateStore` decides which leaves of a state
are kept, in which dtype and memory, and `SharedValues` whether shared values are broadcast.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..schedules.table import ScheduleArrays, ScheduleTable
from .chain import AbstractExecutor, Active, Arrays, Chain
from .leaves import get, merge, pick, put, with_bits_of, zeros_stack
from .pullback import SharedValues, tied
from .state_store import StateStore, for_each_stack, packed


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """Forward steps through a chain that keep states in slots.

    `reached` is `(slots, position, carry)`: the slots, a position, and the carry of the steps there.

    Attributes:
        step: The function `step(k, carry) -> carry` that runs node k.
        needed: The function that returns the needed leaves of the state in a carry.
        store: The store of states.
    """

    step: Callable
    needed: Callable
    store: StateStore

    @classmethod
    def of_all(cls, chain: Chain, arrays: Arrays) -> "Forward":
        """Return steps that carry `(state, ys)`."""
        needed = lambda carry: pick(chain.needed, carry[0])
        return cls(step_of_all(chain, arrays), needed, StateStore.of(chain, arrays.init))

    @classmethod
    def of_needed(cls, chain: Chain, arrays: Arrays) -> "Forward":
        """Return steps that carry only the needed leaves of the state."""

        def step(k, leaves):
            x = get(arrays.xs, chain.executor.index(chain, k, arrays.consts))
            state, _ = chain.step(arrays.consts, merge(chain.needed, leaves, arrays.init), x)
            return pick(chain.needed, state)

        return cls(step, lambda leaves: leaves, StateStore.of(chain, arrays.init))

    def advance(self, reached: tuple, stop) -> tuple:
        """Advance to position `stop`. The slots stay outside the loop, or XLA would copy them."""
        slots, position, carry = reached
        if jax.tree.leaves(carry):
            carry = lax.fori_loop(position, stop, self.step, carry)
        return slots, stop, carry

    def keep(self, reached: tuple, slot, on_host: bool | None = None) -> tuple:
        """Keep the state in a slot, as `StateStore.put` does."""
        slots, position, carry = reached
        return self.store.put(slots, slot, self.needed(carry), on_host), position, carry

    def follow_rows(self, reached: tuple, rows: tuple, first, last) -> tuple:
        """Follow the store rows [first, last): advance to each row's position and keep its state."""
        position, slot = map(jnp.asarray, rows)
        if not position.size:
            return reached

        def row(i, reached):
            return self.keep(self.advance(reached, position[i]), slot[i])

        return lax.fori_loop(first, last, row, reached)

    def keep_each(self, reached: tuple, slots, on_host: bool | None = None) -> tuple:
        """Keep the state before each node and take its step, in one loop over all nodes from a position."""
        slots, (_, start, _) = jnp.asarray(slots), reached

        def node(i, reached):
            kept, position, carry = self.keep(reached, slots[i], on_host)
            return kept, position, self.step(start + i, carry)

        return lax.fori_loop(0, slots.size, node, reached)


def step_of_all(chain: Chain, arrays: Arrays) -> Callable:
    """Return the function `step(k, (state, ys))` that runs node k."""

    def step(k, carry):
        state, ys = carry
        at = chain.executor.index(chain, k, arrays.consts)
        state, y = chain.step(arrays.consts, state, get(arrays.xs, at))
        return state, put(ys, y, at) if ys else ys

    return step


@dataclasses.dataclass(frozen=True)
class TableExecutor(AbstractExecutor):
    """An executor that follows a table."""

    table: Any
    checkpoint_dtype: Any = None

    @property
    def keeps_all(self) -> bool:
        """Whether every state is known beforehand to have a slot, so that no step is repeated."""
        return self.table.count_advances() == len(self.table) - 1

    @property
    def is_unrolled(self) -> bool:
        """Whether there is known to be a single node, so that XLA sees no loop."""
        return len(self.table) == 1

    def columns(self, consts: tuple) -> ScheduleTable | ScheduleArrays:
        """Return the columns of the table."""
        del consts
        return self.table

    def index(self, chain: Chain, k, consts: tuple):
        del consts
        return chain.length - 1 - k if chain.reverse else k

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        step = functools.partial(chain.step, arrays.consts)
        return lax.scan(step, arrays.init, arrays.xs, chain.length, reverse=chain.reverse)

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        forward = Forward.of_all(chain, arrays)
        ys = packed(chain, tuple(zeros_stack(chain.length, aval) for aval in chain.y_avals))
        start = forward.store.empty(), (arrays.init, ys)
        slots, (state, ys) = self.keep_states(chain, arrays, forward, start)
        ys = tuple(with_bits_of(y, aval.dtype) for y, aval in zip(ys, chain.y_avals, strict=True))
        return state, ys, forward.store.unpack(slots)

    def keep_states(self, chain: Chain, arrays: Arrays, forward: Forward, start: tuple) -> tuple:
        """Run the chain from `(slots, carry)`, and return both with the states kept in the slots.

        It follows the last node's rows, keeps the state before it, and runs to the end.
        """
        del chain
        table, (slots, carry) = self.columns(arrays.consts), start
        reached = slots, jnp.int32(0), carry
        if self.keeps_all:
            reached = forward.keep_each(reached, table.load_slot)
        else:
            last = jnp.maximum(table.length - 1, 0)
            rows = table.store_position, table.store_slot
            reached = forward.follow_rows(reached, rows, *map(jnp.int32, table.sweep_rows))
            reached = forward.advance(reached, last)
            reached = forward.keep(reached, jnp.asarray(table.load_slot)[last])
            reached = forward.advance(reached, jnp.int32(table.length))
        slots, _, carry = reached
        return slots, carry

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        slots, (state_bar, ys_bar) = packed(chain, kept), bars
        if self.is_unrolled:
            slots, arrays = waiting(slots, arrays, bars)
        shared = SharedValues.of(chain, active, arrays.consts)
        start = slots, state_bar, shared.init()
        init_bar, shared_bar, xs_bar = self.pull_nodes(shared, arrays, start, ys_bar)
        return Arrays(shared.finish(shared_bar), init_bar, xs_bar)

    def pull_nodes(
        self, shared: SharedValues, arrays: Arrays, start: tuple, ys_bar: tuple
    ) -> tuple[tuple, tuple, tuple]:
        """Pull back all nodes from `(slots, state_bar, shared_bar)`; return those two bars and that of `xs`.

        For each node, the last first: load a state, advance to the node, pull back through it.
        """
        chain, pull = shared.chain, self.node_puller(shared, arrays)
        carry, xs_bar = self.scan_reverse(chain, shared.active, arrays, pull, start, ys_bar)
        _, state_bar, shared_bar = carry
        return state_bar, shared_bar, xs_bar

    def node_puller(self, shared: SharedValues, arrays: Arrays) -> Callable:
        """Return `pull(k, x, y_bar, carry)`, which pulls node k back and returns the next carry and `x_bar`."""
        chain, table = shared.chain, self.columns(arrays.consts)
        forward = Forward.of_needed(chain, arrays)
        load_slot, load_position = map(jnp.asarray, (table.load_slot, table.load_position))
        first_row, last_row = map(jnp.asarray, (table.first_row, table.last_row))
        rows = jnp.asarray(table.store_position), jnp.asarray(table.store_slot)

        def pull_node(k, x, y_bar, carry: tuple) -> tuple[tuple, tuple]:
            slots, state_bar, shared_bar = carry
            position = load_position[k]
            reached = slots, position, forward.store.get_at(slots, load_slot[k], position)
            if not self.keeps_all:
                reached = forward.follow_rows(reached, rows, first_row[k], last_row[k])
                reached = forward.advance(reached, k)
            slots, _, leaves = reached
            state = merge(chain.needed, leaves, arrays.init)  # other leaves are not read
            node_bar, state_bar, x_bar = shared.pull(state, x, (state_bar, y_bar))
            return (slots, state_bar, tuple(map(jnp.add, shared_bar, node_bar))), x_bar

        return pull_node

    def scan_reverse(
        self, chain: Chain, active: Active, arrays: Arrays, pull: Callable, start: tuple, ys_bar
    ) -> tuple[tuple, tuple]:
        """Call `carry, x_bar = pull(k, x, y_bar, carry)` for every node, the last first; stack `x_bar`."""
        del active

        def node(carry, own):
            k, pulled = carry
            pulled, x_bar = pull(k, *own, pulled)
            return (k - 1, pulled), x_bar

        last, nodes = (jnp.int32(chain.length - 1), start), (arrays.xs, ys_bar)
        (_, pulled), xs_bar = lax.scan(node, last, nodes, chain.length, reverse=not chain.reverse)
        return pulled, xs_bar

    def kept_dims(self, kept, of_leaves: tuple, dim: Any, of_residuals: Any):
        del dim, of_residuals
        return for_each_stack(kept, of_leaves)


def reverse_in_place(
    chain: Chain, arrays: Arrays, pull: Callable, nodes: tuple, carry: tuple, bars: tuple
) -> tuple[tuple, tuple]:
    """Call `carry, x_bar = pull(k, x, y_bar, carry)` of the nodes in [first, end), the last first.

    `bars` is `(ys_bar, xs_bar)`. Each `x_bar` takes its place in `xs_bar`, which is returned.
    """
    (first, end), (ys_bar, xs_bar) = nodes, bars

    def node(i, reached):
        pulled, xs_bar = reached
        k = end - 1 - i
        at = chain.executor.index(chain, k, arrays.consts)
        pulled, x_bar = pull(k, get(arrays.xs, at), get(ys_bar, at), pulled)
        return pulled, put(xs_bar, x_bar, at)

    return lax.fori_loop(np.int32(0), end - first, node, (carry, xs_bar))


def waiting(slots: tuple, arrays: Arrays, bars: tuple) -> tuple[tuple, Arrays]:
    """Return the slots and arrays of a single node, which is not run again before its cotangent is there."""
    host, device = slots
    return (host, tied(device, bars)), arrays._replace(init=tied(arrays.init, bars))
