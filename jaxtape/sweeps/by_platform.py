"""Choose between a body for CPUs and one for other platforms, and trace only the one that a program runs.

`lax.platform_dependent` traces both, which takes twice the time for the gradient of a chain. Here the body for
CPUs is traced at once, because it gives the types of the outputs, and the other one only when a program is
lowered for another platform.
"""

from collections.abc import Callable

import jax
import jax.core
import jax.numpy as jnp
from jax import lax

from ..jax_private import ClosedJaxpr, Zero, batch_jaxpr, jvp_jaxpr, lowered_primitive
from .chain import with_consts_as_inputs
from .leaves import inexact, instantiated, is_zero, merge, pick
from .vmap import over_axis

CPUS_ARE_OTHERS = False
"""Whether CPUs also run the other body; for tests."""


def by_platform(on_cpus: Callable, elsewhere: Callable, *args):
    """Return `on_cpus(*args)`, or on other platforms `elsewhere(*args)`; both have the same types."""
    leaves, tree = jax.tree.flatten(args)
    closed, shape = jax.make_jaxpr(on_cpus, return_shape=True)(*args)
    jaxpr, count = with_consts_as_inputs(closed.jaxpr), len(closed.consts)

    def other(*given):
        return jax.tree.leaves(elsewhere(*jax.tree.unflatten(tree, given[count:])))

    out = by_platform_p.bind(*closed.consts, *leaves, jaxpr=jaxpr, other=other)
    return jax.tree.unflatten(jax.tree.structure(shape), out)


def _on_cpus(*args, jaxpr: ClosedJaxpr, other: Callable):
    if CPUS_ARE_OTHERS:
        return other(*args)
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


def _elsewhere(*args, jaxpr: ClosedJaxpr, other: Callable):
    del jaxpr
    return other(*args)


def both(*args, jaxpr: ClosedJaxpr, other: Callable):
    """Compute the same by tracing both bodies, for transformations without a rule here."""
    on_cpus = lambda *args: _on_cpus(*args, jaxpr=jaxpr, other=other)
    return lax.platform_dependent(*args, cpu=on_cpus, default=other)


def _batched(axis, args, dims, *, jaxpr: ClosedJaxpr, other: Callable):
    jaxpr, out_dims = batch_jaxpr(jaxpr, axis, dims)
    batched = over_axis(axis)(other, tuple(dims), 0)

    def other_batched(*given):
        # if one output of a kernel has a batch axis, all have
        pairs = zip(batched(*given), out_dims, strict=True)
        return [out[0] if dim is None else jnp.moveaxis(out, 0, dim) for out, dim in pairs]

    return by_platform_p.bind(*args, jaxpr=jaxpr, other=other_batched), out_dims


def _pushed(primals, tangents, *, jaxpr: ClosedJaxpr, other: Callable):
    moving = tuple(not is_zero(dot) for dot in tangents)
    pushed, out_moving = jvp_jaxpr(jaxpr, moving)

    def other_pushed(*given):
        held, dots = given[: len(moving)], given[len(moving) :]
        of_moving = lambda *picked: other(*merge(moving, picked, held))
        out, out_dots = jax.jvp(of_moving, pick(moving, held), dots)
        return [*out, *pick(out_moving, out_dots)]

    dots = pick(moving, tangents)
    found = by_platform_p.bind(*primals, *dots, jaxpr=pushed, other=other_pushed)
    out, dots = found[: len(out_moving)], found[len(out_moving) :]
    zeros = [Zero(aval.to_tangent_aval()) for aval in jaxpr.out_avals]
    return out, list(merge(out_moving, dots, zeros))


def _linearized(is_vjp, nonzeros, *args, **bodies):
    del is_vjp
    of_moving = lambda *picked: both(*merge(nonzeros, picked, args), **bodies)
    out, push = jax.linearize(of_moving, *pick(nonzeros, args))
    residuals, tree = jax.tree.flatten(push)
    out_moving = inexact(out)

    def linearized(residuals, *tangents):
        dots = jax.tree.unflatten(tree, residuals)(*instantiated(pick(nonzeros, tangents)))
        zeros = [Zero(jax.typeof(leaf).to_tangent_aval()) for leaf in out]
        return list(merge(out_moving, pick(out_moving, dots), zeros))

    return out, list(out_moving), residuals, linearized


def _types(*_, jaxpr: ClosedJaxpr, other: Callable):
    del other
    return jaxpr.out_avals, jaxpr.effects


by_platform_p = lowered_primitive(
    "by_platform",
    _types,
    lowered={"cpu": _on_cpus, None: _elsewhere},
    batched=_batched,
    pushed=_pushed,
    linearized=_linearized,
)
