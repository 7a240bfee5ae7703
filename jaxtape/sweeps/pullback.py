"""One node's derivative: the leaves with a tangent, the leaves that the pullback reads, shared cotangents.

A step that multiplies a state of many paths by a shared scalar has a pullback that sums over the
paths at every node, and that sum costs more than the rest of it. Sums commute: let the step take the
scalar as an array of one entry a path, add up the cotangents of that along the chain, and sum over
the paths once.

A leaf that no perturbation reaches has no tangent, as in `lax.scan`. It may pass through operations without a
derivative, such as a `lax.while_loop` or a `pure_callback`, and no state is kept for its own cotangent.
"""

import math
from collections.abc import Callable
from operator import or_
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Literal
from jax.extend.core import primitives as p
from jax.interpreters.partial_eval import dce_jaxpr

from .chain import (
    Active,
    Arrays,
    Chain,
    Mask,
    first_node,
    inexact,
    inputs_of_outputs,
    leaf_bytes,
    merge,
    pick,
    zeros_stack,
)

_ELEMENTWISE = {p.add_p, p.sub_p, p.mul_p, p.div_p, p.max_p, p.min_p, p.pow_p}
_MOST_BROADCAST = 0.25  # the most bytes of cotangents before their sum, relative to the kept states


def pull(chain: Chain, active: Active, inputs: tuple, bars: tuple) -> tuple[tuple, tuple, tuple]:
    """Tape one node and pull cotangents back through it.

    Returns the cotangents of the shared values (sum them over all nodes, then call `gathered`), of the state,
    and of x.
    """

    def taped(values, *picked):
        merged = tuple(map(merge, active.inputs, picked, inputs))
        if chain.broadcasts:
            state, y = broadcast_step(chain, active.consts, values, merged)
        else:
            state, y = chain.step(*merged)
        return pick(active.state, state), pick(active.ys, y)

    values = _values(chain, active, inputs[0])
    _, pullback = jax.vjp(taped, values, *map(pick, active.inputs, inputs))
    values_bar, consts_bar, state_bar, x_bar = pullback(bars)
    return (*consts_bar, *values_bar), state_bar, x_bar


def tied(leaves: tuple, bars: tuple) -> tuple:
    """Return leaves that the compiler cannot use before a cotangent is known, so that steps run from them wait.

    The compiler merges two equal computations, and would keep the results of the first. On CPUs it sees through
    `lax.optimization_barrier`, but not through a number that it does not know to be 0.
    """
    sums = [jnp.sum(bar) for bar in jax.tree.leaves(bars) if bar.size]
    if not sums:
        return leaves
    total = sum((jnp.real(one).astype(jnp.float32) for one in sums), jnp.float32(0.0))
    bits = jax.lax.bitcast_convert_type(total, jnp.int32)
    is_there = (bits * (bits + 1)) % 2 == 0  # always
    axes = _varying(is_there)  # a leaf that is the same on all devices stays so
    return tuple(_where(is_there, leaf) if axes <= _varying(leaf) else leaf for leaf in leaves)


