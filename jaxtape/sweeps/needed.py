"""Which leaves of the state a reverse sweep reads: only these are kept and recomputed."""

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from .chain import Arrays, Chain, first_node
from .masks import Active, Mask
from .pullback import pull
from .scheduled import zeros_like


def needed_state(chain: Chain, active: Active, arrays: Arrays) -> Mask:
    """The leaves that the pullback of a node reads, or that recomputing such a leaf reads.

    The smallest set closed under both, found by dead-code elimination on the jaxpr of the pullback
    and, until nothing is added, on that of the step. A leaf that the step hands on as it is need not be
    kept: it is that of the first state.
    """
    reads_state = slice(len(arrays.consts), len(arrays.consts) + chain.num_state)
    pullback = pullback_of_node(chain, active, arrays)
    step = jax.make_jaxpr(chain.step)(*_one_node(arrays)).jaxpr
    needed = _read(pullback, [True] * len(pullback.outvars))[reads_state]
    while True:
        outputs = [*needed, *[False] * len(chain.y_avals)]
        recomputing = _read(step, outputs)[reads_state]
        grown = tuple(a or b for a, b in zip(needed, recomputing, strict=True))
        if grown == needed:
            changes = _changes(step, reads_state)
            return tuple(a and b for a, b in zip(needed, changes, strict=True))
        needed = grown


def pullback_of_node(chain: Chain, active: Active, arrays: Arrays):
    """The jaxpr of one node's pullback, from its consts, state and x."""

    def pull_node(*inputs):
        state, y = chain.step(*inputs)
        bars = tuple(
            tuple(zeros_like(leaf) for leaf, is_active in zip(part, mask, strict=True) if is_active)
            for part, mask in ((state, active.state), (y, active.ys))
        )
        return pull(chain, active, inputs, bars)

    return jax.make_jaxpr(pull_node)(*_one_node(arrays)).jaxpr


def _changes(step, state: slice) -> Mask:
    """Which leaves of the state a step makes anew."""
    before = step.invars[state]
    return tuple(a is not b for a, b in zip(before, step.outvars[: len(before)], strict=True))


def _one_node(arrays: Arrays) -> Arrays:
    return arrays._replace(xs=first_node(arrays.xs))


def _read(jaxpr, outputs: list[bool]) -> Mask:
    """Which inputs the selected outputs depend on."""
    return tuple(dce_jaxpr(jaxpr, outputs)[1])
