"""One node's pullback, and the cotangents of the values that all nodes share.

If a step multiplies a state of many paths by a shared scalar, its pullback sums over the paths at every node,
and that sum costs more than the rest. Sums commute: let the step take the scalar as an array with one entry per
path, add up the cotangents of that array along the chain, and sum over the paths once.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..jax_private import Literal, outputs_of
from ..jax_private import primitives as p
from .chain import Active, Arrays, Chain
from .leaves import Mask, leaf_bytes, merge, pick
from .state_store import slot_bytes

_ELEMENTWISE = {p.add_p, p.sub_p, p.mul_p, p.div_p, p.max_p, p.min_p, p.pow_p}
_MOST_BROADCAST = 0.25  # maximum bytes of cotangents before their sum, relative to the kept states


@dataclasses.dataclass(frozen=True, eq=False)
class SharedValues:
    """The values that all nodes of a chain share.

    A shared cotangent has entries for the active consts and then, if `chain.broadcasts`, for the lifted values.
    It is summed over the nodes, starting at `init()`, and `finish` turns the sum into the cotangents of the
    active consts.

    Attributes:
        chain: The chain.
        active: The active leaves.
        consts: The values.
        small: The values that nodes broadcast, each with its broadcast shape, computed once for all nodes.
    """

    chain: Chain
    active: Active
    consts: tuple
    small: list

    @classmethod
    def of(cls, chain: Chain, active: Active, consts: tuple) -> "SharedValues":
        """Return the shared values of a chain."""
        lifts = chain.broadcasts
        return cls(chain, active, consts, _to_lift(chain, active.consts, consts) if lifts else [])

    def pull(self, state: tuple, x: tuple, bars: tuple) -> tuple[tuple, tuple, tuple]:
        """Tape one node and pull the cotangents of the next state and of y back through it.

        Returns the shared cotangent of this node, and those of the state and of x.
        """
        chain, active, inputs = self.chain, self.active, (self.consts, state, x)

        def taped(values, *picked):
            merged = tuple(map(merge, active.inputs, picked, inputs))
            if chain.broadcasts:
                state, y = step_with(chain, active.consts, values, merged)
            else:
                state, y = chain.step(*merged)
            return pick(active.state, state), pick(active.ys, y)

        _, pullback = jax.vjp(taped, _broadcast(self.small), *map(pick, active.inputs, inputs))
        values_bar, consts_bar, state_bar, x_bar = pullback(bars)
        return (*consts_bar, *values_bar), state_bar, x_bar

    def init(self) -> tuple:
        """Return the shared cotangent before the first node is pulled back."""
        consts = pick(self.active.consts, self.consts)
        return tuple(map(jnp.zeros_like, (*consts, *_broadcast(self.small))))

    def finish(self, shared_bar: tuple) -> tuple:
        """Return the cotangents of the active consts, from the sum over all nodes."""
        consts = pick(self.active.consts, self.consts)
        consts_bar, values_bar = shared_bar[: len(consts)], shared_bar[len(consts) :]
        if not values_bar:
            return consts_bar
        varies, whole = self.active.consts, self.consts
        lift = lambda *picked: lifted_values(self.chain, varies, merge(varies, picked, whole))
        _, pullback = jax.vjp(lift, *consts)
        return tuple(map(jnp.add, consts_bar, pullback(values_bar)))


def fewest_to_broadcast(chain: Chain, active: Active, arrays: Arrays) -> int | float:
    """Return the smallest number of kept states beside which the lifted shared values are small."""
    lift = lambda consts: lifted_values(chain, active.consts, consts)
    size = leaf_bytes(jax.eval_shape(lift, arrays.consts))
    of_a_state = _MOST_BROADCAST * slot_bytes(chain, arrays.init)
    return math.ceil(size / of_a_state) if size and of_a_state else math.inf


def tied(leaves: tuple, bars: tuple) -> tuple:
    """Return leaves that the compiler cannot use before a cotangent is known, so steps from them must wait.

    Otherwise the compiler would merge equal computations, and keep the results of the first. On CPUs it sees
    through `lax.optimization_barrier`, but not through a number that it does not know to be 0.
    """
    sums = [jnp.sum(bar) for bar in jax.tree.leaves(bars) if bar.size]
    if not sums:
        return leaves
    total = sum((jnp.real(one).astype(jnp.float32) for one in sums), jnp.float32(0.0))
    bits = jax.lax.bitcast_convert_type(total, jnp.int32)
    is_there = (bits * (bits + 1)) % 2 == 0  # always
    axes = _varying(is_there)  # a leaf replicated over devices stays so
    return tuple(_where(is_there, leaf) if axes <= _varying(leaf) else leaf for leaf in leaves)


def _varying(leaf) -> frozenset:
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def _where(flag, leaf):
    """Return a leaf if the flag is set, or else zeros."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _where(flag, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    return jnp.where(flag, leaf, jnp.zeros_like(leaf))


