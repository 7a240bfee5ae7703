"""Second derivatives, forward over reverse."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


def hvp(f: Callable, primals: Any, tangents: Any) -> tuple:
    """Return the Hessian of `f` times a vector, `H(x) v = d/de grad f(x + e v)` at e = 0.

    The product is computed forward over reverse, so a scan inside `f` keeps to its schedule; it takes about
    twice the memory of a gradient. `TypeError` is raised if `primals` or `tangents` is not a tuple or `f` does
    not return a real scalar, and `ValueError` if a tangent's structure, shape or dtype is not that of its
    primal.

    Args:
        f: A function of pytrees that returns a scalar.
        primals: The point x, a tuple with one pytree for each argument of `f`.
        tangents: The vector v, with the structure, shapes and dtypes of `primals`. Integer and key leaves are
            held fixed; their entries, which may be None, are ignored.

    Returns:
        The product H v in the structure of `primals`, with None for the leaves held fixed.

    Examples:
        >>> import jaxtape as jt
        >>> [float(v) for v in jt.hvp(lambda x: x**3, (2.0,), (1.0,))]
        [12.0]
    """
    check_arguments("primals", primals)
    check_arguments("tangents", tangents)
    varied, held = partition(primals)
    tangents = _tangents(varied, primals, tangents)
    gradient = jax.grad(lambda varied: f(*eqx.combine(varied, held)))
    return jax.jvp(gradient, (varied,), (tangents,))[1]


def check_arguments(name: str, arguments) -> None:
    """Check that `arguments` is a tuple.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(arguments, tuple):
        raise TypeError(
            f"{name} is {arguments!r}: give a tuple with one pytree for each argument, ({name},)."
        )


def partition(arguments: tuple) -> tuple[tuple, tuple]:
    """Return the leaves that vary, as arrays, and those held fixed; each with None in place of the others."""
    varied, held = eqx.partition(arguments, _varies)
    return jax.tree.map(jnp.asarray, varied), held


def _varies(leaf) -> bool:
    return isinstance(leaf, float | complex) or eqx.is_inexact_array(leaf)


def _tangents(varied, primals, tangents):
    """Return a tangent for every leaf that varies, checked against it.

    Raises:
        ValueError: If the structure, a shape or a dtype differs.
    """
    try:
        tangents = jax.tree.map(lambda x, v: v if _varies(x) else None, primals, tangents)
    except ValueError as error:
        raise ValueError(f"tangents does not have the structure of primals: {error}") from None

    def check(path, x, v):
        v = jnp.asarray(v, x.dtype) if isinstance(v, float) else jnp.asarray(v)
        if (v.shape, v.dtype) != (x.shape, x.dtype):
            raise ValueError(
                f"tangents{jax.tree_util.keystr(path)} is {v.dtype}{list(v.shape)} and its primal "
                f"{x.dtype}{list(x.shape)}: give both one shape and dtype."
            )
        return v

    return jax.tree_util.tree_map_with_path(check, varied, tangents)
