"""Values and derivatives of a function in one program, for custom derivatives that need no tracing."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxtape import stored_jit


def with_slopes(function: Callable, *args: Any) -> tuple[PyTree, PyTree]:
    """Return the results of a function, and their derivatives to the numbers of its arguments.

    Args:
        function: The function.
        *args: Its arguments.

    Returns:
        The results, pytrees of floats, and a tree like the arguments, whose leaves are the derivatives of all
        results, flattened to one axis, of shape (results, ...).
    """
    numbers, rest = eqx.partition(args, eqx.is_inexact_array)

    def flat(numbers: Any) -> tuple[Any, Any]:
        found = function(*eqx.combine(numbers, rest))
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(found)]), found

    slopes, found = jax.jacfwd(flat, has_aux=True)(numbers)
    return found, slopes


def contracted(slopes: PyTree, tangents: PyTree, found: PyTree) -> PyTree:
    """Return the tangents of results, from the derivatives of `with_slopes` and the tangents of arguments.

    Args:
        slopes: The derivatives.
        tangents: The tangents of the arguments, None for a number without one.
        found: The results, for their structure.
    """
    flat = along(slopes, tangents)
    leaves, structure = jax.tree.flatten(found)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(flat, ends[:-1])
    parts = [x.reshape(leaf.shape) for x, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


@stored_jit(runs_briefly=True)
def along(slopes: PyTree, tangents: PyTree) -> Any:
    """Return the sum over all numbers of their derivatives, of shape (results, ...), times their tangents."""
    leaves, structure = jax.tree.flatten(slopes)
    dots = structure.flatten_up_to(tangents)
    pairs = zip(leaves, dots, strict=True)
    return sum(jnp.tensordot(leaf, dot, dot.ndim) for leaf, dot in pairs if dot is not None)
