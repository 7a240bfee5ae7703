"""Check gradients by central differences, and forward against reverse mode."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .second_order import check_arguments, partition

EPS = float(np.finfo(np.float64).eps)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Two numbers for every direction tried, and the difference allowed between them.

    Attributes:
        names: A description of each direction.
        actual: The numbers under test.
        expected: The reference numbers.
        tolerance: The largest difference allowed between the two.
    """

    names: tuple[str, ...]
    actual: np.ndarray
    expected: np.ndarray
    tolerance: np.ndarray

    @property
    def max_relative_difference(self) -> float:
        """The largest difference in units of the larger of its two numbers."""
        scale = np.maximum(abs(self.actual), abs(self.expected))
        return float(np.max(abs(self.actual - self.expected) / np.where(scale > 0.0, scale, 1.0)))

    def check(self, message: str) -> "Agreement":
        """Return `self` if every direction agrees.

        Raises:
            AssertionError: If one does not; `message` describes the worst.
        """
        with np.errstate(invalid="ignore"):
            excess = abs(self.actual - self.expected) - self.tolerance
        excess = np.where(np.isfinite(excess), excess, np.inf)
        worst = np.argmax(excess)
        if excess[worst] <= 0.0:
            return self
        numbers = self.actual[worst], self.expected[worst], self.tolerance[worst]
        raise AssertionError(message.format(self.names[worst], *numbers))


def check_gradient(
    f: Callable, *args: Any, key: Array | None = None, directions: int = 2, rtol: float = 1e-6
) -> Agreement:
    """Compare the gradient of `f` with central differences, in random directions of one leaf each.

        <grad f(x), v> = (f(x + h v) - f(x - h v)) / (2 h),    h = eps^(1/3) max|x|

    `max|x|` is taken over the leaf (1 for a leaf of zeros) and v is standard normal: this h balances the
    truncation, of order h^2, against the rounding of f, of order eps/h, so about ten digits can agree. The
    two may differ by `rtol` times the larger, plus that rounding, `8 eps |f| / h`.

    Raises `AssertionError`, with the leaf, the direction and both numbers, if they disagree or are not finite;
    `TypeError` if a float leaf is not float64 or `f` does not return a real scalar; `ValueError` if there is
    nothing to vary or `directions` is 0.

    Args:
        f: A function of pytrees that returns a scalar, smooth between the two points.
        args: The arguments of `f`; float leaves must be float64; integer, key and other leaves are held fixed.
        key: The key of the directions; None is `jax.random.key(0)`.
        directions: The number of directions for each leaf.
        rtol: The largest difference allowed, relative to the larger of the two.

    Returns:
        The numbers compared, with `max_relative_difference`.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxtape as jt
        >>> with jax.enable_x64(True):
        ...     found = jt.check_gradient(jnp.sin, jnp.float64(0.3))
        >>> found.max_relative_difference < 1e-6
        True
    """
    varied, held = _partition("args", args)
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(varied), strict=True)
    structure = jax.tree.structure(varied)
    value = jax.jit(lambda *x: f(*eqx.combine(jax.tree.unflatten(structure, x), held)))
    gradient = jax.jit(jax.grad(value, range(len(leaves))))(*leaves)
    key = jax.random.key(0) if key is None else key

    def rows():
        for i, (path, x) in enumerate(zip(paths, leaves, strict=True)):
            h = EPS ** (1 / 3) * (float(jnp.max(jnp.abs(x), initial=0.0)) or 1.0)
            for number in range(directions):
                v = _normal(jax.random.fold_in(jax.random.fold_in(key, i), number), x)
                moved = (x + h * v, x - h * v)
                up, down = (float(value(*leaves[:i], y, *leaves[i + 1 :])) for y in moved)
                actual, expected = float(jnp.vdot(gradient[i], v)), (up - down) / (2.0 * h)
                rounding = 8.0 * EPS * max(abs(up), abs(down)) / h
                tolerance = rtol * max(abs(actual), abs(expected)) + rounding
                name = f"args{jax.tree_util.keystr(path)}, direction {number}"
                yield name, actual, expected, tolerance

    return _agreement(rows()).check(
        "Gradient in {}: the derivative is {:.12g} and central differences say {:.12g}, further apart "
        "than {:.1e}: fix the derivative (a custom rule, stop_gradient), move away from a kink, or "
        "widen rtol if f itself is not exact to rounding."
    )


