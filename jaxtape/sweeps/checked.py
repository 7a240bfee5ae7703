"""Support `jax.experimental.checkify` in a chain, and in the sweeps of its gradient.

A chain is checked as a scan is: the errors so far are carried with the state, and the schedule holds. The
sweeps of a gradient are checked operation by operation.
"""

import dataclasses
from collections.abc import Callable

import jax
from jax._src import checkify  # there is no public way to add a rule
from jax._src.hijax import call_hi_primitive_p

from .chain import Arrays, Chain, first_node
from .primitive import LoopPrimitive, Primitive
from .rule import Sweep

_check = checkify.error_checks[call_hi_primitive_p]


def _checked(*args, _prim):
    """Return the errors found by now and the outputs, from the errors before and the arguments."""
    count = len(args) - len(_prim.in_avals_flat)
    head, leaves = args[:count], args[count:]
    if not isinstance(_prim, Primitive):
        return _check(*args, _prim=_prim)
    *context, error, enabled = head  # JAX has a context since 0.12
    given = jax.tree.unflatten(_prim.in_tree, leaves)
    check = _Check(tuple(context), enabled)
    if isinstance(_prim, Sweep):
        error, out = check.chain(error, _prim.chain, Arrays(*given))
    else:
        run = _prim.smooth if isinstance(_prim, LoopPrimitive) else _prim.expand
        error, out = check.function(error, run, *given)
    return error, jax.tree.leaves(out)


@dataclasses.dataclass(frozen=True)
class _Check:
    """Checks of some kinds, in JAX's context."""

    context: tuple
    enabled: frozenset

    def function(self, error, f: Callable, *args) -> tuple:
        """Return the errors and `f(*args)`."""
        closed, out = jax.make_jaxpr(f, return_shape=True)(*args)
        leaves = jax.tree.leaves(args)
        error, out_leaves = checkify.checkify_jaxpr(
            *self.context, closed, self.enabled, error, *leaves
        )
        return error, jax.tree.unflatten(jax.tree.structure(out), out_leaves)

    def chain(self, error, chain: Chain, arrays: Arrays) -> tuple:
        """Return the errors, and the last state and ys of a chain whose state carries the errors."""

        def node(consts, state, x):
            state, y = chain.step(consts, state, x)
            more = () if chain.condition is None else (chain.goes_on(consts, state),)
            return state, y, more

        if chain.condition is not None:
            error, _ = self.function(error, chain.goes_on, arrays.consts, arrays.init)
        one_node, n = arrays._replace(xs=first_node(arrays.xs)), len(arrays.init)
        apart = dataclasses.replace(self, context=tuple(type(part)() for part in self.context))
        found = []
        look = lambda *inputs: found.append(apart.function(error, node, *inputs)[0])  # noqa: E731
        jax.make_jaxpr(look)(*one_node)
        error = error._add_placeholder_effects(found[-1]._pred.keys())
        flags, tree = jax.tree.flatten(error)
        trees = []

        def step(consts, carried, x):
            before = jax.tree.unflatten(tree, carried[n:])
            error, (state, y, _) = self.function(before, node, consts, carried[:n], x)
            flags, after = jax.tree.flatten(error)
            trees.append(after)
            return (*state, *flags), y

        arrays = arrays._replace(init=(*arrays.init, *map(jax.numpy.asarray, flags)))
        carried, ys = Sweep(chain.derive(step, arrays), arrays)(*arrays)
        return jax.tree.unflatten(trees[-1], carried[n:]), (carried[:n], ys)


checkify.error_checks[call_hi_primitive_p] = _checked
