"""A pass over a whole program that takes a slice of an array before the array is moved.

XLA does so for slices along the first axis alone. Else a TPU, which holds the last two axes of an array in
tiles, copies all entries to slice a few.
"""

import math
from typing import Any

import jax
from jax import lax

from ..jax_private import ClosedJaxpr, JaxprEqn, Literal, Var, outputs_of
from ..jax_private import primitives as p

_MOVES = p.reshape_p, p.squeeze_p, p.transpose_p
Ranges = list[tuple[int, int]]


def with_early_slices(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a program whose slices of arrays that are only moved are slices of the arrays before."""
    jaxpr = closed.jaxpr
    made = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars if eqn.primitive in _MOVES}

    def run(*args: jax.Array) -> list:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
        read = lambda v: v.val if isinstance(v, Literal) else known[v]
        for eqn in jaxpr.eqns:
            if eqn.primitive is p.slice_p and not eqn.params["strides"]:
                out = [_sliced(eqn, made, read)]
            else:
                out = outputs_of(jaxpr, eqn, [*map(read, eqn.invars)])
            known |= zip(eqn.outvars, out, strict=True)
        return [*map(read, jaxpr.outvars)]

    return jax.make_jaxpr(run)(*[v.aval for v in jaxpr.invars])


def _sliced(eqn: JaxprEqn, made: dict[Var, JaxprEqn], read: Any) -> jax.Array:
    """Return a slice, moved as the array is from the first one of which it is a slice."""
    v: Any = eqn.invars[0]
    moves = []
    ranges = [*zip(eqn.params["start_indices"], eqn.params["limit_indices"], strict=True)]
    while (move := made.get(v)) and (before := _before(move, ranges)) is not None:
        moves.append((move, ranges))
        v, ranges = move.invars[0], before
    found = lax.slice(read(v), *zip(*ranges, strict=True))
    for move, ranges in reversed(moves):
        if move.primitive is p.transpose_p:
            found = lax.transpose(found, move.params["permutation"])
        else:
            found = lax.reshape(found, [limit - start for start, limit in ranges])
    return found


def _before(move: JaxprEqn, ranges: Ranges) -> Ranges | None:
    """Return the ranges of an array before a move that have the entries of `ranges` after it.

    It is None if there are none.
    """
    avals: list[Any] = [move.invars[0].aval, move.outvars[0].aval]
    before, after = (aval.shape for aval in avals)
    found = [(0, size) for size in before]
    if move.primitive is p.transpose_p:
        for axis, part in zip(move.params["permutation"], ranges, strict=True):
            found[axis] = part
        return found
    cut = [i for i, part in enumerate(ranges) if part != (0, after[i])]
    if len(cut) != 1:
        return None
    (axis,) = cut
    ends = [end * math.prod(after[axis + 1 :]) for end in ranges[axis]]
    for i in range(len(before)):
        size = math.prod(before[i + 1 :])
        if math.prod(before[:i]) == math.prod(after[:axis]) and not any(x % size for x in ends):
            found[i] = ends[0] // size, ends[1] // size
            return found
    return None
