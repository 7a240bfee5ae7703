"""One node's pullback, and the cotangents of what all nodes share."""

import dataclasses

import jax
import jax.numpy as jnp

from .chain import Arrays, Chain
from .masks import Active, leaf_bytes, merge, pick
from .spread import spread_step, spread_values

_MOST_SPREAD = 0.25  # of the bytes of the states kept: what spread cotangents may take


def pull(chain: Chain, active: Active, inputs: tuple, bars: tuple) -> tuple[tuple, tuple, tuple]:
    """Tape one node and pull cotangents back through it.

    Returns those of what is shared, to be added up along the chain and taken to `gathered`, those of
    the state and those of x.
    """

    def taped(values, *picked):
        merged = tuple(map(merge, active.inputs, picked, inputs))
        state, y = (
            spread_step(chain, active.consts, values, merged)
            if chain.spread
            else chain.step(*merged)
        )
        return pick(active.state, state), pick(active.ys, y)

    values = _values(chain, active, inputs[0])
    _, pullback = jax.vjp(taped, values, *map(pick, active.inputs, inputs))
    values_bar, consts_bar, state_bar, x_bar = pullback(bars)
    return (*consts_bar, *values_bar), state_bar, x_bar


def nothing_shared(chain: Chain, active: Active, arrays: Arrays) -> tuple:
    """The cotangents of what is shared before the first node is pulled back."""
    consts = pick(active.consts, arrays.consts)
    return tuple(map(jnp.zeros_like, (*consts, *_values(chain, active, arrays.consts))))


def gathered(chain: Chain, active: Active, arrays: Arrays, shared_bar: tuple) -> tuple:
    """The cotangents of the active consts, from the sums over all nodes."""
    consts = pick(active.consts, arrays.consts)
    consts_bar, values_bar = shared_bar[: len(consts)], shared_bar[len(consts) :]
    if not values_bar:
        return consts_bar

    def values(*picked):
        return _values(chain, active, merge(active.consts, picked, arrays.consts))

    _, pullback = jax.vjp(values, *consts)
    return tuple(map(jnp.add, consts_bar, pullback(values_bar)))


def spreading(chain: Chain, active: Active, arrays: Arrays, kept_bytes: int) -> Chain:
    """The chain with its shared values spread in the pullback, if they are little beside what is kept."""
    spread = lambda consts: spread_values(chain, active.consts, consts)  # noqa: E731
    size = leaf_bytes(jax.eval_shape(spread, arrays.consts))
    return dataclasses.replace(chain, spread=0 < size <= _MOST_SPREAD * kept_bytes)


def _values(chain: Chain, active: Active, consts: tuple) -> tuple:
    return spread_values(chain, active.consts, consts) if chain.spread else ()
