"""Support `jax.experimental.checkify` in a chain, and in the sweeps of its gradient.

A chain is checked like a scan: the errors so far are carried with the state, and the schedule still applies.
The sweeps of a gradient are checked operation by operation.
"""

import functools
from collections.abc import Callable

import jax

from ..jax_private import (
    check_hi_primitive,
    check_jaxpr,
    kinds_of_effects,
    replace_check_rule,
    set_check_rule,
    with_placeholders,
)
from .by_platform import both, by_platform_p
from .chain import Arrays, Chain
from .kernel_executor import open_kernels
from .leaves import first_node
from .primitive import LoopPrimitive, Primitive
from .rule import Sweep


def _checked(*args, _prim):
    """Return the errors so far and the outputs, from the earlier errors and the arguments."""
    count = len(args) - len(_prim.in_avals_flat)
    head, leaves = args[:count], args[count:]
    if not isinstance(_prim, Primitive):
        return check_hi_primitive(*args, _prim=_prim)
    *context, error, enabled = head  # JAX passes a context since 0.12
    given = jax.tree.unflatten(_prim.in_tree, leaves)
    if isinstance(_prim, Sweep):
        error, out = _check_chain(tuple(context), enabled, error, _prim.chain, Arrays(*given))
    else:
        run = _prim.smooth if isinstance(_prim, LoopPrimitive) else _prim.expand
        error, out = _check_function(tuple(context), enabled, error, run, *given)
    return error, jax.tree.leaves(out)


def _checked_on_both(*args, **bodies):
    """Return the errors and the outputs of a function with a body for each platform."""
    count = len(args) - len(bodies["jaxpr"].in_avals)
    *context, error, enabled = args[:count]
    run = functools.partial(both, **bodies)
    with open_kernels():
        return _check_function(tuple(context), enabled, error, run, *args[count:])


def _check_function(context: tuple, enabled: frozenset, error, f: Callable, *args) -> tuple:
    """Return the errors and `f(*args)`, checked for the enabled errors in JAX's context."""
    closed, out = jax.make_jaxpr(f, return_shape=True)(*args)
    leaves = jax.tree.leaves(args)
    error, out_leaves = check_jaxpr(context, closed, enabled, error, *leaves)
    return error, jax.tree.unflatten(jax.tree.structure(out), out_leaves)


def _check_chain(context: tuple, enabled: frozenset, error, chain: Chain, arrays: Arrays) -> tuple:
    """Run a chain whose state carries the errors; return the errors, the last state and ys."""

    def node(consts, state, x):
        state, y = chain.step(consts, state, x)
        more = () if chain.condition is None else (chain.continues(consts, state),)
        return state, y, more

    if chain.condition is not None:
        inputs = arrays.consts, arrays.init
        error, _ = _check_function(context, enabled, error, chain.continues, *inputs)
    one_node, n = arrays._replace(xs=first_node(arrays.xs)), len(arrays.init)
    apart = tuple(type(part)() for part in context)
    found = []
    look = lambda *inputs: found.append(_check_function(apart, enabled, error, node, *inputs)[0])
    jax.make_jaxpr(look)(*one_node)
    error = with_placeholders(error, kinds_of_effects(found[-1]))
    flags, tree = jax.tree.flatten(error)
    trees = []

    def step(consts, carried, x):
        before = jax.tree.unflatten(tree, carried[n:])
        inputs = consts, carried[:n], x
        error, (state, y, _) = _check_function(context, enabled, before, node, *inputs)
        flags, after = jax.tree.flatten(error)
        trees.append(after)
        return (*state, *flags), y

    arrays = arrays._replace(init=(*arrays.init, *map(jax.numpy.asarray, flags)))
    carried, ys = Sweep(chain.derive(step, arrays), arrays)(*arrays)
    return jax.tree.unflatten(trees[-1], carried[n:]), (carried[:n], ys)


replace_check_rule(_checked)
set_check_rule(by_platform_p, _checked_on_both)
