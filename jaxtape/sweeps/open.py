"""The executor of a chain of unknown length: it stops when its condition fails, or at its capacity.

The first sweep follows a table without an end (`jaxtape/schedules/online.py`). The way back holds the slots as
a stack, in the order of their positions. It starts from the top state, keeps states on its way to a node where
Revolve would, as long as there are slots, and pops a state when its node is done.
"""

import dataclasses
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..schedules import online
from ..schedules.online import OnlineTable
from .chain import NOTHING, AbstractExecutor, Active, Arrays, Chain, Condition, get, pick, put
from .executor import Forward, ForwardState, Slots
from .pullback import gathered, nothing_shared, pull


class Snapshots(NamedTuple):
    """The states in the slots, the position that each slot holds, and the number of steps taken."""

    states: Slots
    position: jax.Array
    steps: jax.Array


class SnapshotStack(NamedTuple):
    """The states in the slots by position: `slot[i]` has `position[i]`; the uppermost is number `top`."""

    states: Slots
    position: jax.Array
    slot: jax.Array
    top: jax.Array

    @classmethod
    def of(cls, kept: Snapshots) -> "SnapshotStack":
        """Stack the states that the first sweep kept, the last state uppermost."""
        order = jnp.argsort(jnp.where(kept.position < 0, kept.steps, kept.position))
        top = jnp.sum(kept.position >= 0, dtype=jnp.int32) - 1
        return cls(kept.states, kept.position[order], order.astype(jnp.int32), top)

    @property
    def uppermost(self):
        """The uppermost position."""
        return _at(self.position, self.top)

    def push(self, forward: Forward, reached: ForwardState) -> "SnapshotStack":
        """Put one more state on the stack."""
        top = self.top + 1
        states = forward.keep(reached._replace(kept=self.states), _at(self.slot, top)).kept
        (position,) = put((self.position,), (reached.position,), top)
        return SnapshotStack(states, position, self.slot, top)

    def without(self, k) -> "SnapshotStack":
        """Take the state at position k from the stack, if it is the uppermost."""
        # XLA copies the positions if they are read before a loop that writes some and used after it
        return self._replace(top=self.top - (self.uppermost == k).astype(jnp.int32))


class Row(NamedTuple):
    """A row of an online table: its number, and among the dense ones its turn and its part of that."""

    number: jax.Array
    turn: jax.Array
    part: jax.Array

    def slot(self, table: OnlineTable):
        """Return the slot in which the state is kept."""
        dense = table.dense_slot(self.turn, self.part)
        if not table.slot.size:
            return dense
        late = _at(jnp.asarray(table.slot), jnp.maximum(self.number - table.dense_rows, 0))
        return jnp.where(self.number < table.dense_rows, dense, late)

    def ends(self, table: OnlineTable):
        """Return the position of the next row."""
        after, ends = self.number + 1, jnp.asarray([*table.position, table.length], jnp.int32)
        late = _at(ends, jnp.maximum(after - table.dense_rows, 0))
        return jnp.where(after < table.dense_rows, after, late)

    def next(self, table: OnlineTable, k) -> "Row":
        """Return the row of position k: this row, while its state is kept again and again."""
        is_last = self.part == table.slots - self.turn
        turn, part = self.turn + is_last.astype(jnp.int32), jnp.where(is_last, 0, self.part + 1)
        following = Row(self.number + 1, turn, part)
        if not table.refreshes:
            return following
        return jax.tree.map(lambda *rows: jnp.where(k < self.ends(table), *rows), self, following)