def check_duality(
    f: Callable, primals: Any, *, key: Array | None = None, directions: int = 2, rtol: float = 1e-10
) -> Agreement:
    """Compare forward with reverse mode: `<w, J v> = <J' w, v>`, J the Jacobian of `f` at `primals`.

    v and w are standard normal. The two may differ by `rtol` times the sum of their terms' absolute values.
    Both modes may agree on a wrong derivative: see `check_gradient`.

    Raises `AssertionError`, with the direction and both numbers, if they disagree or are not finite;
    `TypeError` if `primals` is not a tuple or a float leaf is not float64; `ValueError` if there is nothing to
    vary or `directions` is 0.

    Args:
        f: A function between pytrees; integer and key leaves, on either side, are held fixed.
        primals: A tuple with one pytree for each argument of `f`; float leaves must be float64.
        key: The key of v and w; None is `jax.random.key(0)`.
        directions: The number of pairs (v, w).
        rtol: The largest difference allowed, relative to the sum of the absolute values of the terms.

    Returns:
        The numbers compared, with `max_relative_difference`.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxtape as jt
        >>> with jax.enable_x64(True):
        ...     found = jt.check_duality(jnp.sin, (jnp.float64(0.3),))
        >>> found.max_relative_difference < 1e-10
        True
    """
    check_arguments("primals", primals)
    varied, held = _partition("primals", primals)
    key = jax.random.key(0) if key is None else key

    def floats(varied):
        return eqx.filter(f(*eqx.combine(varied, held)), eqx.is_inexact_array)

    @jax.jit
    def pair(key):
        v = _normal(jax.random.fold_in(key, 0), varied)
        y, y_dot = jax.jvp(floats, (varied,), (v,))
        w = _normal(jax.random.fold_in(key, 1), y)
        (x_bar,) = jax.vjp(floats, varied)[1](w)
        return *_inner(w, y_dot), *_inner(x_bar, v)

    def rows():
        for number in range(directions):
            forward, terms, reverse, more = map(float, pair(jax.random.fold_in(key, number)))
            yield f"direction {number}", forward, reverse, rtol * max(terms, more)

    return _agreement(rows()).check(
        "Duality in {}: forward mode gives <w, J v> = {:.15g} and reverse mode <J' w, v> = {:.15g}, "
        "further apart than {:.1e}: fix the rule of one of the modes (a custom transpose, a "
        "primitive's vjp)."
    )


def _partition(name: str, args: tuple) -> tuple[tuple, tuple]:
    """Return the float leaves, which must be float64, and the leaves held fixed.

    Raises:
        TypeError: If a float leaf is not float64.
        ValueError: If there is none.
    """
    varied, held = partition(args)
    leaves = jax.tree_util.tree_leaves_with_path(varied)
    if not leaves:
        raise ValueError(f"{name} has no float leaf, so nothing can vary: give a float64 array.")
    for path, x in leaves:
        if x.dtype != np.float64:
            raise TypeError(
                f"{name}{jax.tree_util.keystr(path)} is {x.dtype}: a check needs float64, so run "
                'jax.config.update("jax_enable_x64", True) and give float64 arrays.'
            )
    return varied, held


def _normal(key, tree):
    """Draw standard normal leaves with the shapes of a tree's."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def _inner(a, b):
    """Return the inner product of two trees, and the sum of the absolute values of its terms."""
    pairs = zip(*map(jax.tree.leaves, (a, b)), strict=True)
    terms = jnp.concatenate([jnp.ravel(x * y) for x, y in pairs])
    return jnp.sum(terms), jnp.sum(jnp.abs(terms))


def _agreement(rows: Iterable[tuple]) -> Agreement:
    rows = list(rows)
    if not rows:
        raise ValueError("directions is less than 1, so nothing was compared: give at least 1.")
    names, *numbers = zip(*rows, strict=True)
    return Agreement(names, *map(np.array, numbers))
