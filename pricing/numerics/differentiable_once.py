"""Functions that may be differentiated once: a second derivative, which would be wrong, raises."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, PyTree


def differentiable_once(function: Callable[..., PyTree], why: str) -> Callable[..., PyTree]:
    """Return `function` with a derivative that raises TypeError (`why`) when differentiated again.

    It is for Monte Carlo samples that are continuous but have kinks: their first derivative is unbiased, but
    the derivative of that derivative misses the kinks.
    """

    @jax.custom_jvp
    def constant(leaf: Array) -> Array:
        return leaf

    def refuse(primals, tangents):
        if not isinstance(tangents[0], jax.custom_derivatives.SymbolicZero):
            raise TypeError(why)
        return primals[0], jax.numpy.zeros_like(primals[0])

    constant.defjvp(refuse, symbolic_zeros=True)

    @eqx.filter_custom_jvp
    def once(*args: PyTree) -> PyTree:
        return function(*args)

    @once.def_jvp
    def once_jvp(primals, tangents):
        held = jax.tree.map(lambda x: constant(x) if eqx.is_inexact_array(x) else x, primals)
        return eqx.filter_jvp(function, held, tangents)

    return once
