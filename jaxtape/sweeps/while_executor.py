"""The executor of a chain of unknown length: it stops when its condition fails, or at its capacity.

The first sweep follows an online table (`jaxtape/schedules/online.py`). The way back treats the slots as a
stack, in the order of their positions. It starts from the top state, keeps states on its way to a node where
Revolve would, as long as there are slots, and pops a state when its node is done.
"""

import dataclasses
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..jax_private import ClosedJaxpr
from ..schedules import online
from ..schedules.online import OnlineTable
from .chain import AbstractExecutor, Active, Arrays, Chain, LoopCondition
from .executor import Forward
from .leaves import get, merge, pick, put
from .pullback import SharedValues
from .state_store import StateStore, for_each_stack, packed


class SnapshotStack(NamedTuple):
    """The states in the slots, ordered by position: `slot[i]` holds `position[i]`; the top is number `top`."""

    states: tuple
    position: jax.Array
    slot: jax.Array
    top: jax.Array

    @classmethod
    def of(cls, states: tuple, position, steps) -> "SnapshotStack":
        """Stack the states that a first sweep of `steps` steps kept, from the position that each slot holds."""
        order = jnp.argsort(jnp.where(position < 0, steps, position))
        top = jnp.sum(position >= 0, dtype=jnp.int32) - 1
        return cls(states, position[order], order.astype(jnp.int32), top)

    @property
    def uppermost(self):
        """The position of the top state."""
        return _at(self.position, self.top)

    def push(self, forward: Forward, reached: tuple) -> "SnapshotStack":
        """Put the state at `reached`, a position and the needed leaves, on the stack."""
        top, (at, leaves) = self.top + 1, reached
        states, *_ = forward.keep((self.states, at, leaves), _at(self.slot, top))
        (position,) = put((self.position,), (at,), top)
        return SnapshotStack(states, position, self.slot, top)

    def without(self, k) -> "SnapshotStack":
        """Pop the top state if it is at position k."""
        # XLA copies the positions if they are read before a loop that writes some, and used after
        # it
        return self._replace(top=self.top - (self.uppermost == k).astype(jnp.int32))


@dataclasses.dataclass(frozen=True)
class WhileExecutor(AbstractExecutor):
    """The executor of a chain that runs until its condition fails. Its nodes have neither x nor y.

    Its first sweep keeps `(slots, position, steps)`: the slots, the position in each, and the number of steps.
    """

    table: OnlineTable

    def index(self, chain: Chain, k, consts: tuple):
        del chain, consts
        return k

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        def node(carry):
            k, state = carry
            return k + 1, chain.step(arrays.consts, state, ())[0]

        def continues(carry):
            k, state = carry
            return (k < chain.length) & chain.continues(arrays.consts, state)

        return lax.while_loop(continues, node, (jnp.int32(0), arrays.init))[1], ()

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, tuple]:
        consts, needed, table = arrays.consts, chain.needed, self.table
        store = StateStore.of(chain, arrays.init)

        def node(carry):
            k, state, _ = carry
            state, _ = chain.step(consts, state, ())
            return k + 1, state, chain.continues(consts, state)

        def row(carry):
            at, (slots, position, steps), state, more = carry
            slots = store.put(slots, slot_of_row(table, at), pick(needed, state))
            (position,) = put((position,), (steps,), slot_of_row(table, at))
            stop = end_of_row(table, at)
            if table.refreshes:
                near = steps + jnp.minimum(stop - steps, online.REFRESH)
                stop = jnp.where(steps < online.REFRESHED, stop, near)
            on = lambda carry: carry[2] & (carry[0] < stop)
            reached = steps, state, more
            k, state, more = node(reached) if table.dense else lax.while_loop(on, node, reached)
            return row_after(table, at, k), (slots, position, k), state, more

        on = lambda carry: carry[3] & (carry[1][2] < chain.length)
        zero, none = jnp.int32(0), jnp.full(table.slots, -1, jnp.int32)
        kept = store.empty(), none, zero
        start = (zero, zero, zero), kept, arrays.init, chain.continues(consts, arrays.init)
        _, (slots, position, steps), state, _ = lax.while_loop(on, row, start)
        return state, (), (store.unpack(slots), position, steps)

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        forward = Forward.of_needed(chain, arrays)
        shared = SharedValues.of(chain, active, arrays.consts)
        slots, position, steps = kept

        def node(i, carry):
            stack, state_bar, shared_bar = carry
            k, slot = steps - 1 - i, _at(stack.slot, stack.top)
            reached = stack.uppermost, forward.store.get_at(stack.states, slot, stack.uppermost)
            stack, reached = self._advance_towards(k, forward, stack, reached)
            *_, leaves = forward.advance(((), *reached), k)
            state = merge(chain.needed, leaves, arrays.init)
            node_bar, state_bar, _ = shared.pull(state, (), (state_bar, ()))
            return stack.without(k), state_bar, tuple(map(jnp.add, shared_bar, node_bar))

        state_bar, _ = bars
        stack = SnapshotStack.of(packed(chain, slots), position, steps)
        carry = stack, state_bar, shared.init()
        _, init_bar, shared_bar = lax.fori_loop(0, steps, node, carry)
        return Arrays(shared.finish(shared_bar), init_bar, ())

    def _advance_towards(
        self, k, forward: Forward, stack: SnapshotStack, reached: tuple
    ) -> tuple[SnapshotStack, tuple]:
        """Advance towards position k and keep states on the way, as Revolve does."""
        free = lambda stack: self.table.slots - stack.top

        def is_long(carry):
            """Return True if there are slots for some of the states before k, but not for all."""
            stack, (position, _) = carry
            return (free(stack) > 1) & (k - position > free(stack))

        def cut(carry):
            """Keep the state after the first part of the nodes up to k."""
            stack, (position, leaves) = carry
            part = first_part(self.table.betas, k + 1 - position, free(stack))
            _, *reached = forward.advance(((), position, leaves), position + part)
            return stack.push(forward, tuple(reached)), tuple(reached)

        def next_one(p, carry):
            """Keep the next state."""
            stack, (_, leaves) = carry
            reached = p + 1, forward.step(p, leaves)
            return stack.push(forward, reached), reached

        carry = stack, reached
        if not self.table.dense:
            carry = lax.while_loop(is_long, cut, carry)
        stack, (position, _) = carry
        last = jnp.minimum(k - 1, position + free(stack) - 1)
        return lax.fori_loop(position, last, next_one, carry)

    def kept_dims(self, kept: tuple, of_leaves: tuple, dim: Any, of_residuals: Any) -> tuple:
        del of_residuals
        slots, *_ = kept
        return for_each_stack(slots, of_leaves), dim, dim


