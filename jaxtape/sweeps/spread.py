"""A step whose shared values come as large as the arrays that they meet.

A step that multiplies a state of many paths by a shared scalar has a pullback that sums over the
paths at every node, and that sum costs more than the rest of it. Sums commute: let the step take the
scalar as an array of one entry a path, add up the cotangents of that along the chain, and sum over
the paths once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.core
import jax.numpy as jnp
from jax.extend.core import Literal
from jax.extend.core import primitives as p

from .chain import Chain
from .masks import Mask

_ELEMENTWISE = {p.add_p, p.sub_p, p.mul_p, p.div_p, p.max_p, p.min_p, p.pow_p}


class _Value(NamedTuple):
    """A value inside a step.

    `own`: it depends on the state or x. `varies`: of a shared one, the size of the largest argument
    with a cotangent that it depends on, 0 if there is none.
    """

    value: Any
    own: bool
    varies: int


def spread_values(chain: Chain, varies: Mask, consts: tuple) -> tuple:
    """The shared values that meet an array, each as large as that, in the order in which the step asks.

    `varies`: which of `consts` do; the others are left as they are.
    """
    found = []

    def take(value, shape):
        found.append(jnp.broadcast_to(value, shape))
        return found[-1]

    _run(chain, varies, consts, None, take)
    return tuple(found)


def spread_step(chain: Chain, varies: Mask, values: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    """The step on `inputs` (consts, state, x), with `values` where it asks for them: next state, y."""
    left = iter(values)
    out = _run(chain, varies, inputs[0], inputs[1:], lambda value, shape: next(left))
    return out[: chain.num_state], out[chain.num_state :]


def _run(chain: Chain, varies: Mask, consts: tuple, own: tuple | None, take: Callable):
    """Evaluate the step; without `own` (state and x), only what is shared, and the outputs are None."""
    closed, rest = chain.closed_over(consts)
    mask = varies if chain.captured is None else (*(False for _ in closed), *varies)
    pairs = zip((*closed, *rest), mask, strict=True)
    shared = [_Value(leaf, False, leaf.size if varies else 0) for leaf, varies in pairs]
    count = len(chain.jaxpr.invars) - len(rest)
    leaves = [None] * count if own is None else [leaf for part in own for leaf in part]
    args = [*shared, *(_Value(leaf, True, 0) for leaf in leaves)]
    out = _evaluate(chain.jaxpr, args, take, own is None)
    return tuple(value.value for value in out)


def _evaluate(jaxpr, args: list[_Value], take: Callable, shared_only: bool) -> list[_Value]:
    """A jaxpr on values, its constants first among `args`."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))
    spread = {}

    def read(v) -> _Value:
        return _Value(v.val, False, 0) if isinstance(v, Literal) else known[v]

    def grown(v, aval) -> _Value:
        """A shared value as large as the array it meets, if it is smaller or came of smaller ones."""
        value = read(v)
        if value.own or not 0 < min(value.varies, v.aval.size) < aval.size:
            return value
        if (v, aval.shape) not in spread:
            spread[v, aval.shape] = _Value(take(value.value, aval.shape), True, 0)
        return spread[v, aval.shape]

    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        own = any(value.own for value in inputs) or bool(eqn.effects)
        if own and eqn.primitive in _ELEMENTWISE:
            inputs = [grown(v, eqn.outvars[0].aval) for v in eqn.invars]
        if eqn.primitive is p.jit_p and own:
            inner = eqn.params["jaxpr"]
            held = [_Value(c, False, 0) for c in inner.consts]
            out = _evaluate(inner.jaxpr, [*held, *inputs], take, shared_only)
        else:
            varies = 0 if own else max((value.varies for value in inputs), default=0)
            skipped = own and shared_only
            values = [None] * len(eqn.outvars) if skipped else _bound(jaxpr, eqn, inputs)
            out = [_Value(value, own, varies) for value in values]
        known |= zip(eqn.outvars, out, strict=True)
    return [read(v) for v in jaxpr.outvars]


def _bound(jaxpr, eqn, inputs: list[_Value]) -> list:
    """The outputs of one equation of a jaxpr, as those of a jaxpr of its own.

    An elementwise one may have inputs larger than the jaxpr says, and is bound as it is.
    """
    if eqn.primitive in _ELEMENTWISE:
        return [eqn.primitive.bind(*(value.value for value in inputs), **eqn.params)]
    read = {
        v: value.value
        for v, value in zip(eqn.invars, inputs, strict=True)
        if not isinstance(v, Literal)
    }
    names = jaxpr.debug_info.with_unknown_names()
    alone = jaxpr.replace(
        constvars=list(read), invars=[], outvars=list(eqn.outvars), eqns=[eqn], debug_info=names
    )
    return jax.core.eval_jaxpr(alone, list(read.values()))
