"""Prepare a chain, and run and reverse it by a table, with states in slots."""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..schedules.schedule import AbstractSchedule
from ..schedules.table import Rows, Table, revolve_table
from . import host_memory
from .chain import (
    AbstractExecutor,
    Active,
    Arrays,
    Chain,
    Mask,
    get,
    is_symbolic,
    merge,
    of_bits,
    pick,
    put,
    stored,
    stored_dtype,
    zeros_stack,
)
from .differentiable import pulled_leaves
from .footprint import Measure
from .pullback import fewest_to_broadcast, gathered, needed_state, nothing_shared, pull, tied


def prepared(chain: Chain, active: Active, arrays: Arrays) -> tuple[Chain, Active]:
    """Return the chain prepared for reversal: its needed leaves are found, and its budget is resolved.

    The leaves returned with it are the active ones whose cotangents can be pulled back.

    `ValueError` is raised if a budget is too small, or is given where a shape is symbolic (`jax.export`),
    or if states lie in the host's memory and the step has ordered side effects.
    """
    try:
        needed = needed_state(chain, active, arrays)
    except Exception:
        active = pulled_leaves(chain, active, arrays)
        needed = needed_state(chain, active, arrays)
    chain = dataclasses.replace(chain, needed=needed)
    if is_symbolic(arrays):  # so bytes cannot be compared
        chain = dataclasses.replace(chain, executor=chain.executor.settled(None))
    else:
        executor = chain.executor.settled(functools.partial(Measure, chain, active, arrays))
        broadcasts = executor.slots >= fewest_to_broadcast(chain, active, arrays)
        chain = dataclasses.replace(chain, executor=executor, broadcasts=broadcasts)
    _check_effects(chain)
    return chain, active


class Slots(NamedTuple):
    """The needed leaves of every state that is kept, one entry a slot; the first slots are the host's."""

    host: tuple = ()
    device: tuple = ()

    @classmethod
    def empty(cls, executor: AbstractExecutor, leaves: tuple) -> "Slots":
        """Return the slots of an executor, at its precision, for states like the first one, `leaves`.

        Slots on the device hold that state; slots on the host are uninitialised.
        """
        leaves = tuple(stored(leaf, executor.checkpoint_dtype) for leaf in leaves)
        on_host = executor.slots_apart
        host = host_memory.empty(leaves, on_host) if on_host else ()
        here = executor.slots - on_host
        return cls(host, tuple(jnp.broadcast_to(leaf, (here, *leaf.shape)) for leaf in leaves))

    def each(self, values: tuple) -> "Slots":
        """Return a value for each stack, from one for each leaf."""
        return Slots(values if self.host else (), values)

    def put(self, executor: AbstractExecutor, leaves: tuple, slot) -> "Slots":
        """Return the slots with other leaves in one of them."""
        leaves = tuple(stored(leaf, executor.checkpoint_dtype) for leaf in leaves)
        if self.host:
            return Slots(*host_memory.put_of_two(self.host, self.device, leaves, slot))
        return Slots((), put(self.device, leaves, slot))

    def get(self, executor: AbstractExecutor, slot, position, first: tuple) -> tuple:
        """Return the leaves in a slot, which are of the state at a position, at the precision of the first's.

        No slot of the host's holds the first state itself.
        """
        if not self.host:
            pairs = zip(get(self.device, slot), first, strict=True)
            leaves = (of_bits(leaf, stored_dtype(like, executor)) for leaf, like in pairs)
            return tuple(map(_restored, leaves, first))
        leaves = host_memory.get_of_two(self.host, self.device, slot)
        began = (stored(leaf, executor.checkpoint_dtype) for leaf in first)
        leaves = (lax.select(position == 0, *both) for both in zip(began, leaves, strict=True))
        return tuple(map(_restored, leaves, first))


class ForwardState(NamedTuple):
    """The progress of steps forward: the states in the slots, a position, its state, the ys so far."""

    kept: Slots
    position: Any
    state: tuple
    ys: tuple


