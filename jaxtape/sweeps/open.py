"""The sweeps of a chain of unknown length: it stops when its condition fails, or at its capacity.

The first sweep follows a table that knows no end (`jaxtape/schedules/online.py`). The way back holds
the slots as a stack, in the order of their positions: it starts from the uppermost state, keeps on its
way to a node as many of those after it as there are slots, where Revolve would, and takes a state from
the stack when its node is done.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .chain import Arrays, Chain
from .masks import Active, Mask, pick
from .pullback import gathered, nothing_shared, pull
from .scheduled import Reached, Walk
from .slots import Slots, get, put


class Held(NamedTuple):
    """The states in the slots, the position that each slot holds, and the number of steps taken."""

    states: Slots
    position: jax.Array
    steps: jax.Array


class Stack(NamedTuple):
    """The states in the slots by position, `slot[i]` that of `position[i]`; the uppermost is number `top`."""

    states: Slots
    position: jax.Array
    slot: jax.Array
    top: jax.Array

    @classmethod
    def of(cls, held: Held) -> "Stack":
        """What the first sweep held, the last state uppermost."""
        order = jnp.argsort(jnp.where(held.position < 0, held.steps, held.position))
        top = jnp.sum(held.position >= 0, dtype=jnp.int32) - 1
        return cls(held.states, held.position[order], order.astype(jnp.int32), top)

    @property
    def uppermost(self):
        """The uppermost position."""
        return _at(self.position, self.top)

    def push(self, walk: Walk, reached: Reached) -> "Stack":
        """With one more state, the uppermost."""
        top = self.top + 1
        states = walk.keep(reached._replace(kept=self.states), _at(self.slot, top)).kept
        (position,) = put((self.position,), (reached.position,), top)
        return Stack(states, position, self.slot, top)

    def without(self, k) -> "Stack":
        """Without the state at position k, if that is the uppermost."""
        # XLA copies the positions if they are read before a loop that writes some and used after it
        return self._replace(top=self.top - (self.uppermost == k).astype(jnp.int32))


def run_open(chain: Chain, consts: tuple, init: tuple, xs: tuple) -> tuple[tuple, tuple]:
    """The last state; there are no ys."""
    del xs

    def node(carry):
        k, state = carry
        return k + 1, chain.step(consts, state, ())[0]

    goes_on = lambda carry: (carry[0] < chain.length) & chain.goes_on(consts, carry[1])  # noqa: E731
    return lax.while_loop(goes_on, node, (jnp.int32(0), init))[1], ()


@functools.partial(jax.jit, static_argnums=(0, 1))
def open_first_sweep(chain: Chain, needed: Mask, arrays: Arrays):
    """Run the chain once: the last state, no ys, and what is held."""
    online, consts = chain.online, arrays.consts
    stop = jnp.asarray([*online.position[1:], chain.length], jnp.int32)
    slot, dense = jnp.asarray(online.slot), online.dense

    def node(carry):
        k, state, _ = carry
        state, _ = chain.step(consts, state, ())
        return k + 1, state, chain.goes_on(consts, state)

    def row(carry):
        i, held, state, more = carry
        states = held.states.put(pick(needed, state), _at(slot, i))
        (position,) = put((held.position,), (held.steps,), _at(slot, i))
        on = lambda carry: carry[2] & (carry[0] < _at(stop, i))  # noqa: E731
        reached = held.steps, state, more
        k, state, more = node(reached) if dense else lax.while_loop(on, node, reached)
        return i + 1, Held(states, position, k), state, more

    on = lambda carry: carry[3] & (carry[1].steps < chain.length)  # noqa: E731
    none = jnp.full(online.slots, -1, jnp.int32)
    held = Held(Slots.empty(online, pick(needed, arrays.init)), none, jnp.int32(0))
    start = jnp.int32(0), held, arrays.init, chain.goes_on(consts, arrays.init)
    _, held, state, _ = lax.while_loop(on, row, start)
    return state, (), held


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def open_reverse_sweep(
    chain: Chain, active: Active, needed: Mask, arrays: Arrays, held: Held, state_bar, ys_bar
) -> Arrays:
    """Pull cotangents back through the steps that were taken, the last first."""
    del ys_bar
    walk = Walk(chain, needed, (True,) * sum(needed))

    def node(i, carry):
        stack, state_bar, shared_bar = carry
        k = held.steps - 1 - i
        loaded = stack.states.get(_at(stack.slot, stack.top), pick(needed, arrays.init))
        reached = Reached(Slots(), stack.uppermost, loaded, ())
        stack, reached = _towards(walk, arrays, k, stack, reached)
        state = walk.whole(arrays, walk.advance(arrays, reached, k))
        bars = pull(chain, active, (arrays.consts, state, ()), (state_bar, ()))
        node_bar, state_bar, _ = bars
        return stack.without(k), state_bar, tuple(map(jnp.add, shared_bar, node_bar))

    carry = Stack.of(held), state_bar, nothing_shared(chain, active, arrays)
    _, init_bar, shared_bar = lax.fori_loop(0, held.steps, node, carry)
    return Arrays(gathered(chain, active, arrays, shared_bar), init_bar, ())


def _towards(walk: Walk, arrays: Arrays, k, stack: Stack, reached: Reached):
    """Advance towards position k, keeping states as Revolve does, while any before k is to be kept."""
    online = walk.chain.online
    betas = jnp.asarray(online.betas)
    free = lambda stack: online.slots - stack.top  # noqa: E731

    def is_long(carry):
        """Whether there are slots for some of the states before k, and not for all."""
        stack, reached = carry
        return (free(stack) > 1) & (k - reached.position > free(stack))

    def cut(carry):
        """Keep the state after the first part of the nodes up to k."""
        stack, reached = carry
        size, (most, more) = k + 1 - reached.position, (_at(betas, free(stack) - i) for i in (0, 1))
        r = jnp.sum(most < size, dtype=jnp.int32)
        part = jnp.minimum(_at(most, r - 1), size - _at(more, r - 1))
        reached = walk.advance(arrays, reached, reached.position + part)
        return stack.push(walk, reached), reached

    def next_one(p, carry):
        """Keep the next state."""
        stack, reached = carry
        state, _ = walk.chain.step(arrays.consts, walk.whole(arrays, reached), ())
        reached = reached._replace(position=p + 1, state=pick(walk.carried, state))
        return stack.push(walk, reached), reached

    carry = stack, reached
    if not online.dense:
        carry = lax.while_loop(is_long, cut, carry)
    stack, reached = carry
    last = jnp.minimum(k - 1, reached.position + free(stack) - 1)
    return lax.fori_loop(reached.position, last, next_one, carry)


def _at(array, i):
    return get((array,), i)[0]
