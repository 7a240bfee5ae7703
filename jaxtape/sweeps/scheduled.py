"""The executor: one sweep forward that keeps states, one sweep back that recomputes the others."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .chain import Arrays, Chain
from .masks import Active, Mask, merge, pick
from .pullback import gathered, nothing_shared, pull
from .slots import Slots, get, put


class Reached(NamedTuple):
    """How far a sweep has come: the states in the slots, a position, its state, the ys so far."""

    kept: Slots
    position: Any
    state: tuple
    ys: tuple


@dataclasses.dataclass(frozen=True)
class Walk:
    """Steps forward that carry some leaves of the state and keep some of those in the slots.

    A leaf that is not carried is one that no step changes, or that the carried ones do not read: the first
    state's stands in for it.
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
        kept = reached.kept.put(pick(self.kept, reached.state), slot)
        return reached._replace(kept=kept)

    def advance(self, arrays: Arrays, reached: Reached, stop) -> Reached:
        """Advance to position `stop`. The slots stay outside this loop, or XLA would copy them."""
        chain = self.chain
        if not (reached.state or reached.ys):
            return reached._replace(position=stop)

        def node(k, carry):
            state, ys = carry
            at = chain.index(k, arrays.consts)
            x = get(arrays.xs, at)
            state, y = chain.step(arrays.consts, merge(self.carried, state, arrays.init), x)
            return pick(self.carried, state), put(ys, y, at) if ys else ys

        state, ys = lax.fori_loop(reached.position, stop, node, (reached.state, reached.ys))
        return Reached(reached.kept, stop, state, ys)

    def whole(self, arrays: Arrays, reached: Reached) -> tuple:
        """The state with every leaf; one that is not carried is any value."""
        return merge(self.carried, reached.state, arrays.init)


@functools.partial(jax.jit, static_argnums=(0, 1))
def first_sweep(chain: Chain, needed: Mask, arrays: Arrays) -> tuple[tuple, tuple, Slots]:
    """Run the chain once, keeping the states its schedule wants: the last state, ys, the slots.

    Of a state only the needed leaves are kept.
    """
    rows = chain.rows(arrays.consts)
    last = jnp.maximum(rows.length - 1, 0)
    walk = Walk(chain, (True,) * chain.num_state, needed)
    kept = Slots.empty(chain.table, pick(needed, arrays.init))
    ys = tuple(_empty(chain.length, aval) for aval in chain.y_avals)
    start = Reached(kept, jnp.int32(0), arrays.init, ys)
    reached = walk.advance_and_keep(arrays, start, *map(jnp.int32, rows.sweep))
    reached = walk.advance(arrays, reached, last)
    kept = walk.keep(reached, jnp.asarray(rows.load_slot)[last]).kept
    reached = walk.advance(arrays, reached, jnp.int32(rows.length))
    return reached.state, reached.ys, kept


class Pulled(NamedTuple):
    """How far a reverse sweep has come: the slots, the cotangents of the state and of what is shared."""

    kept: Slots
    state_bar: tuple
    shared_bar: tuple


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def reverse_sweep(
    chain: Chain, active: Active, needed: Mask, arrays: Arrays, kept: Slots, state_bar, ys_bar
) -> Arrays:
    """Pull cotangents back through the chain, last node first.

    `state_bar` and `ys_bar` hold the active leaves only, and so do the cotangents returned: the
    sum over all nodes for `consts`, the first state's for `init`, one a node for `xs`. Of
    `arrays.init` the leaves that no step changes are read; slot 0 holds what else is needed of it.
    """
    start = Pulled(kept, state_bar, nothing_shared(chain, active, arrays))
    pull_node = functools.partial(_pull_node, chain, active, needed, arrays)
    over_nodes = _over_live_nodes if chain.is_edited else _over_all_nodes
    pulled, xs_bar = over_nodes(chain, active, arrays, pull_node, start, ys_bar)
    consts_bar = gathered(chain, active, arrays, pulled.shared_bar)
    return Arrays(consts_bar, pulled.state_bar, xs_bar)


def _pull_node(chain: Chain, active: Active, needed: Mask, arrays: Arrays, k, x, y_bar, pulled):
    """Node k: load a state, advance to the node, keep states on the way, pull back."""
    rows = jax.tree.map(jnp.asarray, chain.rows(arrays.consts))
    walk = Walk(chain, needed, (True,) * sum(needed))
    loaded = pulled.kept.get(rows.load_slot[k], pick(needed, arrays.init))
    reached = Reached(pulled.kept, rows.load_position[k], loaded, ())
    reached = walk.advance_and_keep(arrays, reached, rows.first_row[k], rows.last_row[k])
    state = walk.whole(arrays, walk.advance(arrays, reached, k))
    bars = pull(chain, active, (arrays.consts, state, x), (pulled.state_bar, y_bar))
    shared_bar, state_bar, x_bar = bars
    shared_bar = tuple(map(jnp.add, pulled.shared_bar, shared_bar))
    return Pulled(reached.kept, state_bar, shared_bar), x_bar


def _over_all_nodes(chain: Chain, active: Active, arrays: Arrays, pull_node, start: Pulled, ys_bar):
    """Every node of a chain as it was made; `lax.scan` stacks the cotangents of `xs`."""
    del active

    def node(carry, per_node):
        k, pulled = carry
        pulled, x_bar = pull_node(k, *per_node, pulled)
        return (k - 1, pulled), x_bar

    first = jnp.int32(chain.length - 1), start
    (_, pulled), xs_bar = lax.scan(
        node, first, (arrays.xs, ys_bar), chain.length, reverse=not chain.reverse
    )
    return pulled, xs_bar


def _over_live_nodes(chain: Chain, active: Active, arrays: Arrays, pull_node, start: Pulled, _):
    """The live nodes of an edited chain, where they lie; places that no node has keep a zero."""
    length = jnp.asarray(chain.rows(arrays.consts).length)

    def node(i, carry):
        pulled, xs_bar = carry
        k = length - 1 - i
        at = chain.index(k, arrays.consts)
        pulled, x_bar = pull_node(k, get(arrays.xs, at), (), pulled)
        return pulled, put(xs_bar, x_bar, at)

    xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
    return lax.fori_loop(0, length, node, (start, xs_bar))


def run_live(chain: Chain, consts: tuple, init: tuple, xs: tuple) -> tuple[tuple, tuple]:
    """The last state of a chain whose nodes may be edited; there are no ys."""
    walk = Walk(chain, (True,) * chain.num_state, ())
    start = Reached(Slots(), jnp.int32(0), init, ())
    length = jnp.asarray(chain.rows(consts).length)
    return walk.advance(Arrays(consts, init, xs), start, length).state, ()


def zeros_like(leaf):
    """Zeros that do not read the leaf, varying and sharded over the same mesh axes."""
    return _empty(1, jax.typeof(leaf))[0]


def _empty(length: int, aval):
    """A stack for one leaf of every node, varying and sharded over the same mesh axes as the leaf."""
    sharding = aval.sharding.update(spec=(None, *aval.sharding.spec))
    stack = jnp.zeros((length, *aval.shape), aval.dtype, out_sharding=sharding)
    varying = tuple(aval.manual_axis_type.varying)
    return lax.pcast(stack, varying, to="varying") if varying else stack