def first_part(betas: np.ndarray, size, free):
    """Return the number of nodes, of `size`, that Revolve passes before it keeps the next state."""
    most, more = (_at(jnp.asarray(betas), free - i) for i in (0, 1))
    r = jnp.sum(most < size, dtype=jnp.int32)
    return jnp.minimum(_at(most, r - 1), size - _at(more, r - 1))


def slot_of_row(table: OnlineTable, row: tuple):
    """Return the slot in which the state of a row is kept.

    A row is three integers: its number and, among the dense rows, its turn and its part of that turn.
    """
    number, turn, part = row
    dense = table.dense_slot(turn, part)
    if not table.slot.size:
        return dense
    late = _at(jnp.asarray(table.slot), jnp.maximum(number - table.dense_rows, 0))
    return jnp.where(number < table.dense_rows, dense, late)


def end_of_row(table: OnlineTable, row: tuple):
    """Return the position of the next row."""
    after, ends = row[0] + 1, jnp.asarray([*table.position, table.length], jnp.int32)
    late = _at(ends, jnp.maximum(after - table.dense_rows, 0))
    return jnp.where(after < table.dense_rows, after, late)


def row_after(table: OnlineTable, row: tuple, k) -> tuple:
    """Return the row of position k: the same row while its state is being refreshed."""
    number, turn, part = row
    is_last = part == table.slots - turn
    turn, part = turn + is_last.astype(jnp.int32), jnp.where(is_last, 0, part + 1)
    following = number + 1, turn, part
    if not table.refreshes:
        return following
    return jax.tree.map(lambda *rows: jnp.where(k < end_of_row(table, row), *rows), row, following)


def with_condition(chain: Chain, arrays: Arrays, cond) -> tuple[Chain, Arrays]:
    """Return the chain that runs while `cond`, a closed jaxpr of the state, holds."""
    step, holds = _of_same_consts(chain.jaxpr, len(arrays.consts), cond.jaxpr)
    arrays = arrays._replace(consts=(*arrays.consts, *cond.consts))
    _check_varying(arrays)
    condition = LoopCondition(holds, len(arrays.consts), len(arrays.init))
    return dataclasses.replace(chain, closed=step, condition=condition), arrays


def _of_same_consts(step, count: int, cond) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Return the jaxprs of a step and of a condition, each with the consts of both as inputs.

    The first `count` inputs of the step are its consts. The result is cached, so that an eager loop of the same
    functions compiles once.
    """
    found = _of_pairs.setdefault(step, weakref.WeakKeyDictionary())
    if cond not in found:
        first, last = step.invars[:count], step.invars[count:]
        more = [*first, *cond.constvars]
        names = [jaxpr.debug_info.with_unknown_names() for jaxpr in (step, cond)]
        found[cond] = (
            ClosedJaxpr(step.replace(invars=[*more, *last], debug_info=names[0]), ()),
            ClosedJaxpr(
                cond.replace(constvars=[], invars=[*more, *cond.invars], debug_info=names[1]), ()
            ),
        )
    return found[cond]


_of_pairs = weakref.WeakKeyDictionary()


def _check_varying(arrays: Arrays) -> None:
    """Check that shared floats vary over the mesh axes that the state varies over.

    Devices stop after different numbers of steps, and the cotangent of a replicated value would be summed over
    the devices at every step: those still running would wait forever.

    Raises:
        ValueError: If one does not.
    """
    axes = frozenset().union(*map(varying_axes, arrays.init))
    for leaf in arrays.consts:
        missing = tuple(sorted(axes - varying_axes(leaf)))
        if missing and jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"The loop's state varies over the mesh axes {missing}, and a value that its body closes over, "
                f"{jax.typeof(leaf)}, does not: give it value = jax.lax.pcast(value, {missing}, "
                "to='varying'), made before the loop."
            )


def varying_axes(leaf) -> frozenset:
    """Return the mesh axes over which an array varies."""
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def _at(array, i):
    return get((array,), i)[0]
