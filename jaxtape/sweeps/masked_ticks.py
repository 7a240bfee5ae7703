"""Sweeps over a number of nodes that depends on data, as loops of masked ticks, for GPUs and TPUs.

On GPUs, XLA copies the condition of a loop of unknown length to the host at every iteration, and waits for it.
The sweeps of a table have several such loops per node. Here each sweep is one such loop, whose body is `TICKS`
ticks. A tick of the first sweep takes a step. A tick of the reverse sweep pulls back a node whose state is
available, and takes a few steps towards the next node whose state is not. A tick with nothing to do changes
nothing.

The steps are Revolve's, for the slots that are free once all nodes after a gap are pulled back. The slots of
pulled-back nodes take the states of the next gap at once: while two sweeps suffice, there is little more than
one tick per node.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..schedules.table import advances
from .chain import Arrays
from .executor import Forward
from .leaves import get, merge, pick, put
from .pullback import SharedValues
from .while_executor import SnapshotStack, first_part, varying_axes

TICKS = 8  # between two checks of the condition by the host
_MOST_STEPS = 3  # in a tick; with more, idle ticks would take too long


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedReverse:
    """A reverse sweep by masked ticks.

    Attributes:
        shared: The shared values of the chain.
        arrays: The inputs of the chain.
        slots: The number of slots.
        betas: The sizes `beta(s, r)` that Revolve needs; None if two sweeps suffice for the states kept.
    """

    shared: SharedValues
    arrays: Arrays
    slots: int
    betas: np.ndarray | None

    @property
    def forward(self) -> Forward:
        """The steps between states."""
        return Forward.of_needed(self.shared.chain, self.arrays)

    @property
    def steps(self) -> int:
        """The number of steps in a tick: the average per node in the longest chain."""
        length = self.shared.chain.length
        a_node = -(-advances(length, self.slots) // length) - 1
        return min(max(a_node, 1), _MOST_STEPS)

    def pull_nodes(self, states: tuple, position, count, bars: tuple) -> tuple[tuple, tuple, tuple]:
        """Pull back the first `count` nodes, from the states in slots and the `position` of each.

        Returns the cotangents of the first state, of the shared values and of `xs`.
        """

        def tick(_, carry):
            k, stack, ahead, bars = carry
            k, stack, bars = self._pull(k, stack, ahead, bars)
            step = lambda _, reached: self._step_ahead(k, *reached)
            return k, *lax.fori_loop(0, self.steps, step, (stack, ahead)), bars

        stack = SnapshotStack.of(states, position, count)
        chain, active, arrays = self.shared.chain, self.shared.active, self.arrays
        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        ahead = jnp.int32(-1), pick(chain.needed, arrays.init)
        carry = count - 1, stack, ahead, (*bars, xs_bar)
        *_, bars = masked_loop(lambda carry: carry[0] >= 0, tick, carry)
        return bars

    def _pull(self, k, stack: SnapshotStack, ahead: tuple, bars: tuple) -> tuple:
        """Pull back node k, if its state is on the stack or is the state `ahead`."""
        (reached, leaves), (state_bar, shared_bar, xs_bar) = ahead, bars
        chain, arrays = self.shared.chain, self.arrays
        top = stack.uppermost
        held, is_ahead = (k >= 0) & (top == k), (k >= 0) & (reached == k)
        ready = held | is_ahead
        found = self.forward.store.get_at(stack.states, at(stack.slot, stack.top), top)
        state = merge(chain.needed, where(is_ahead, leaves, found), arrays.init)
        place = chain.executor.index(chain, jnp.where(ready, k, top), arrays.consts)
        node_bar, new_bar, x_bar = self.shared.pull(state, get(arrays.xs, place), (state_bar, ()))
        summed = tuple(map(jnp.add, shared_bar, node_bar))
        state_bar, shared_bar = where(ready, (new_bar, summed), (state_bar, shared_bar))
        xs_bar = put(xs_bar, where(ready, x_bar, get(xs_bar, place)), place)
        stack = stack._replace(top=stack.top - count_of(held))
        return k - count_of(ready), stack, (state_bar, shared_bar, xs_bar)

    def _step_ahead(self, k, stack: SnapshotStack, ahead: tuple) -> tuple[SnapshotStack, tuple]:
        """Take a step towards the last of the nodes up to k whose states are not on the stack.

        `ahead` is a position and the needed leaves there. A state that Revolve keeps is put on the stack, below
        those of the nodes after it; while no slot is free, no step is taken past it.
        """
        forward, slots = self.forward, self.slots
        places = jnp.arange(slots, dtype=jnp.int32)
        # the states of the nodes before k are consecutive where positions are offset like this
        offset = k - stack.top
        below = jnp.sum((stack.position - places < offset) & (places <= stack.top), dtype=jnp.int32)
        below, end = below - 1, below + offset
        base, slot = (at(array, jnp.maximum(below, 0)) for array in (stack.position, stack.slot))
        restarts = (ahead[0] < base) | (ahead[0] >= end)
        origin = base, forward.store.get_at(stack.states, slot, base)
        reached, leaves = where(restarts, origin, ahead)
        stop = self._next_kept(base, end, slots - below)
        after, has_room = reached + 1, stack.top + 1 < slots
        moves = (below >= 0) & (after < end)
        moves &= (after < stop) | (stop == end - 1) | has_room
        ahead = where(moves, (after, forward.step(reached, leaves)), (reached, leaves))
        return self._kept(stack, moves & (after == stop) & has_room, below, ahead), ahead

    def _next_kept(self, base, end, free):
        """Return the next position to keep after `base`, at most end - 1, the last one needed."""
        stop = jnp.where(free > 1, base + 1, end - 1)
        if self.betas is not None:
            is_long = (free > 1) & (end - 1 - base > free)
            stop = jnp.where(is_long, base + first_part(self.betas, end - base, free), stop)
        return jnp.minimum(stop, end - 1)

    def _kept(self, stack: SnapshotStack, keeps, below, reached: tuple) -> SnapshotStack:
        """Return the stack with the reached state inserted as number `below + 1`, if `keeps`."""
        (position, leaves), (host, device) = reached, stack.states
        places = jnp.arange(self.slots, dtype=jnp.int32)
        spare = at(stack.slot, jnp.minimum(stack.top + 1, self.slots - 1))

        def inserted(array, value):
            moved = lax.pad(array, jnp.zeros_like(array[0]), [(1, -1, 0)])
            moved = jnp.where(places <= stack.top + 1, moved, array)
            moved = jnp.where(places == below + 1, value, moved)
            return jnp.where(keeps & (places > below), moved, array)

        leaves = where(keeps, self.forward.store.encode(leaves), get(device, spare))
        states = host, put(device, leaves, spare)
        new = inserted(stack.position, position), inserted(stack.slot, spare)
        return SnapshotStack(states, *new, stack.top + count_of(keeps))


def masked_loop(lives: Callable, tick: Callable, start: tuple) -> tuple:
    """Run ticks while `lives` holds, and up to `TICKS - 1` after that.

    If devices stop independently, the whole carry varies over the same mesh axes.
    """
    axes = frozenset().union(*map(varying_axes, jax.tree.leaves(start)))
    start = jax.tree.map(lambda leaf: _varying(leaf, axes), start)
    return lax.while_loop(lives, lambda carry: lax.fori_loop(0, TICKS, tick, carry), start)


def _varying(leaf, axes: frozenset):
    missing = tuple(sorted(axes - varying_axes(leaf)))
    return lax.pcast(leaf, missing, to="varying") if missing else leaf


def where(holds, new, old):
    """Return the tree `new` where `holds`, else `old`."""
    return jax.tree.map(lambda *pair: jnp.where(holds, *pair), new, old)


def at(array, i):
    """Return entry i of an array."""
    return get((array,), i)[0]


def count_of(flag):
    """Return 1 for a flag that is True, else 0."""
    return flag.astype(jnp.int32)
