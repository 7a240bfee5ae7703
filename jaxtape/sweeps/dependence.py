"""Activity analysis: find the leaves that have a tangent, and those that the pullback of a node reads.

A leaf that no perturbation reaches has no tangent, as in `lax.scan`. It may pass through operations without a
derivative, such as a `lax.while_loop` or a `pure_callback`, and no state is kept for its cotangent.
"""

from collections.abc import Callable
from operator import or_

import jax
from jax.custom_derivatives import SymbolicZero

from ..jax_private import Jaxpr, Var, dce_jaxpr, jaxprs_in_params
from ..jax_private import primitives as p
from .chain import Active, Arrays, Chain
from .leaves import (
    Mask,
    first_node,
    inexact,
    inputs_of_outputs,
    merge,
    pick,
    zeros_stack,
)
from .pullback import SharedValues


def needed_state(chain: Chain, active: Active, arrays: Arrays) -> Mask:
    """Return the leaves that the pullback of a node reads, or that recomputing such a leaf reads.

    It is the smallest set closed under both, found by dead-code elimination on the jaxpr of the pullback and
    then, to a fixpoint, on the jaxpr of the step. A leaf that the step returns unchanged need not be kept: it
    is the first state's.
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
    """Return the jaxpr of one node's pullback, from its consts, state and x."""

    def pull_node(*inputs):
        varying = map(pick, (active.state, active.ys), chain.step(*inputs))
        bars = tuple(tuple(map(zeros_like, leaves)) for leaves in varying)
        consts, state, x = inputs
        return SharedValues.of(chain, active, consts).pull(state, x, bars)

    return jax.make_jaxpr(pull_node)(*_one_node(arrays)).jaxpr


def _changes(step, state: slice) -> Mask:
    """Return the mask of the leaves of the state that a step changes."""
    before = step.invars[state]
    return tuple(a is not b for a, b in zip(before, step.outvars[: len(before)], strict=True))


def _one_node(arrays: Arrays) -> Arrays:
    return arrays._replace(xs=first_node(arrays.xs))


def _read(jaxpr, outputs: list[bool]) -> Mask:
    """Return the mask of the inputs on which the selected outputs depend."""
    return tuple(dce_jaxpr(jaxpr, outputs)[1])


def zeros_like(leaf):
    """Return zeros that do not read the leaf, varying and sharded over the same mesh axes."""
    return zeros_stack(1, jax.typeof(leaf))[0]


def moving_jvp(f: Callable, primals: tuple, tangents: tuple):
    """Return `jax.jvp(f, primals, tangents)`, and the mask of the outputs that may have a nonzero tangent."""
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
    moving = found or [False] * sum(real)  # if nothing moves, JAX does not call the rule
    return out, dots, merge(real, moving, (False,) * len(real))


def active_leaves(chain: Chain, arrays: Arrays, moving: tuple[Mask, ...]) -> Active:
    """Return the leaves that a perturbation of the `moving` consts, first state and xs reaches.

    It is the smallest set that contains those and is closed under a node's step.
    """
    consts, state, xs = map(tuple, moving)
    one_node = _one_node(arrays)
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
    """Return the masks of the next state and of y that have a tangent if a node's active inputs have one."""
    found = []

    def node(*inputs):
        step = lambda *picked: chain.step(*map(merge, active.inputs, picked, inputs))
        picked = tuple(map(pick, active.inputs, inputs))
        found.append(moving_jvp(step, picked, picked)[-1])

    jax.make_jaxpr(node)(*one_node)
    return found[-1]


def linear_leaves(chain: Chain, arrays: Arrays, linear: tuple[Mask, ...]) -> Active:
    """Return the leaves that depend on the `linear` consts, first state and xs, in which the chain is linear.

    Raises:
        NotImplementedError: If JAX cannot transpose the step as a linear function of them, or the chain's
            stopping condition depends on them.
    """
    consts, state, xs = linear
    reads = inputs_of_outputs(chain.jaxpr)
    found: Mask = (False,) * len(reads)
    while True:
        inputs = consts + state + xs
        grown = tuple(map(or_, found, (any(pick(mask, inputs)) for mask in reads)))
        state = tuple(map(or_, state, grown[: len(state)]))
        if grown == found:
            break
        found = grown
    active = Active(consts, state, xs, found[len(state) :])
    reason = None
    try:
        _transpose_node(chain, active, arrays)
    except Exception as error:  # the rule of a nonlinear operation may raise anything
        reason = error
    if reason is not None or ends_by(chain, active):
        raise NotImplementedError(
            "jax.linear_transpose is asked for a chain that is not linear in the leaves to be transposed, or "
            "that holds an operation without a transpose: give a linear step, or linearize the chain first "
            "(jax.linearize, jax.vjp)."
        ) from reason
    return active


def _stops_gradient(jaxpr: Jaxpr) -> bool:
    """Return True if a `stop_gradient` depends on the inputs: lineax adds a rule that drops such terms."""
    moving = {*jaxpr.invars}
    for eqn in jaxpr.eqns:
        if not any(isinstance(x, Var) and x in moving for x in eqn.invars):
            continue
        inner = jaxprs_in_params(eqn.params)
        if eqn.primitive is p.stop_gradient_p or any(map(_stops_gradient, inner)):
            return True
        moving.update(eqn.outvars)
    return False


def _transpose_node(chain: Chain, active: Active, arrays: Arrays) -> None:
    """Trace the transpose of one node's step."""

    def node(*inputs):
        def step(*picked):
            state, y = chain.step(*map(merge, active.inputs, picked, inputs))
            return pick(active.state, state), pick(active.ys, y)

        picked = tuple(map(pick, active.inputs, inputs))
        if _stops_gradient(jax.make_jaxpr(step)(*picked).jaxpr):
            raise NotImplementedError("stop_gradient of a leaf to be transposed")
        return jax.linear_transpose(step, *picked)(jax.tree.map(zeros_like, step(*picked)))

    jax.make_jaxpr(node)(*_one_node(arrays))


def ends_by(chain: Chain, chosen: Active) -> bool:
    """Return True if the condition of a chain reads some of these leaves."""
    condition = chain.condition
    if condition is None:
        return False
    inputs = chosen.consts[: condition.num_consts] + chosen.state[: condition.num_state]
    (reads,) = inputs_of_outputs(condition.closed.jaxpr)
    return any(pick(reads, inputs))
