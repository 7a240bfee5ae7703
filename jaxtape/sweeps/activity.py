"""Which leaves have a tangent that may be other than 0: those that `lax.scan` finds, and no more.

A leaf that nothing perturbed reaches may pass through what has no derivative, such as a `lax.while_loop` or a
`pure_callback`, and its states need not be kept for its own cotangent.
"""

from collections.abc import Callable
from operator import or_

import jax
from jax.custom_derivatives import SymbolicZero

from .chain import Active, Arrays, Chain, Mask, first_node, inexact, merge, pick


def moving_jvp(f: Callable, primals: tuple, tangents: tuple):
    """Return `jax.jvp(f, primals, tangents)`, and which leaves of the output may have a tangent but 0."""
    found = []

    @jax.custom_jvp
    def look(*leaves):
        return leaves

    def rule(leaves, dots):
        found.extend(not isinstance(dot, SymbolicZero) for dot in dots)
        return leaves, dots

    look.defjvp(rule, symbolic_zeros=True)

    def seen(*args):
        out = f(*args)
        leaves = jax.tree.leaves(out)
        look(*pick(inexact(leaves), leaves))
        return out

    out, dots = jax.jvp(seen, primals, tangents)
    real = inexact(jax.tree.leaves(out))
    moving = found or [False] * sum(real)  # where nothing moves JAX does not ask the rule
    return out, dots, merge(real, moving, (False,) * len(real))


def active_leaves(chain: Chain, arrays: Arrays, moving: tuple[Mask, Mask, Mask]) -> Active:
    """Return the leaves that a perturbation of some of the consts, the first state and xs reaches.

    The smallest set that holds those and is closed under a node's step.
    """
    consts, state, xs = map(tuple, moving)
    one_node = arrays._replace(xs=first_node(arrays.xs))
    reached = Active(consts, state, xs, (False,) * len(chain.y_avals))
    while any(map(any, reached.inputs)):
        found = _reached_by(chain, one_node, reached)
        grown = tuple(map(or_, state, found[: len(state)]))
        reached = reached._replace(state=grown, ys=found[len(state) :])
        if grown == state:
            break
        state = grown
    return reached


def _reached_by(chain: Chain, one_node: Arrays, active: Active) -> Mask:
    """Return which leaves of the next state and of y have a tangent if the active inputs of a node have one."""
    found = []

    def node(*inputs):
        step = lambda *picked: chain.step(*map(merge, active.inputs, picked, inputs))  # noqa: E731
        picked = tuple(map(pick, active.inputs, inputs))
        found.append(moving_jvp(step, picked, picked)[-1])

    jax.make_jaxpr(node)(*one_node)
    return found[-1]
