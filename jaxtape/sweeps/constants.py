"""A pass over a whole program that computes small values without arguments when the program is traced.

XLA does so, too, but not behind an optimization barrier, which `jax.checkpoint` and samplers insert, and not
for arrays that `iota` starts. On a TPU such values, such as time steps and keys, take many kernels.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..jax_private import ClosedJaxpr, JaxprEqn, Literal, outputs_of
from ..kernels.node import flat, variables
from ..kernels.walk import has_rule

_MOST = 4096  # entries of a value
_OTHERS = {"optimization_barrier", "random_seed"}


def folded(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a program for a TPU in which small values without arguments are constants."""
    closed = flat(closed, "tpu")
    jaxpr = closed.jaxpr
    given = zip(jaxpr.constvars, closed.consts, strict=True)
    known = {v: x for v, x in given if _is_at_hand(x)}
    eqns, rest, fixed = [], [], {*known}
    for eqn in jaxpr.eqns:
        is_fixed = _is_small(eqn) and fixed.issuperset(variables(eqn.invars))
        (eqns if is_fixed else rest).append(eqn)
        fixed.update(eqn.outvars if is_fixed else ())
    if not eqns:
        return closed
    read = {v for eqn in rest for v in variables(eqn.invars)} | {*variables(jaxpr.outvars)}
    wanted = [v for eqn in eqns for v in eqn.outvars if v in read]

    def constants() -> list:
        found = _evaluated(closed, eqns, known)
        return [found[v] for v in wanted]

    with jax.ensure_compile_time_eval():
        computed = jax.jit(constants)()

    def run(*args) -> list:
        held = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
        held |= zip(wanted, map(_constant, computed), strict=True)
        found = _evaluated(closed, rest, held)
        return [v.val if isinstance(v, Literal) else found[v] for v in jaxpr.outvars]

    return jax.make_jaxpr(run)(*[v.aval for v in jaxpr.invars])


def _is_at_hand(x: Any) -> bool:
    """Return True for the value of a constant that this process has."""
    return not isinstance(x, Tracer) and getattr(x, "is_fully_addressable", True)


def _constant(x: jax.Array) -> jax.Array:
    """Return a computed array; one of equal numbers is broadcast, so that kernels need not read it."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) or x.size < 2:
        return x
    numbers = np.asarray(x)
    first = numbers.flat[0]
    return jnp.full(x.shape, first, x.dtype) if have_bits_of(numbers, first) else x


def have_bits_of(numbers: np.ndarray, others: np.ndarray | np.generic) -> bool:
    """Return True if numbers have the bits of others, to which these are broadcast."""
    bits = f"u{numbers.dtype.itemsize}"
    return bool(np.all(numbers.view(bits) == others.view(bits)))


def _is_small(eqn: JaxprEqn) -> bool:
    """Return True for an operation of a kernel, or a barrier, whose results are small."""
    primitive = eqn.primitive
    if eqn.effects or not (primitive.name in _OTHERS or has_rule("tpu", primitive)):
        return False
    avals: list[Any] = [v.aval for v in eqn.outvars]
    return sum(aval.size for aval in avals) <= _MOST


def _evaluated(closed: ClosedJaxpr, eqns: Sequence[JaxprEqn], known: dict) -> dict:
    """Return the values of variables, with those that equations compute."""
    found = dict(known)
    for eqn in eqns:
        inputs = [v.val if isinstance(v, Literal) else found[v] for v in eqn.invars]
        found |= zip(eqn.outvars, outputs_of(closed.jaxpr, eqn, inputs), strict=True)
    return found
