"""A pass over a whole program that runs a chain once for its values and its tangents.

Forward mode makes two primitives of a chain, `Sweep` and `Tangent`, because `jax.linearize` runs the first
alone. In a program that is differentiated already, one run of the dual chain has the results of both, and reads
the xs once.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from ..jax_private import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    counts_of_scan,
    dce_jaxpr,
    hi_primitive_of,
    outputs_of,
)
from ..jax_private import primitives as p
from .chain import Chain
from .dual import PLACES, along_directions, dual_chain
from .rule import Sweep, Tangent, TangentsOfOne, run


def joined(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a program in which chains run once for their values and their tangents."""
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
    if not _has_pairs(jaxpr):
        return closed
    types = [v.aval for v in jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _outputs(jaxpr, closed.consts, args))(*types)


def _pairs(jaxpr: Jaxpr) -> dict[int, int]:
    """Return the numbers of equations that are tangents, with those of the runs of the same chains."""
    made = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    runs, found = {}, {}
    for i, eqn in enumerate(jaxpr.eqns):
        prim = hi_primitive_of(eqn)
        if isinstance(prim, Sweep) and prim.chain.condition is None:
            runs[_key(prim.chain, eqn.invars)] = i
        elif isinstance(prim, Tangent):
            chain = prim.one if isinstance(prim, TangentsOfOne) else prim.chain
            first = runs.pop(_key(chain, _origins(prim, eqn, made)), None)
            if first is not None and _may_move(jaxpr, first, i):
                found[i] = first
    return found


def _key(chain: Chain, inputs: Sequence) -> tuple:
    """Return a key of a run of a chain at some inputs; a literal equals no other."""
    return chain, *map(id, inputs)


def _origins(prim: Tangent, eqn: JaxprEqn, made: dict) -> list:
    """Return the arrays of the chain itself, which a batch of equal chains has broadcast."""
    count = len(jax.tree.leaves(prim.in_avals[0]))
    found = eqn.invars[:count]
    if not isinstance(prim, TangentsOfOne):
        return found
    parts = zip(prim.spread.inputs, PLACES, strict=True)
    places = [place if has else None for part, place in parts for has in part]
    return [_before_batch(v, place, made) for v, place in zip(found, places, strict=True)]


def _before_batch(v: Any, place: int | None, made: dict) -> Any:
    """Return the variable that a batch has broadcast along an axis to this one; None if there is none."""
    shape, axes = v.aval.shape, [*range(v.aval.ndim)]
    rest = [axis for axis in axes if axis != place]
    while axes != rest:
        eqn = None if isinstance(v, Literal) else made.get(v)
        if eqn is None or eqn.primitive is not p.broadcast_in_dim_p:
            return None
        v, axes = eqn.invars[0], [axes[axis] for axis in eqn.params["broadcast_dimensions"]]
        pairs = zip(axes, v.aval.shape, strict=True)
        if any(size != shape[axis] for axis, size in pairs if axis != place):
            return None
    return v


def _may_move(jaxpr: Jaxpr, first: int, to: int) -> bool:
    """Return True if no equation between two reads the results of the first."""
    own = set(jaxpr.eqns[first].outvars)
    return all(
        own.isdisjoint(v for v in eqn.invars if not isinstance(v, Literal))
        for eqn in jaxpr.eqns[first + 1 : to + 1]
    )


def _inner(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence] | None:
    """Return the jaxpr of a call or a loop, and its constants; None for another equation."""
    if eqn.primitive is p.remat_p and not eqn.params["differentiated"]:
        return eqn.params["jaxpr"], ()
    if eqn.primitive in (p.scan_p, p.jit_p):
        closed = eqn.params["jaxpr"]
        return closed.jaxpr, closed.consts
    return None


def _has_pairs(jaxpr: Jaxpr) -> bool:
    inner = filter(None, map(_inner, jaxpr.eqns))
    return bool(_pairs(jaxpr)) or any(_has_pairs(each) for each, _ in inner)


def _outputs(jaxpr: Jaxpr, consts: Sequence, args: Sequence) -> list:
    """Evaluate a jaxpr with the runs of its chains joined."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else known[v]
    pairs = _pairs(jaxpr)
    for i, eqn in enumerate(jaxpr.eqns):
        inputs, inner = [*map(read, eqn.invars)], _inner(eqn)
        if i in pairs.values():
            continue
        if i in pairs:
            values, out = _run_once(hi_primitive_of(eqn), inputs)
            known |= zip(jaxpr.eqns[pairs[i]].outvars, values, strict=True)
        elif inner is None or not _has_pairs(inner[0]):
            out = outputs_of(jaxpr, eqn, inputs)
        elif eqn.primitive is p.scan_p:
            out = _scanned(eqn, *inner, inputs)
        else:
            out = _outputs(*inner, inputs)
        known |= zip(eqn.outvars, out, strict=True)
    return [read(v) for v in jaxpr.outvars]


def _scanned(eqn: JaxprEqn, jaxpr: Jaxpr, consts: Sequence, inputs: list) -> list:
    """Return the outputs of a loop."""
    before, count = counts_of_scan(eqn.params)
    shared, init, xs = inputs[:before], inputs[before : before + count], inputs[before + count :]

    def body(carry: list, x: list):
        out = _outputs(jaxpr, consts, [*shared, *carry, *x])
        return out[:count], out[count:]

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(body, init, xs, **options)
    return [*carry, *ys]


def _run_once(prim: Tangent, inputs: list) -> tuple[list, list]:
    """Return the outputs of a chain and their tangents."""
    arrays, dots = jax.tree.unflatten(jax.tree.structure(prim.in_avals), inputs)
    if isinstance(prim, TangentsOfOne):
        of_batch = prim.one, prim.active, prim.axis, prim.spread, arrays, dots
        values, tangents = along_directions(*of_batch, with_values=True, run=run)
        return jax.tree.leaves(values), jax.tree.leaves(tangents)
    chain = prim.chain
    state, ys = run(*dual_chain(chain, prim.active, arrays, dots, with_ys=True))
    count, of_ys = chain.num_state, len(chain.y_avals)
    return [*state[:count], *ys[:of_ys]], [*state[count:], *ys[of_ys:]]
