"""The executor of a chain whose nodes can be edited without recompilation."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..schedules.layout import TableLayout
from ..schedules.online import revolve_sizes
from ..schedules.table import ScheduleArrays
from .by_platform import by_platform
from .chain import Active, Arrays, Chain
from .executor import Forward, TableExecutor, reverse_in_place, step_of_all
from .leaves import get, pick, put
from .masked_ticks import MaskedReverse, at, count_of, masked_loop, where
from .pullback import SharedValues


@dataclasses.dataclass(frozen=True)
class EditedExecutor(TableExecutor):
    """An executor of a chain whose live nodes, their order and their table are data: its first consts."""

    table: TableLayout
    num_consts = len(ScheduleArrays._fields)

    @property
    def keeps_all(self) -> bool:
        return False

    @property
    def is_unrolled(self) -> bool:
        return False

    def columns(self, consts: tuple) -> ScheduleArrays:
        return ScheduleArrays(*consts[: self.num_consts])

    def index(self, chain: Chain, k, consts: tuple):
        del chain
        return jnp.asarray(self.columns(consts).order)[k]

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        length = jnp.asarray(self.columns(arrays.consts).length)
        start = arrays.init, ()
        return lax.fori_loop(jnp.int32(0), length, step_of_all(chain, arrays), start)

    def scan_reverse(self, chain, active, arrays, pull, start, ys_bar):
        """Call `pull` for the live nodes in their places; free places keep a zero."""
        length = jnp.asarray(self.columns(arrays.consts).length)
        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        nodes, bars = (jnp.int32(0), length), (ys_bar, xs_bar)
        return reverse_in_place(chain, arrays, pull, nodes, start, bars)


@dataclasses.dataclass(frozen=True)
class IndexedExecutor(EditedExecutor):
    """The executor of such a chain: by its table on CPUs, by masked ticks on GPUs and TPUs."""

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        return self._swept("first_sweep", (chain,), arrays)

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        return self._swept("reverse_sweep", (chain, active), arrays, kept, bars)

    def _swept(self, name: str, static: tuple, *args):
        """Call a sweep of the platform's executor.

        Every platform follows the table if masked ticks would repeat side effects or transfers to the host, or
        round a state at every node.
        """
        by_table = functools.partial(getattr(super(), name), *static)
        if static[0].jaxpr.effects or self.checkpoint_dtype is not None or self.table.host_slots:
            return by_table(*args)
        masked = functools.partial(getattr(TickingExecutor(self.table), name), *static)
        return by_platform(by_table, masked, *args)

    def short(self, nodes: int, slots: int) -> "IndexedExecutor":
        on_host = min(self.table.host_slots, 1)
        return IndexedExecutor(TableLayout(nodes, slots + 1, 0, on_host), self.checkpoint_dtype)


@dataclasses.dataclass(frozen=True)
class TickingExecutor(EditedExecutor):
    """The executor on GPUs and TPUs: it keeps the table's states, and takes masked ticks between them."""

    def keep_states(self, chain: Chain, arrays: Arrays, forward: Forward, start: tuple) -> tuple:
        length, slot_of_node = self._slot_of_node(arrays.consts)
        store, (_, first) = forward.store, start

        def tick(_, carry):
            k, slots, reached = carry
            live, slot = k < length, at(slot_of_node, k)
            host, device = slots
            kept = store.encode(forward.needed(reached))
            device = put(device, where(live & (slot >= 0), kept, get(device, slot)), slot)
            # past the last node, a tick reruns the first one
            node = where(live, (k, reached), (jnp.zeros_like(k), first))
            return k + count_of(live), (host, device), where(live, forward.step(*node), reached)

        _, *reached = masked_loop(lambda carry: carry[0] < length, tick, (jnp.int32(0), *start))
        return tuple(reached)

    def pull_nodes(
        self, shared: SharedValues, arrays: Arrays, start: tuple, ys_bar: tuple
    ) -> tuple[tuple, tuple, tuple]:
        length, slot_of_node = self._slot_of_node(arrays.consts)
        states, *bars = start
        slots = self.table.slots
        taken = jnp.where(slot_of_node < 0, slots, slot_of_node)
        nodes = jnp.arange(len(self.table), dtype=jnp.int32)
        position = jnp.full(slots, -1, jnp.int32).at[taken].max(nodes, mode="drop")
        sweep = MaskedReverse(shared, arrays, slots, revolve_sizes(len(self.table), slots))
        return sweep.pull_nodes(states, position, length, tuple(bars))

    def _slot_of_node(self, consts: tuple) -> tuple:
        """Return the number of live nodes, and each node's slot in the first sweep, or -1."""
        table, capacity = self.columns(consts), len(self.table)
        length, (first, end) = jnp.asarray(table.length), jnp.asarray(table.sweep_rows)
        position = jnp.asarray(table.store_position)
        rows = jnp.arange(position.size, dtype=jnp.int32)
        kept = jnp.where((rows >= first) & (rows < end), position, capacity)
        slot_of_node = jnp.full(capacity, -1, jnp.int32).at[0].set(0)
        slot_of_node = slot_of_node.at[kept].set(jnp.asarray(table.store_slot), mode="drop")
        last = jnp.maximum(length - 1, 0)
        return length, slot_of_node.at[last].set(at(jnp.asarray(table.load_slot), last))


def with_schedule_arrays(
    chain: Chain, arrays: Arrays, columns: ScheduleArrays
) -> tuple[Chain, Arrays]:
    """Return a chain whose first consts are its table and the order of its nodes."""
    n = len(columns)
    arrays = arrays._replace(consts=(*map(jnp.asarray, columns), *arrays.consts))
    return chain.derive(lambda consts, state, x: chain.step(consts[n:], state, x), arrays), arrays
