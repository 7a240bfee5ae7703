"""The executor: one sweep forward that keeps states, one sweep back that recomputes the others."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .chain import Arrays, Chain

Mask = tuple[bool, ...]


class Active(NamedTuple):
    """Which leaves carry a cotangent: shared ones, the state's, each node's x, each node's y."""

    consts: Mask
    state: Mask
    xs: Mask
    ys: Mask

    @property
    def inputs(self) -> tuple[Mask, Mask, Mask]:
        """The masks of consts, state and x: what a step reads."""
        return self.consts, self.state, self.xs


class Reached(NamedTuple):
    """How far a sweep has come: the states in the slots, a position, its state, the ys so far."""

    kept: tuple
    position: Any
    state: tuple
    ys: tuple


@dataclasses.dataclass(frozen=True)
class Walk:
    """Steps forward that carry some leaves of the state and keep some of those in the slots.

    A leaf that is not carried is one that the carried ones do not read: any value stands in for it.
    """

    chain: Chain
    carried: Mask
    kept: Mask

    def advance_and_keep(self, arrays: Arrays, reached: Reached, first, last) -> Reached:
        """Follow the store rows [first, last): advance to each row's position and keep its state."""
        rows = self.chain.rows(arrays.consts)
        position, slot = map(jnp.asarray, (rows.store_position, rows.store_slot))
        if not position.size:
            return reached

        def row(i, reached):
            return self.keep(self.advance(arrays, reached, position[i]), slot[i])

        return lax.fori_loop(first, last, row, reached)

    def keep(self, reached: Reached, slot) -> Reached:
        """Put the state in a slot."""
        leaves = pick(self.kept, reached.state)
        rounded = tuple(map(_as, leaves, reached.kept))
        return reached._replace(kept=_put(reached.kept, rounded, slot))

    def advance(self, arrays: Arrays, reached: Reached, stop) -> Reached:
        """Advance to position `stop`. The slots stay outside this loop, or XLA would copy them."""
        chain = self.chain
        if not (reached.state or reached.ys):
            return reached._replace(position=stop)

        def node(k, carry):
            state, ys = carry
            at = chain.index(k, arrays.consts)
            x = _get(arrays.xs, at)
            state, y = chain.step(arrays.consts, merge(self.carried, state, arrays.init), x)
            return pick(self.carried, state), _put(ys, y, at) if ys else ys

        state, ys = lax.fori_loop(reached.position, stop, node, (reached.state, reached.ys))
        return Reached(reached.kept, stop, state, ys)

    def whole(self, arrays: Arrays, reached: Reached) -> tuple:
        """The state with every leaf; one that is not carried is any value."""
        return merge(self.carried, reached.state, arrays.init)


def empty_slots(chain: Chain, needed: Mask, arrays: Arrays) -> tuple:
    """Room for the needed leaves of every state that is kept; each slot holds the first one."""
    table = chain.table
    return tuple(
        jnp.broadcast_to(_rounded(leaf, table.checkpoint_dtype), (table.slots, *leaf.shape))
        for leaf in pick(needed, arrays.init)
    )


