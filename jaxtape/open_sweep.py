"""The sweeps of a chain of unknown length: it stops when its condition fails, or at its capacity.

Blocks within blocks need no table that knows the end. Every state is kept where its position says,
over that of an earlier block, so that wherever the chain stops, the slots hold the starts of the
outermost blocks, of the blocks inside the last of these, and so on down to the last state.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from .chain import Arrays, Chain
from .masks import Active, Mask, pick
from .pullback import gathered, nothing_shared, pull
from .slots import Slots
from .sweep import Reached, Walk


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
    """Run the chain once: the last state, no ys, and the slots with the number of steps taken."""
    walk, slot = Walk(chain, (True,) * chain.num_state, needed), jnp.asarray(chain.blocks.slot)

    def node(reached):
        k = reached.position
        return walk.advance(arrays, walk.keep(reached, slot[k]), k + 1)

    def goes_on(reached):
        more = chain.goes_on(arrays.consts, reached.state)
        return (reached.position < chain.length) & more

    start = Reached(
        Slots.empty(chain.blocks, pick(needed, arrays.init)), jnp.int32(0), arrays.init, ()
    )
    reached = lax.while_loop(goes_on, node, start)
    return reached.state, (), (reached.kept, reached.position)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def open_reverse_sweep(
    chain: Chain, active: Active, needed: Mask, arrays: Arrays, kept, state_bar, ys_bar
) -> Arrays:
    """Pull cotangents back through the steps that were taken, the last first.

    The last node of a block finds the block's start in its slot, and keeps what is inside it again.
    """
    del ys_bar
    kept, length = kept
    walk = Walk(chain, needed, (True,) * sum(needed))
    slot, block_start = jnp.asarray(chain.blocks.slot), jnp.asarray(chain.blocks.load_position)

    def node(i, carry):
        kept, state_bar, shared_bar = carry
        k = length - 1 - i
        start = jnp.where(i == 0, k, block_start[k])  # the first sweep went on from inside
        reached = Reached(kept, start, kept.get(slot[start], pick(needed, arrays.init)), ())

        def onward(position, reached):
            return walk.keep(walk.advance(arrays, reached, position + 1), slot[position + 1])

        reached = lax.fori_loop(start, k, onward, reached)
        state = walk.whole(arrays, reached)
        bars = pull(chain, active, (arrays.consts, state, ()), (state_bar, ()))
        node_bar, state_bar, _ = bars
        return reached.kept, state_bar, tuple(map(jnp.add, shared_bar, node_bar))

    carry = kept, state_bar, nothing_shared(chain, active, arrays)
    _, init_bar, shared_bar = lax.fori_loop(0, length, node, carry)
    return Arrays(gathered(chain, active, arrays, shared_bar), init_bar, ())
