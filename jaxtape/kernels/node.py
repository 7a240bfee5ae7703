"""A function of one node, cut into what shared values alone decide and what a path does with them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..jax_private import ClosedJaxpr, Jaxpr, Literal, dce_jaxpr, outputs_of
from ..jax_private import primitives as p

_CALLS = {
    p.jit_p: "jaxpr",
    p.closed_call_p: "call_jaxpr",
    p.remat_p: "jaxpr",
    p.custom_jvp_call_p: "call_jaxpr",
    p.custom_vjp_call_p: "call_jaxpr",
}


class Packing(NamedTuple):
    """Arrays as fewer: those without an axis of paths are joined to a vector for each dtype.

    Attributes:
        types: The types of the arrays.
        paths: The number of paths.
    """

    types: tuple[jax.ShapeDtypeStruct, ...]
    paths: int

    @property
    def groups(self) -> list[list[int]]:
        """The numbers of the arrays in each vector; an array with an axis of paths stays alone."""
        groups: dict = {}
        for i, x in enumerate(self.types):
            groups.setdefault(i if self.paths in x.shape else x.dtype, []).append(i)
        return list(groups.values())

    def pack(self, arrays: Sequence) -> tuple:
        """Return the vectors and the arrays that stay alone."""
        joined = lambda group: jnp.concatenate([arrays[i].reshape(-1) for i in group])
        is_alone = lambda i: self.paths in self.types[i].shape
        return tuple(arrays[g[0]] if is_alone(g[0]) else joined(g) for g in self.groups)

    def unpack(self, packed: Sequence) -> tuple:
        """Return the arrays."""
        found = {}
        for group, array in zip(self.groups, packed, strict=True):
            sizes = [self.types[i].size for i in group]
            alone = self.paths in self.types[group[0]].shape
            parts = [array] if alone else jnp.split(array, np.cumsum(sizes)[:-1].tolist())
            pairs = zip(group, parts, strict=True)
            found |= {i: part.reshape(self.types[i].shape) for i, part in pairs}
        return tuple(found[i] for i in range(len(found)))


class NodeFunction(NamedTuple):
    """A function `f(consts, others)` as `body(shared(consts), others)`.

    The shared values are computed once, outside of the kernel, where every operation of JAX is at hand.

    Attributes:
        shared: The function from the consts to the values that the body reads, packed.
        body: The function from those and the other inputs to the outputs, without calls.
    """

    shared: ClosedJaxpr
    body: Jaxpr

    @classmethod
    def of(cls, function: Callable, paths: int, consts: tuple, *others: tuple) -> "NodeFunction":
        """Trace `function(consts, *others)`; a value as large as the paths stays in the body."""
        flat, count = _flat(jax.make_jaxpr(function)(consts, *others)), len(consts)
        jaxpr, _ = dce_jaxpr(flat.jaxpr, [True] * len(flat.out_avals), True)
        known = {*jaxpr.constvars, *jaxpr.invars[:count]}
        before, after = [], []
        for eqn in jaxpr.eqns:
            outputs: list = eqn.outvars
            is_small = all(paths not in v.aval.shape for v in outputs)
            is_known = is_small and not eqn.effects and known.issuperset(_variables(eqn.invars))
            (before if is_known else after).append(eqn)
            known |= set(eqn.outvars) if is_known else set()
        reads = [v for eqn in after for v in _variables(eqn.invars)] + _variables(jaxpr.outvars)
        reads = [v for v in dict.fromkeys(reads) if v in known]
        names = jaxpr.debug_info.with_unknown_names()
        first = jaxpr.replace(
            invars=jaxpr.invars[:count], eqns=before, outvars=reads, debug_info=names
        )
        then = jaxpr.replace(
            constvars=[], invars=[*reads, *jaxpr.invars[count:]], eqns=after, debug_info=names
        )
        types = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in reads]
        packing = Packing(tuple(types), paths)
        shared = jax.make_jaxpr(
            lambda *consts: packing.pack(jax.core.eval_jaxpr(first, flat.consts, *consts))
        )(*consts)
        body = jax.make_jaxpr(
            lambda packed, *rest: jax.core.eval_jaxpr(then, [], *packing.unpack(packed), *rest)
        )(shared.out_avals, *(v.aval for v in jaxpr.invars[count:]))
        return cls(shared, _flat(body).jaxpr)


def _flat(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a jaxpr with the functions that it calls in their places."""
    types = [v.aval for v in closed.jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _called(closed.jaxpr, closed.consts, args))(*types)


def _variables(inputs) -> list:
    return [v for v in inputs if not isinstance(v, Literal)]


def _called(jaxpr: Jaxpr, consts, args) -> list:
    """Evaluate a jaxpr, with the functions that it calls in their places."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else known[v]
    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        if name := _CALLS.get(eqn.primitive):
            called = eqn.params[name]
            held = () if isinstance(called, Jaxpr) else called.consts
            called = called if isinstance(called, Jaxpr) else called.jaxpr
            out = _called(called, held, inputs)
        else:
            out = outputs_of(jaxpr, eqn, inputs)
        known |= zip(eqn.outvars, out, strict=True)
    return [read(v) for v in jaxpr.outvars]