def load(needed: Mask, arrays: Arrays, kept: tuple, slot) -> tuple:
    """The needed leaves of the state in a slot."""
    return tuple(map(_as, _get(kept, slot), pick(needed, arrays.init)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def first_sweep(chain: Chain, needed: Mask, arrays: Arrays) -> tuple[tuple, tuple, tuple]:
    """Run the chain once, keeping the states its schedule wants: the last state, ys, the slots.

    Of a state only the needed leaves are kept.
    """
    rows = chain.rows(arrays.consts)
    last = jnp.maximum(rows.length - 1, 0)
    walk = Walk(chain, (True,) * chain.num_state, needed)
    kept = empty_slots(chain, needed, arrays)
    ys = tuple(_empty(chain.length, aval) for aval in chain.y_avals)
    start = Reached(kept, jnp.int32(0), arrays.init, ys)
    reached = walk.advance_and_keep(arrays, start, *map(jnp.int32, rows.sweep))
    reached = walk.advance(arrays, reached, last)
    kept = walk.keep(reached, jnp.asarray(rows.load_slot)[last]).kept
    reached = walk.advance(arrays, reached, jnp.int32(rows.length))
    return reached.state, reached.ys, kept


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def reverse_sweep(
    chain: Chain, active: Active, needed: Mask, arrays: Arrays, kept, state_bar, ys_bar
) -> Arrays:
    """Pull cotangents back through the chain, last node first.

    `state_bar` and `ys_bar` hold the active leaves only, and so do the cotangents returned: the
    sum over all nodes for `consts`, the first state's for `init`, one a node for `xs`. Of
    `arrays.init` only the types matter, for slot 0 holds what is needed of it.
    """
    rows = jax.tree.map(jnp.asarray, chain.rows(arrays.consts))
    walk = Walk(chain, needed, (True,) * sum(needed))

    def node(carry, per_node):
        kept, state_bar, consts_bar = carry
        x, y_bar, k = per_node
        loaded = load(needed, arrays, kept, rows.load_slot[k])
        reached = Reached(kept, rows.load_position[k], loaded, ())
        reached = walk.advance_and_keep(arrays, reached, rows.first_row[k], rows.last_row[k])
        state = walk.whole(arrays, walk.advance(arrays, reached, k))
        node_bar, state_bar, x_bar = pull(
            chain, active, (arrays.consts, state, x), (state_bar, y_bar)
        )
        consts_bar = tuple(map(jnp.add, consts_bar, node_bar))
        return (reached.kept, state_bar, consts_bar), x_bar

    def live_node(i, carry):
        """The i-th node from the end, where it lies; places that no node has keep a zero."""
        carry, xs_bar = carry
        k = rows.length - 1 - i
        at = rows.order[k]
        carry, x_bar = node(carry, (_get(arrays.xs, at), (), k))
        return carry, _put(xs_bar, x_bar, at)

    consts_bar = tuple(map(jnp.zeros_like, pick(active.consts, arrays.consts)))
    start = kept, state_bar, consts_bar
    if chain.is_edited:
        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        (_, init_bar, consts_bar), xs_bar = lax.fori_loop(
            0, rows.length, live_node, (start, xs_bar)
        )
        return Arrays(consts_bar, init_bar, xs_bar)
    k = jnp.arange(chain.length, dtype=jnp.int32)
    (_, init_bar, consts_bar), xs_bar = lax.scan(
        node,
        start,
        (arrays.xs, ys_bar, k[::-1] if chain.reverse else k),
        reverse=not chain.reverse,
    )
    return Arrays(consts_bar, init_bar, xs_bar)


def run_live(chain: Chain, consts: tuple, init: tuple, xs: tuple) -> tuple[tuple, tuple]:
    """The last state of a chain whose nodes may be edited; there are no ys."""
    walk = Walk(chain, (True,) * chain.num_state, ())
    start = Reached((), jnp.int32(0), init, ())
    length = jnp.asarray(chain.rows(consts).length)
    return walk.advance(Arrays(consts, init, xs), start, length).state, ()


def pull(chain: Chain, active: Active, inputs: tuple, bars: tuple) -> tuple:
    """Tape one node and pull cotangents back through it."""

    def taped(*picked):
        state, y = chain.step(*map(merge, active.inputs, picked, inputs))
        return pick(active.state, state), pick(active.ys, y)

    _, pullback = jax.vjp(taped, *map(pick, active.inputs, inputs))
    return pullback(bars)


def inexact(leaves: Sequence) -> Mask:
    """Which leaves are numbers that can vary; integers, booleans and keys are not."""
    return tuple(bool(jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves)


def pick(mask: Mask, leaves: Sequence) -> tuple:
    """The leaves that the mask selects."""
    return tuple(leaf for chosen, leaf in zip(mask, leaves, strict=True) if chosen)


def merge(mask: Mask, picked: Sequence, leaves: Sequence) -> tuple:
    """`leaves` with the selected ones replaced by `picked`."""
    replacements = iter(picked)
    return tuple(next(replacements) if chosen else leaf
                 for chosen, leaf in zip(mask, leaves, strict=True))  # fmt: skip


def _rounded(leaf, dtype):
    """A real floating-point leaf at the precision of the slots."""
    lowers = dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(dtype) if lowers else leaf


def _as(leaf, like):
    """A leaf from a slot at its own precision again."""
    return leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype)


def _get(stacked: tuple, i) -> tuple:
    return tuple(lax.dynamic_index_in_dim(a, i, keepdims=False) for a in stacked)


def _put(stacked: tuple, leaves: tuple, i) -> tuple:
    return tuple(
        lax.dynamic_update_index_in_dim(a, leaf, i, 0)
        for a, leaf in zip(stacked, leaves, strict=True)
    )


def zeros_like(leaf):
    """Zeros that do not read the leaf, varying over the same mesh axes."""
    return _empty(1, jax.typeof(leaf))[0]


def _empty(length: int, aval):
    """A stack for one leaf of every node, varying over the same mesh axes as the leaf."""
    stack = lax.full((length, *aval.shape), 0, aval.dtype)
    varying = tuple(aval.manual_axis_type.varying)
    return lax.pcast(stack, varying, to="varying") if varying else stack