def _varying(leaf) -> frozenset:
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def _where(flag, leaf):
    """Return a leaf if the flag is set, or else zeros."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _where(flag, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    return jnp.where(flag, leaf, jnp.zeros_like(leaf))


def nothing_shared(chain: Chain, active: Active, arrays: Arrays) -> tuple:
    """Return the cotangents of the shared values before the first node is pulled back."""
    consts = pick(active.consts, arrays.consts)
    return tuple(map(jnp.zeros_like, (*consts, *_values(chain, active, arrays.consts))))


def gathered(chain: Chain, active: Active, arrays: Arrays, shared_bar: tuple) -> tuple:
    """Return the cotangents of the active consts, from the sums over all nodes."""
    consts = pick(active.consts, arrays.consts)
    consts_bar, values_bar = shared_bar[: len(consts)], shared_bar[len(consts) :]
    if not values_bar:
        return consts_bar

    def values(*picked):
        return _values(chain, active, merge(active.consts, picked, arrays.consts))

    _, pullback = jax.vjp(values, *consts)
    return tuple(map(jnp.add, consts_bar, pullback(values_bar)))


def fewest_to_broadcast(chain: Chain, active: Active, arrays: Arrays) -> int | float:
    """Return the least number of kept states beside which broadcast shared values are small."""
    values = lambda consts: broadcast_values(chain, active.consts, consts)  # noqa: E731
    size = leaf_bytes(jax.eval_shape(values, arrays.consts))
    of_a_state = _MOST_BROADCAST * chain.slot_bytes(arrays)
    return math.ceil(size / of_a_state) if size and of_a_state else math.inf


def _values(chain: Chain, active: Active, consts: tuple) -> tuple:
    return broadcast_values(chain, active.consts, consts) if chain.broadcasts else ()


def needed_state(chain: Chain, active: Active, arrays: Arrays) -> Mask:
    """Return the leaves that the pullback of a node reads, or that recomputing such a leaf reads.

    It is the smallest set closed under both, found by dead-code elimination on the jaxpr of the pullback and,
    until nothing is added, on the jaxpr of the step. A leaf that the step passes on unchanged need not be kept:
    it is the first state's leaf.
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
        return pull(chain, active, inputs, bars)

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


class _Value(NamedTuple):
    """A value inside a step.

    `own`: it depends on the state or x. `varies`: of a shared one, the size of the largest argument
    with a cotangent that it depends on, 0 if there is none.
    """

    value: Any
    own: bool
    varies: int


def broadcast_values(chain: Chain, varies: Mask, consts: tuple) -> tuple:
    """Return the shared values that meet an array, each as large as that, in the order in which the step asks.

    `varies`: which of `consts` do; the others are left as they are.
    """
    found = []

    def take(value, shape):
        found.append(jnp.broadcast_to(value, shape))
        return found[-1]

    _run(chain, varies, consts, None, take)
    return tuple(found)