@dataclasses.dataclass(frozen=True)
class Forward:
    """Steps forward that carry some leaves of the state and keep some of those in the slots.

    A leaf is not carried if no step changes it, or if the carried leaves do not depend on it; then the first
    state's leaf is used.
    """

    chain: Chain
    carried: Mask
    kept: Mask

    @classmethod
    def of_all(cls, chain: Chain, kept: Mask) -> "Forward":
        """Return steps that carry the whole state."""
        return cls(chain, (True,) * chain.num_state, kept)

    @classmethod
    def of_needed(cls, chain: Chain) -> "Forward":
        """Return steps that carry and keep the leaves that the pullback needs."""
        return cls(chain, chain.needed, (True,) * sum(chain.needed))

    def advance_and_keep(
        self, arrays: Arrays, reached: ForwardState, rows: Rows, first, last
    ) -> ForwardState:
        """Follow the store rows [first, last): advance to each row's position and keep its state."""
        position, slot = map(jnp.asarray, (rows.store_position, rows.store_slot))
        if not position.size:
            return reached

        def row(i, reached):
            return self.keep(self.advance(arrays, reached, position[i]), slot[i])

        return lax.fori_loop(first, last, row, reached)

    def keep_each(self, arrays: Arrays, reached: ForwardState, slots) -> ForwardState:
        """Keep the state before each node, and take its step: one loop for all nodes."""
        slots = jnp.asarray(slots)

        def node(k, reached):
            reached = self.keep(reached, slots[k])
            state, ys = self.step(arrays, k, reached.state, reached.ys)
            return reached._replace(state=state, ys=ys)

        return lax.fori_loop(0, slots.size, node, reached)

    def keep(self, reached: ForwardState, slot) -> ForwardState:
        """Put the state in a slot."""
        kept = reached.kept.put(self.chain.executor, pick(self.kept, reached.state), slot)
        return reached._replace(kept=kept)

    def advance(self, arrays: Arrays, reached: ForwardState, stop) -> ForwardState:
        """Advance to position `stop`. The slots stay outside this loop, or XLA would copy them."""
        if not (reached.state or reached.ys):
            return reached._replace(position=stop)
        node = lambda k, carry: self.step(arrays, k, *carry)  # noqa: E731
        state, ys = lax.fori_loop(reached.position, stop, node, (reached.state, reached.ys))
        return ForwardState(reached.kept, stop, state, ys)

    def step(self, arrays: Arrays, k, state: tuple, ys: tuple) -> tuple[tuple, tuple]:
        """Take the step of node k: the carried leaves of the next state, and the ys with the node's own."""
        chain = self.chain
        at = chain.executor.index(chain, k, arrays.consts)
        x = get(arrays.xs, at)
        state, y = chain.step(arrays.consts, merge(self.carried, state, arrays.init), x)
        return pick(self.carried, state), put(ys, y, at) if ys else ys

    def whole(self, arrays: Arrays, reached: ForwardState) -> tuple:
        """Return the state with every leaf; one that is not carried is any value."""
        return merge(self.carried, reached.state, arrays.init)


class ReverseState(NamedTuple):
    """The progress of a reverse sweep: the slots, the cotangents of the state and of the shared values."""

    kept: Slots
    state_bar: tuple
    shared_bar: tuple


class AbstractTableExecutor(AbstractExecutor):
    """An executor whose sweeps follow the rows of a table."""

    @property
    def keeps_all(self) -> bool:
        """Whether it is known beforehand that every state has a slot, so that no step is taken again."""
        return False

    @property
    def is_unrolled(self) -> bool:
        """Whether it is known beforehand that there is one node, so that XLA sees no loop."""
        return False

    @abc.abstractmethod
    def rows(self, consts: tuple) -> Rows:
        """Return the table as arrays."""

    @abc.abstractmethod
    def over_nodes(
        self,
        chain: Chain,
        active: Active,
        arrays: Arrays,
        pull: Callable,
        start: ReverseState,
        ys_bar,
    ) -> tuple[ReverseState, tuple]:
        """Call `state, x_bar = pull(k, x, y_bar, state)` of every node, the last first; stack `x_bar`."""

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Slots]:
        rows = self.rows(arrays.consts)
        last = jnp.maximum(rows.length - 1, 0)
        forward = Forward.of_all(chain, chain.needed)
        kept = chain.packed(Slots.empty(self, pick(chain.needed, arrays.init)))
        ys = chain.packed(tuple(zeros_stack(chain.length, aval) for aval in chain.y_avals))
        start = ForwardState(kept, jnp.int32(0), arrays.init, ys)
        if self.keeps_all:
            reached = forward.keep_each(arrays, start, rows.load_slot)
            return reached.state, reached.ys, reached.kept
        reached = forward.advance_and_keep(arrays, start, rows, *map(jnp.int32, rows.sweep))
        reached = forward.advance(arrays, reached, last)
        kept = forward.keep(reached, jnp.asarray(rows.load_slot)[last]).kept
        reached = forward.advance(arrays, reached, jnp.int32(rows.length))
        return reached.state, reached.ys, kept

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        rows = jax.tree.map(jnp.asarray, self.rows(arrays.consts))
        forward = Forward.of_needed(chain)

        def pull_node(k, x, y_bar, pulled: ReverseState) -> tuple[ReverseState, tuple]:
            """Load a state, advance to node k, keep states on the way, pull back."""
            slot, position = rows.load_slot[k], rows.load_position[k]
            loaded = pulled.kept.get(self, slot, position, pick(chain.needed, arrays.init))
            reached = ForwardState(pulled.kept, position, loaded, ())
            if not self.keeps_all:
                ends = rows.first_row[k], rows.last_row[k]
                reached = forward.advance_and_keep(arrays, reached, rows, *ends)
                reached = forward.advance(arrays, reached, k)
            inputs = arrays.consts, forward.whole(arrays, reached), x
            node_bar, state_bar, x_bar = pull(chain, active, inputs, (pulled.state_bar, y_bar))
            shared_bar = tuple(map(jnp.add, pulled.shared_bar, node_bar))
            return ReverseState(reached.kept, state_bar, shared_bar), x_bar

        state_bar, ys_bar = bars
        if self.is_unrolled:  # or the node would be run again before the cotangent is there
            kept = kept._replace(device=tied(kept.device, bars))
            arrays = arrays._replace(init=tied(arrays.init, bars))
        start = ReverseState(kept, state_bar, nothing_shared(chain, active, arrays))
        pulled, xs_bar = self.over_nodes(chain, active, arrays, pull_node, start, ys_bar)
        consts_bar = gathered(chain, active, arrays, pulled.shared_bar)
        return Arrays(consts_bar, pulled.state_bar, xs_bar)

    def kept_dims(self, kept: Slots, of_leaves: tuple, dim: Any) -> Slots:
        del dim
        return kept.each(of_leaves)

    def short(self, nodes: int, slots: int) -> "Scheduled":
        table = revolve_table(nodes, slots)
        table = dataclasses.replace(table, host_slots=min(self.table.host_slots, 1))
        return Scheduled(table, self.checkpoint_dtype)


