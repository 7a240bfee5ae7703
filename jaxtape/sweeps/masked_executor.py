"""The executor of a chain of unknown length: by its table on CPUs, by masked ticks on GPUs and TPUs.

XLA for GPUs copies the condition of a loop of unknown length to the host at every turn, and waits for it. The
sweeps of a table have several such loops a node. Here each sweep is one such loop, whose body is `TICKS` ticks. A
tick of the first sweep takes a step. A tick of the reverse sweep pulls back a node whose state is at hand, and
takes a few steps towards the next node whose state is not. Ticks that have nothing to do leave all as it is.

The steps are those of the table: Revolve's, for the slots that are free once all nodes after a gap are pulled
back. The slots of pulled nodes take the states of the next gap at once. If the table keeps each state as it is
passed, there is hardly more than a tick a node.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ..schedules import online
from .by_platform import by_platform
from .chain import Active, Arrays, Chain
from .executor import Forward
from .leaves import get, merge, pick, put
from .pullback import SharedValues
from .state_store import StateStore, packed
from .while_executor import (
    SnapshotStack,
    WhileExecutor,
    end_of_row,
    first_part,
    row_after,
    slot_of_row,
    varying_axes,
)

TICKS = 8  # for each look of the host


@dataclasses.dataclass(frozen=True)
class MaskedExecutor(WhileExecutor):
    """The executor of a chain that runs until its condition fails, on every platform."""

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, tuple]:
        return self._swept("first_sweep", _first_sweep, (chain,), arrays)

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        return self._swept("reverse_sweep", _reverse_sweep, (chain, active), arrays, kept, bars)

    def _swept(self, name: str, masked: Callable, static: tuple, *args):
        """Call a sweep of the platform; side effects are not masked, so a step with some follows the table."""
        by_table = functools.partial(getattr(super(), name), *static)
        if static[0].jaxpr.effects:
            return by_table(*args)
        return by_platform(by_table, functools.partial(masked, *static), *args)


def _first_sweep(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, tuple]:
    """Run a chain, and return its state, no ys, and `(slots, position, steps)`."""
    consts, table = arrays.consts, chain.executor.table
    store = StateStore.of(chain, arrays.init)

    def lives(carry):
        *_, steps, _, more = carry
        return more & (steps < chain.length)

    def tick(_, carry):
        row, slots, position, steps, state, more = carry
        at, start = (*row[:3],), row[3]
        live = lives(carry)
        keeps = live & (steps == start)
        slot = slot_of_row(table, at)
        kept = store.encode(pick(chain.needed, state)), (steps,)
        slots, (position,) = (
            put(stacks, _where(keeps, new, get(stacks, slot)), slot)
            for stacks, new in zip((slots, (position,)), kept, strict=True)
        )
        end = end_of_row(table, at)
        if table.refreshes:
            near = steps + jnp.minimum(end - steps, online.REFRESH)
            end = jnp.where(steps < online.REFRESHED, end, near)
        row = jnp.where(keeps, jnp.stack([*row_after(table, at, end), end]), row)
        # a state at which the loop has stopped may be where the step has no derivative
        moved, _ = chain.step(consts, _where(live, state, arrays.init), ())
        state = _where(live, moved, state)
        more = live & chain.continues(consts, state)
        return row, slots, position, steps + _count(live), state, more

    zero, none = jnp.int32(0), jnp.full(table.slots, -1, jnp.int32)
    _, slots = store.empty()
    more = chain.continues(consts, arrays.init)
    start = jnp.zeros(4, jnp.int32), slots, none, zero, arrays.init, more
    _, slots, position, steps, state, _ = _while(lives, tick, start)
    return state, (), (store.unpack(((), slots)), position, steps)


def _reverse_sweep(chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
    """Pull the cotangent of the last state back, from what the first sweep has kept."""
    table = chain.executor.table
    forward = Forward.of_needed(chain, arrays)
    shared = SharedValues.of(chain, active, arrays.consts)
    slots, position, steps = kept

    def pull(k, stack: SnapshotStack, ahead: tuple, bars: tuple):
        """Pull back node k, if its state is on the stack or is the one ahead."""
        (at, leaves), (state_bar, shared_bar) = ahead, bars
        live, held = k >= 0, stack.uppermost == k
        ready = live & (held | (at == k))
        found = forward.store.get_at(stack.states, _at(stack.slot, stack.top), k)
        state = merge(chain.needed, _where(at == k, leaves, found), arrays.init)
        node_bar, new_bar, _ = shared.pull(state, (), (state_bar, ()))
        summed = tuple(map(jnp.add, shared_bar, node_bar))
        bars = _where(ready, (new_bar, summed), bars)
        return k - _count(ready), stack._replace(top=stack.top - _count(live & held)), bars

    def tick(_, carry):
        k, stack, ahead, bars = carry
        k, stack, bars = pull(k, stack, ahead, bars)
        step = lambda _, reached: _step_ahead(table, forward, k, *reached)
        stack, ahead = lax.fori_loop(0, 1 if table.dense else 3, step, (stack, ahead))
        return k, stack, ahead, bars

    state_bar, _ = bars
    stack = SnapshotStack.of(packed(chain, slots), position, steps)
    ahead = jnp.int32(-1), pick(chain.needed, arrays.init)
    carry = steps - 1, stack, ahead, (state_bar, shared.init())
    *_, (init_bar, shared_bar) = _while(lambda carry: carry[0] >= 0, tick, carry)
    return Arrays(shared.finish(shared_bar), init_bar, ())


def _step_ahead(table, forward: Forward, k, stack: SnapshotStack, ahead: tuple) -> tuple:
    """Take a step towards the nodes up to k whose states are not on the stack, the uppermost of them first.

    `ahead` is a position and the needed leaves there. Every state at which the table would keep one is put on
    the stack, below those of the nodes after it; while no slot is free, no step is taken past it.
    """
    places = jnp.arange(table.slots, dtype=jnp.int32)
    free_from = k - stack.top  # the states before k lie one after the other where positions are so far off
    before = (stack.position - places < free_from) & (places <= stack.top)
    below = jnp.sum(before, dtype=jnp.int32) - 1
    end = below + 1 + free_from
    base, slot = (_at(array, jnp.maximum(below, 0)) for array in (stack.position, stack.slot))
    starts = (ahead[0] < base) | (ahead[0] >= end)
    at, leaves = _where(starts, (base, forward.store.get_at(stack.states, slot, base)), ahead)
    stop = _next_kept(table, base, end, table.slots - below)
    after, has_room = at + 1, stack.top + 1 < table.slots
    moves = (below >= 0) & (after < end)
    moves &= (after < stop) | (stop == end - 1) | has_room
    ahead = _where(moves, (after, forward.step(at, leaves)), (at, leaves))
    keeps = moves & (after == stop) & has_room
    spare = _at(stack.slot, jnp.minimum(stack.top + 1, table.slots - 1))
    host, device = stack.states
    kept = _where(keeps, forward.store.encode(ahead[1]), get(device, spare))

    def inserted(array, value):
        zero = jnp.zeros_like(array[0])
        shifted = jnp.where(places <= stack.top + 1, lax.pad(array, zero, [(1, -1, 0)]), array)
        shifted = jnp.where(places == below + 1, value, shifted)
        return jnp.where(keeps & (places > below), shifted, array)

    position, slots = inserted(stack.position, after), inserted(stack.slot, spare)
    states = host, put(device, kept, spare)
    return SnapshotStack(states, position, slots, stack.top + _count(keeps)), ahead


def _next_kept(table, base, end, free):
    """Return the next position to keep after `base`, or end - 1, the last one that is needed."""
    stop = jnp.where(free > 1, base + 1, end - 1)
    if not table.dense:
        is_long = (free > 1) & (end - 1 - base > free)
        stop = jnp.where(is_long, base + first_part(table, end - base, free), stop)
    return jnp.minimum(stop, end - 1)


def _while(lives: Callable, tick: Callable, start: tuple) -> tuple:
    """Run ticks while `lives` holds, and up to `TICKS` - 1 after that.

    Where devices stop by themselves, all that is carried varies over the same mesh axes.
    """
    axes = frozenset().union(*map(varying_axes, jax.tree.leaves(start)))
    start = jax.tree.map(lambda leaf: _varying(leaf, axes), start)
    return lax.while_loop(lives, lambda carry: lax.fori_loop(0, TICKS, tick, carry), start)


def _varying(leaf, axes: frozenset):
    missing = tuple(sorted(axes - varying_axes(leaf)))
    return lax.pcast(leaf, missing, to="varying") if missing else leaf


def _where(holds, new, old):
    """Return one of two trees of arrays."""
    return jax.tree.map(lambda *pair: jnp.where(holds, *pair), new, old)


def _at(array, i):
    return get((array,), i)[0]


def _count(flag):
    """Return 1 for a flag that is True, else 0."""
    return flag.astype(jnp.int32)
