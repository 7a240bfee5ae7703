"""Functions of numbers, whose partial derivatives are computed once for all directions."""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import PyTree

Result = TypeVar("Result", bound=PyTree)


def elementwise(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function of arrays that broadcast, number by number, with derivatives by its partial ones.

    Forward mode goes through the function once for each argument that moves, however many directions there are;
    reverse mode keeps the partial derivatives, and nothing of what is between.
    """

    @jax.custom_jvp
    @functools.wraps(function)
    def found(*arguments):
        return function(*arguments)

    @functools.partial(found.defjvp, symbolic_zeros=True)
    def found_jvp(primals, tangents):
        values, moved = found(*primals), None
        for place, tangent in enumerate(tangents):
            if isinstance(tangent, SymbolicZero):
                continue
            of_one = lambda x, i=place: function(*primals[:i], x, *primals[i + 1 :])  # noqa: E731
            _, partial = jax.jvp(of_one, (primals[place],), (jnp.ones_like(primals[place]),))
            part = jax.tree.map(lambda slope, dot=tangent: slope * dot, partial)
            moved = part if moved is None else jax.tree.map(jnp.add, moved, part)
        return values, jax.tree.map(jnp.zeros_like, values) if moved is None else moved

    return found