@dataclasses.dataclass(frozen=True)
class Open(AbstractExecutor):
    """The executor of a chain that runs until its condition fails. Its nodes have neither x nor y."""

    table: OnlineTable

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        def node(carry):
            k, state = carry
            return k + 1, chain.step(arrays.consts, state, ())[0]

        def goes_on(carry):
            k, state = carry
            return (k < self.length) & chain.goes_on(arrays.consts, state)

        return lax.while_loop(goes_on, node, (jnp.int32(0), arrays.init))[1], ()

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Snapshots]:
        consts, needed, table = arrays.consts, chain.needed, self.table

        def node(carry):
            k, state, _ = carry
            state, _ = chain.step(consts, state, ())
            return k + 1, state, chain.goes_on(consts, state)

        def row(carry):
            at, kept, state, more = carry
            states = kept.states.put(self, pick(needed, state), at.slot(table))
            (position,) = put((kept.position,), (kept.steps,), at.slot(table))
            stop = at.ends(table)
            if table.refreshes:
                near = kept.steps + jnp.minimum(stop - kept.steps, online.REFRESH)
                stop = jnp.where(kept.steps < online.REFRESHED, stop, near)
            on = lambda carry: carry[2] & (carry[0] < stop)  # noqa: E731
            reached = kept.steps, state, more
            k, state, more = node(reached) if table.dense else lax.while_loop(on, node, reached)
            return at.next(table, k), Snapshots(states, position, k), state, more

        on = lambda carry: carry[3] & (carry[1].steps < self.length)  # noqa: E731
        none = jnp.full(self.slots, -1, jnp.int32)
        slots = chain.packed(Slots.empty(self, pick(needed, arrays.init)))
        kept = Snapshots(slots, none, jnp.int32(0))
        zero = jnp.int32(0)
        start = Row(zero, zero, zero), kept, arrays.init, chain.goes_on(consts, arrays.init)
        _, kept, state, _ = lax.while_loop(on, row, start)
        return state, (), kept

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        forward = Forward.of_needed(chain)

        def node(i, carry):
            stack, state_bar, shared_bar = carry
            k = kept.steps - 1 - i
            slot, first = _at(stack.slot, stack.top), pick(chain.needed, arrays.init)
            loaded = stack.states.get(self, slot, stack.uppermost, first)
            reached = ForwardState(Slots(), stack.uppermost, loaded, ())
            stack, reached = self._advance_towards(k, forward, arrays, stack, reached)
            state = forward.whole(arrays, forward.advance(arrays, reached, k))
            inputs = arrays.consts, state, ()
            node_bar, state_bar, _ = pull(chain, active, inputs, (state_bar, ()))
            return stack.without(k), state_bar, tuple(map(jnp.add, shared_bar, node_bar))

        state_bar, _ = bars
        carry = SnapshotStack.of(kept), state_bar, nothing_shared(chain, active, arrays)
        _, init_bar, shared_bar = lax.fori_loop(0, kept.steps, node, carry)
        return Arrays(gathered(chain, active, arrays, shared_bar), init_bar, ())

    def _advance_towards(
        self, k, forward: Forward, arrays: Arrays, stack: SnapshotStack, reached: ForwardState
    ) -> tuple[SnapshotStack, ForwardState]:
        """Advance towards position k while Revolve keeps another state before it, and keep those states."""
        betas = jnp.asarray(self.table.betas)
        free = lambda stack: self.slots - stack.top  # noqa: E731

        def is_long(carry):
            """Return True if there are slots for some of the states before k, but not for all."""
            stack, reached = carry
            return (free(stack) > 1) & (k - reached.position > free(stack))

        def cut(carry):
            """Keep the state after the first part of the nodes up to k."""
            stack, reached = carry
            size = k + 1 - reached.position
            most, more = (_at(betas, free(stack) - i) for i in (0, 1))
            r = jnp.sum(most < size, dtype=jnp.int32)
            part = jnp.minimum(_at(most, r - 1), size - _at(more, r - 1))
            reached = forward.advance(arrays, reached, reached.position + part)
            return stack.push(forward, reached), reached

        def next_one(p, carry):
            """Keep the next state."""
            stack, reached = carry
            state, _ = forward.chain.step(arrays.consts, forward.whole(arrays, reached), ())
            reached = reached._replace(position=p + 1, state=pick(forward.carried, state))
            return stack.push(forward, reached), reached

        carry = stack, reached
        if not self.table.dense:
            carry = lax.while_loop(is_long, cut, carry)
        stack, reached = carry
        last = jnp.minimum(k - 1, reached.position + free(stack) - 1)
        return lax.fori_loop(reached.position, last, next_one, carry)

    def kept_dims(self, kept: Snapshots, of_leaves: tuple, dim: Any) -> Snapshots:
        return kept._replace(states=kept.states.each(of_leaves), position=dim, steps=dim)


def with_condition(chain: Chain, arrays: Arrays, cond) -> tuple[Chain, Arrays]:
    """Return the chain that runs while `cond`, a closed jaxpr of the state, holds."""
    step, holds = _of_same_consts(chain.jaxpr, len(arrays.consts), cond.jaxpr)
    arrays = arrays._replace(consts=(*arrays.consts, *cond.consts))
    _check_varying(arrays)
    condition = Condition(holds, len(arrays.consts), len(arrays.init), NOTHING)
    return dataclasses.replace(chain, jaxpr=step, condition=condition), arrays


def _of_same_consts(step, count: int, cond) -> tuple:
    """Return the jaxprs of a step and of a condition, which take the consts of both; the same ones again.

    The first `count` inputs of the step are its consts. An eager loop of the same functions compiles once.
    """
    found = _of_pairs.setdefault(step, weakref.WeakKeyDictionary())
    if cond not in found:
        first, last = step.invars[:count], step.invars[count:]
        more = [*first, *cond.constvars]
        names = [jaxpr.debug_info.with_unknown_names() for jaxpr in (step, cond)]
        found[cond] = (
            step.replace(invars=[*more, *last], debug_info=names[0]),
            cond.replace(constvars=[], invars=[*more, *cond.invars], debug_info=names[1]),
        )
    return found[cond]


_of_pairs = weakref.WeakKeyDictionary()


def _check_varying(arrays: Arrays) -> None:
    """Check that shared floats vary over the mesh axes that the state varies over.

    Devices stop after different numbers of steps, and the cotangent of a replicated value would be summed over
    the devices at every step: those still running would wait for ever.

    Raises:
        ValueError: If one does not.
    """
    axes = frozenset().union(*map(_axes, arrays.init))
    for leaf in arrays.consts:
        missing = tuple(sorted(axes - _axes(leaf)))
        if missing and jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"The loop's state varies over the mesh axes {missing}, and a value that its body closes over, "
                f"{jax.typeof(leaf)}, does not: give it value = jax.lax.pcast(value, {missing}, "
                "to='varying'), made before the loop."
            )


def _axes(leaf) -> frozenset:
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def _at(array, i):
    return get((array,), i)[0]
