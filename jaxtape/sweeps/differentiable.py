"""Find the leaves that can be differentiated, and the cotangents that can be pulled back.

JAX raises where a cotangent arrives at an operation without a transpose, such as a `lax.while_loop`, or a
tangent at one without a derivative, such as a `pure_callback`. `lax.scan` raises only if the caller asks for
that cotangent. So a chain leaves out the cotangents that cannot be pulled back, and raises if one arrives.
"""

from collections.abc import Callable
from operator import and_, or_

import jax

from .chain import Active, Arrays, Chain
from .dependence import active_leaves, moving_jvp, pullback_of_node, zeros_like
from .leaves import Mask, Static, first_node, inexact, merge, pick

UNDEFINED = Static("the cotangent of a leaf that cannot be differentiated")


def pulled_leaves(chain: Chain, active: Active, arrays: Arrays) -> Active:
    """Return the active leaves except the outputs whose cotangents cannot be pulled back.

    That includes outputs that pass their cotangent to such a leaf of the state.
    """
    outputs = (*active.state, *active.ys)
    stuck = tuple(a and not _pulls(chain, active, arrays, i) for i, a in enumerate(outputs))
    n = chain.num_state
    none = tuple((False,) * len(part) for part in arrays)
    reached = active_leaves(chain, arrays, (none[0], stuck[:n], none[2]))
    ys = tuple(map(or_, reached.ys, stuck[n:]))
    return active._replace(state=_less(active.state, reached.state), ys=_less(active.ys, ys))


def differentiable_leaves(chain: Chain, arrays: Arrays, state: Mask | None = None) -> Active:
    """Return the active leaves of the gradient with respect to everything that can be differentiated.

    A leaf is left out, and must be held fixed, if no cotangent can be pulled back to it. If no leaf is left,
    JAX's own error is raised. `state` selects the leaves of the first state that vary; None is all that can.
    """
    consts, first, xs = map(inexact, arrays)
    moving = consts, first if state is None else tuple(map(and_, first, state)), xs
    try:
        active = active_leaves(chain, arrays, moving)
        pullback_of_node(chain, active, arrays)
    except Exception:
        usable = tuple(
            tuple(moves and _is_usable(chain, arrays, i, j) for j, moves in enumerate(part))
            for i, part in enumerate(moving)
        )
        if not any(map(any, usable)):
            raise
        return pulled_leaves(chain, active_leaves(chain, arrays, usable), arrays)
    return active


def refuse_stuck(chain: Chain, active: Active, pulled: Active, arrays: Arrays, bars: tuple) -> None:
    """Raise JAX's own error if a cotangent that is active but not `pulled` has arrived, by the masks `bars`."""
    stuck = *_less(active.state, pulled.state), *_less(active.ys, pulled.ys)
    if any(map(and_, stuck, (*bars[0], *bars[1]))):
        pullback_of_node(chain, active, arrays)


def pull_leaves(f: Callable, args: list, bars: list) -> list:
    """Pull the cotangents of a function's outputs back to those of its arguments that have a derivative.

    Args:
        f: A function of inexact arrays to a list of them.
        args: The arguments.
        bars: The cotangents of the outputs: an array, None where there is none, or `UNDEFINED`.

    Returns:
        The cotangents of the arguments: None if no output with a cotangent depends on the argument; `UNDEFINED`
        if one does through an operation without a derivative, or has the cotangent `UNDEFINED`. If all are
        undefined, JAX's own error is raised.
    """
    asked = tuple(bar is not None and bar is not UNDEFINED for bar in bars)
    undefined = tuple(bar is UNDEFINED for bar in bars)
    pulled = pick(asked, bars)

    def pull(chosen: Mask):
        of_chosen = lambda *picked: pick(asked, f(*merge(chosen, picked, args)))
        return jax.vjp(of_chosen, *pick(chosen, args))[1](pulled)

    error = None
    try:
        if all(asked):
            return list(pull((True,) * len(args)))
    except Exception as raised:
        error = raised

    def alone(i: int):
        """Return None, `UNDEFINED`, or True if one argument has a cotangent."""
        one = tuple(i == j for j in range(len(args)))
        of_one = lambda arg: list(f(*merge(one, (arg,), args)))
        found = []
        look = lambda arg: found.append(moving_jvp(of_one, (arg,), (arg,))[-1])
        try:
            jax.make_jaxpr(look)(args[i])
            if any(map(and_, found[-1], undefined)):
                return UNDEFINED
            if not any(map(and_, found[-1], asked)):
                return None
            jax.make_jaxpr(lambda: pull(one))()
        except Exception:
            return UNDEFINED
        return True

    bars = [alone(i) for i in range(len(args))]
    if error is not None and all(bar is UNDEFINED for bar in bars):
        raise error
    chosen = tuple(bar is True for bar in bars)
    return list(merge(chosen, pull(chosen), bars))


def _less(mask: Mask, other: Mask) -> Mask:
    return tuple(a and not b for a, b in zip(mask, other, strict=True))


def _is_usable(chain: Chain, arrays: Arrays, part: int, leaf: int) -> bool:
    """Return True if a leaf alone can be differentiated: it reaches no output, or one that pulls back to it."""
    moving = [(False,) * len(leaves) for leaves in arrays]
    moving[part] = tuple(i == leaf for i in range(len(arrays[part])))
    try:
        active = active_leaves(chain, arrays, tuple(moving))
    except Exception:
        return False
    pulled = pulled_leaves(chain, active, arrays)
    return any((*pulled.state, *pulled.ys)) or not any((*active.state, *active.ys))


def _pulls(chain: Chain, active: Active, arrays: Arrays, output: int) -> bool:
    """Return True if the cotangent of one output of a node can be pulled back."""

    def node(*inputs):
        def out(*picked):
            state, y = chain.step(*map(merge, active.inputs, picked, inputs))
            return (*state, *y)[output]

        leaf, pullback = jax.vjp(out, *map(pick, active.inputs, inputs))
        return pullback(zeros_like(leaf))

    try:
        jax.make_jaxpr(node)(*arrays._replace(xs=first_node(arrays.xs)))
    except Exception:
        return False
    return True
