"""Roots and fixed points, differentiated by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree

from .jax_settings.matmul_precision import full_matmul_precision


@full_matmul_precision
def root(
    f: Callable, guess: Any, *, max_steps: int = 50, rtol: float | None = None, atol: float = 0.0
) -> Any:
    """Solve `f(x) = 0` by Newton's method; the derivative of the root is that of the implicit function theorem.

        dx/dp = -(df/dx)^-1 df/dp    at the root, for every p that `f` closes over

    The search is neither kept nor differentiated: a node of a tape keeps only its state. The Jacobian is dense,
    so n unknowns cost n^2 numbers and one factorization a step. The result and its derivative are NaN if the
    search misses its tolerance after `max_steps`, or the Jacobian is singular. Derivatives of every order,
    forward and reverse, `vmap` and `jit` work as usual. `TypeError` is raised if `f` changes the structure,
    shape or dtype of `guess`, or if the leaves of `guess` are not floats of one dtype.

    Args:
        f: A function of `x` that returns a pytree of the same structure, shapes and dtypes.
        guess: The first `x`, a pytree of floats of one dtype; the root's derivative with respect to it is 0.
        max_steps: The largest number of Newton steps.
        rtol: The largest last step of each entry of `x`, relative to it, or to the largest entry if rounding
            allows no smaller steps; None is eps^(2/3), which makes a simple root accurate to rounding.
        atol: An absolute tolerance added to it; give one if the root may be 0.

    Returns:
        The root, in the structure of `guess`.

    Examples:
        >>> import jax, jaxtape as jt
        >>> cube_root = lambda p: jt.root(lambda x: x**3 - p, 1.0)
        >>> round(float(cube_root(8.0)), 4), round(float(jax.grad(cube_root)(8.0)), 4)
        (2.0, 0.0833)
    """
    return _solve(f, guess, _newton_step, max_steps, rtol, atol)


@full_matmul_precision
def fixed_point(
    g: Callable, guess: Any, *, max_steps: int = 1000, rtol: float | None = None, atol: float = 0.0
) -> Any:
    """Iterate `x <- g(x)` to convergence; the derivative is that of the implicit function theorem.

        dx/dp = (I - dg/dx)^-1 dg/dp    at the fixed point, for every p that `g` closes over

    The iteration converges if `g` is a contraction; one Newton step follows the last iteration. The notes of
    `root` apply here too. For a repelling fixed point, find the root of `g(x) - x` with `root`.

    Args:
        g: A function of `x` that returns a pytree of the same structure, shapes and dtypes.
        guess: The first `x`, a pytree of floats of one dtype; the derivative with respect to it is 0.
        max_steps: The largest number of iterations.
        rtol: The largest last change of each entry of `x`, as in `root`; None is eps^(2/3).
        atol: An absolute tolerance added to it; give one if the fixed point may be 0.

    Returns:
        The fixed point, in the structure of `guess`; NaN if the iteration has not converged.

    Examples:
        >>> import jax.numpy as jnp, jaxtape as jt
        >>> round(float(jt.fixed_point(jnp.cos, 1.0)), 4)
        0.7391
    """
    difference = lambda x: jax.tree.map(jnp.subtract, g(x), x)
    return _solve(difference, guess, lambda f, x: f(x), max_steps, rtol, atol)


def _solve(f: Callable, guess: Any, step: Callable, max_steps: int, rtol, atol: float) -> Any:
    """Add `step(f, x)` to x until it is small, then take one Newton step; differentiate implicitly.

    An entry has converged if its change is small relative to itself, or small relative to the largest entry and
    no smaller than the previous change: an entry that is 0 keeps the rounding of the others.
    """
    guess = jax.tree.map(jnp.asarray, guess)
    _check(f, guess)
    flat, unravel = ravel_pytree(guess)
    tolerance = float(jnp.finfo(flat.dtype).eps) ** (2 / 3) if rtol is None else rtol
    flat_f = lambda x: ravel_pytree(f(unravel(x)))[0]

    def search(f, x):
        def unfinished(carry):
            k, _, _, stands = carry
            return (k < max_steps) & ~jnp.all(stands)

        def advance(carry):
            k, x, before, stands = carry
            change = step(f, x)
            x, size = x + change, jnp.abs(change)
            own = size <= tolerance * jnp.abs(x) + atol
            largest = tolerance * jnp.max(jnp.abs(x), initial=0.0) + atol
            is_small = jnp.max(size, initial=0.0) <= largest
            return k + 1, x, size, is_small & (own | stands | (size >= before))

        never = jnp.full_like(x, jnp.inf), jnp.zeros(x.shape, bool)
        _, x, _, stands = lax.while_loop(unfinished, advance, (0, x, *never))
        x = x + _newton_step(f, x)
        return jnp.where(jnp.all(stands) & jnp.all(jnp.isfinite(x)), x, jnp.nan)

    x = lax.custom_root(flat_f, lax.stop_gradient(flat), search, _solve_linear)
    factor = jnp.where(jnp.isfinite(x), jnp.ones_like(x), jnp.nan)
    return unravel(x * lax.stop_gradient(factor))  # the derivative of NaN is NaN


def _newton_step(f: Callable, x: Array) -> Array:
    return -jnp.linalg.solve(jax.jacfwd(f)(x), f(x))


def _solve_linear(linear: Callable, y: Array) -> Array:
    """Solve `linear(x) = y` by its matrix."""
    return jnp.linalg.solve(jax.jacfwd(linear)(jnp.zeros_like(y)), y)


def _check(f: Callable, guess: Any) -> None:
    """Check that `f` maps the guess's structure of floats to itself.

    Raises:
        TypeError: If it does not.
    """
    dtypes = list({leaf.dtype: None for leaf in jax.tree.leaves(guess)})
    if len(dtypes) != 1 or not jnp.issubdtype(dtypes[0], jnp.floating):
        found = ", ".join(map(str, dtypes)) or "no dtype"
        raise TypeError(f"guess has leaves of {found}: give floats of one dtype.")
    found = jax.eval_shape(f, guess)
    described = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)
    if described(found) != described(guess):
        raise TypeError(
            f"The function returns {described(found)} for an x of {described(guess)}: return one number "
            "for each unknown, in the structure, shapes and dtypes of the guess."
        )