def broadcast_step(chain: Chain, varies: Mask, values: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    """Run the step on `inputs` (consts, state, x), with `values` where it asks for them: next state, y."""
    left = iter(values)
    out = _run(chain, varies, inputs[0], inputs[1:], lambda value, shape: next(left))
    return out[: chain.num_state], out[chain.num_state :]


def _run(chain: Chain, varies: Mask, consts: tuple, own: tuple | None, take: Callable):
    """Evaluate the step; without `own` (state and x), only its shared part, and the outputs are None."""
    pairs, count = zip(consts, varies, strict=True), len(chain.jaxpr.invars) - len(consts)
    shared = [_Value(leaf, False, 0) for leaf in chain.captured.values]
    shared += [_Value(leaf, False, leaf.size if varies else 0) for leaf, varies in pairs]
    leaves = [None] * count if own is None else [leaf for part in own for leaf in part]
    args = [*shared, *(_Value(leaf, True, 0) for leaf in leaves)]
    out = _evaluate(chain.jaxpr, args, take, own is None)
    return tuple(value.value for value in out)


def _evaluate(jaxpr, args: list[_Value], take: Callable, shared_only: bool) -> list[_Value]:
    """Evaluate a jaxpr on values, its constants first among `args`."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))
    broadcast = {}

    def read(v) -> _Value:
        return _Value(v.val, False, 0) if isinstance(v, Literal) else known[v]

    def grown(v, aval) -> _Value:
        """Return a shared value as large as the array it meets, if it or its sources are smaller."""
        value = read(v)
        if value.own or not 0 < min(value.varies, v.aval.size) < aval.size:
            return value
        if (v, aval.shape) not in broadcast:
            broadcast[v, aval.shape] = _Value(take(value.value, aval.shape), True, 0)
        return broadcast[v, aval.shape]

    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        own = any(value.own for value in inputs) or bool(eqn.effects)
        if own and _is_elementwise(eqn):
            inputs = [grown(v, eqn.outvars[0].aval) for v in eqn.invars]
        if eqn.primitive is p.jit_p and own:
            called = eqn.params["jaxpr"]
            held = [_Value(c, False, 0) for c in called.consts]
            out = _evaluate(called.jaxpr, [*held, *inputs], take, shared_only)
        else:
            varies = 0 if own else max((value.varies for value in inputs), default=0)
            skipped = own and shared_only
            values = [None] * len(eqn.outvars) if skipped else _bound(jaxpr, eqn, inputs)
            out = [_Value(value, own, varies) for value in values]
        known |= zip(eqn.outvars, out, strict=True)
    return [read(v) for v in jaxpr.outvars]


def _is_elementwise(eqn) -> bool:
    """Return True if an equation accepts larger inputs than its own.

    It does not in a mesh other than the caller's, as within `jax.sharding.auto_axes`.
    """
    if eqn.primitive not in _ELEMENTWISE:
        return False
    return eqn.outvars[0].aval.sharding.mesh == jax.sharding.get_abstract_mesh()


def _bound(jaxpr, eqn, inputs: list[_Value]) -> list:
    """Return the outputs of one equation of a jaxpr, evaluated as a jaxpr of its own.

    An elementwise one may have inputs larger than in the jaxpr, and is bound as it is.
    """
    if _is_elementwise(eqn):
        return [eqn.primitive.bind(*(value.value for value in inputs), **eqn.params)]
    pairs = zip(eqn.invars, inputs, strict=True)
    read = {v: value.value for v, value in pairs if not isinstance(v, Literal)}
    names = jaxpr.debug_info.with_unknown_names()
    alone = jaxpr.replace(
        constvars=list(read), invars=[], outvars=list(eqn.outvars), eqns=[eqn], debug_info=names
    )
    return jax.core.eval_jaxpr(alone, list(read.values()))


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


def active_leaves(chain: Chain, arrays: Arrays, moving: tuple[Mask, ...]) -> Active:
    """Return the leaves that a perturbation of some of the consts, the first state and xs reaches.

    The smallest set that holds those and is closed under a node's step.
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
        step = lambda *picked: chain.step(*map(merge, active.inputs, picked, inputs))  # noqa: E731
        picked = tuple(map(pick, active.inputs, inputs))
        found.append(moving_jvp(step, picked, picked)[-1])

    jax.make_jaxpr(node)(*one_node)
    return found[-1]


def linear_leaves(chain: Chain, arrays: Arrays, linear: tuple[Mask, ...]) -> Active:
    """Return the leaves that depend on some of the consts, the first state and xs; the chain is linear in them.

    Raises:
        NotImplementedError: If JAX does not transpose the step as a linear function of them, or the end of the
            chain depends on them.
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
    except Exception as error:  # whatever the rule of the first nonlinear operation raises
        reason = error
    if reason is not None or ends_by(chain, active):
        raise NotImplementedError(
            "jax.linear_transpose is asked for a chain that is not linear in the leaves to be transposed, or "
            "that holds an operation without a transpose: give a linear step, or linearize the chain first "
            "(jax.linearize, jax.vjp)."
        ) from reason
    return active


def _transpose_node(chain: Chain, active: Active, arrays: Arrays) -> None:
    """Trace the transpose of one node's step."""

    def node(*inputs):
        def step(*picked):
            state, y = chain.step(*map(merge, active.inputs, picked, inputs))
            return pick(active.state, state), pick(active.ys, y)

        picked = tuple(map(pick, active.inputs, inputs))
        return jax.linear_transpose(step, *picked)(jax.tree.map(zeros_like, step(*picked)))

    jax.make_jaxpr(node)(*_one_node(arrays))


def ends_by(chain: Chain, chosen: Active) -> bool:
    """Return True if the condition of a chain reads some of these leaves."""
    condition = chain.condition
    if condition is None:
        return False
    inputs = chosen.consts[: condition.num_consts] + chosen.state[: condition.num_state]
    (reads,) = inputs_of_outputs(condition.jaxpr)
    return any(pick(reads, inputs))