@dataclasses.dataclass(frozen=True)
class Scheduled(AbstractTableExecutor):
    """The executor of a chain whose nodes are in order, by its schedule's table.

    Attributes:
        table: The table of kept and recomputed states.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.
        budget: The most bytes of a gradient's temporaries, as long as the table has a slot for every state.
        residuals: Whether a budget may keep what pullbacks read in the place of states.
    """

    table: Table
    checkpoint_dtype: Any = None
    budget: int | None = None
    residuals: bool = False

    @property
    def keeps_all(self) -> bool:
        return self.table.count_advances() == len(self.table) - 1

    @property
    def is_unrolled(self) -> bool:
        return len(self.table) == 1

    @classmethod
    def of(cls, schedule: AbstractSchedule, length: int) -> "Scheduled":
        """Return the executor of `length` >= 1 nodes under a schedule."""
        dtype, budget = schedule.checkpoint_dtype, schedule.budget
        table = schedule.table(length) if budget is None else revolve_table(length, length)
        return cls(table, dtype, budget, getattr(schedule, "residuals", False))

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        step = functools.partial(chain.step, arrays.consts)
        return lax.scan(step, arrays.init, arrays.xs, self.length, reverse=chain.reverse)

    def rows(self, consts: tuple) -> Rows:
        del consts
        return self.table.rows

    def over_nodes(self, chain, active, arrays, pull, start, ys_bar):
        del active

        def node(carry, own):
            k, pulled = carry
            pulled, x_bar = pull(k, *own, pulled)
            return (k - 1, pulled), x_bar

        last, nodes = (jnp.int32(self.length - 1), start), (arrays.xs, ys_bar)
        (_, pulled), xs_bar = lax.scan(node, last, nodes, self.length, reverse=not chain.reverse)
        return pulled, xs_bar

    def settled(self, measure: Callable[[], Measure] | None) -> "Scheduled":
        if self.budget is None:
            return self
        if measure is None:
            raise ValueError(
                f"A budget of {self.budget:,} bytes needs concrete shapes, and the shape of an array "
                "is symbolic: give a number of slots, such as Revolve(slots=12), or export a program "
                "for each size."
            )
        slots = measure().slots_within(self.budget, self.length)
        return Scheduled(revolve_table(self.length, slots), self.checkpoint_dtype)


def _restored(leaf, like):
    """Return a leaf of a slot as one of the state."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like))
    return leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype)


def _check_effects(chain: Chain) -> None:
    """Check that the step has no ordered side effects where states lie in the host's memory.

    Raises:
        ValueError: If it has.
    """
    ordered = [effect for effect in chain.jaxpr.effects if str(effect).startswith("Ordered")]
    if ordered and chain.executor.slots_apart:
        raise ValueError(
            f"The step has ordered side effects ({', '.join(map(str, ordered))}), which JAX does not compile "
            "beside states in the host's memory: give ordered=False, or Revolve(slots) for MultiStage."
        )