class _Value(NamedTuple):
    """A value inside a step.

    `own` says whether it depends on the state or x. `varies`, of a shared value, is the size of the largest
    argument with a cotangent that it depends on, or 0.
    """

    value: Any
    own: bool
    varies: int


def lifted_values(chain: Chain, varies: Mask, consts: tuple) -> tuple:
    """Return the shared values that combine with an array, broadcast to its shape, in the step's order.

    `varies` is the mask of the `consts` that have a cotangent; the others are unchanged.
    """
    return _broadcast(_to_lift(chain, varies, consts))


def _to_lift(chain: Chain, varies: Mask, consts: tuple) -> list:
    """Return those values before broadcasting, each with the shape of the array that it combines with."""
    found = []

    def take(value, shape):
        found.append((value, shape))
        return jnp.broadcast_to(value, shape)

    _run(chain, varies, consts, None, take)
    return found


def _broadcast(small: list) -> tuple:
    return tuple(jnp.broadcast_to(value, shape) for value, shape in small)


def step_with(chain: Chain, varies: Mask, values: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    """Run the step on `inputs` (consts, state, x), with the lifted `values` in their places."""
    left = iter(values)
    out = _run(chain, varies, inputs[0], inputs[1:], lambda value, shape: next(left))
    return out[: chain.num_state], out[chain.num_state :]


def _run(chain: Chain, varies: Mask, consts: tuple, own: tuple | None, take: Callable):
    """Evaluate the step or, without `own` (state and x), only its shared part, with None as outputs."""
    pairs, count = zip(consts, varies, strict=True), len(chain.jaxpr.invars) - len(consts)
    shared = [_Value(leaf, False, 0) for leaf in chain.closed.consts]
    shared += [_Value(leaf, False, leaf.size if varies else 0) for leaf, varies in pairs]
    leaves = [None] * count if own is None else [leaf for part in own for leaf in part]
    args = [*shared, *(_Value(leaf, True, 0) for leaf in leaves)]
    out = _evaluate(chain.jaxpr, args, take, own is None)
    return tuple(value.value for value in out)


def _evaluate(jaxpr, args: list[_Value], take: Callable, shared_only: bool) -> list[_Value]:
    """Evaluate a jaxpr on `args`, its constants first."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))
    broadcast = {}

    def read(v) -> _Value:
        return _Value(v.val, False, 0) if isinstance(v, Literal) else known[v]

    def grown(v, aval) -> _Value:
        """Broadcast a shared value to the array it combines with, if it or its sources are smaller."""
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
    """Return True if an equation accepts inputs larger than in its jaxpr.

    It does not on a mesh other than the caller's, as within `jax.sharding.auto_axes`. Meshes whose axes are all
    automatic count as equal: arrays on such a mesh can be used outside of it.
    """
    if eqn.primitive not in _ELEMENTWISE:
        return False
    mesh, callers = eqn.outvars[0].aval.sharding.mesh, jax.sharding.get_abstract_mesh()
    return mesh == callers or (_is_automatic(mesh) and _is_automatic(callers))


def _is_automatic(mesh) -> bool:
    return all(kind == jax.sharding.AxisType.Auto for kind in mesh.axis_types)


def _bound(jaxpr, eqn, inputs: list[_Value]) -> list:
    """Return the outputs of one equation of a jaxpr.

    An elementwise one may have inputs larger than in the jaxpr, and is bound directly.
    """
    if _is_elementwise(eqn):
        return [eqn.primitive.bind(*(value.value for value in inputs), **eqn.params)]
    return outputs_of(jaxpr, eqn, [value.value for value in inputs])
