"""Levenberg and Marquardt's method as an optax transformation."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree


class Point(NamedTuple):
    """A point, half the sum of squares there, its gradient J'r and J'J."""

    x: Float[Array, " parameters"]
    loss: Float[Array, ""]
    gradient: Float[Array, " parameters"]
    normal: Float[Array, "parameters parameters"]


class LevenbergMarquardtState(NamedTuple):
    """best: the lowest point so far; damping: the current lambda; rejected: whether the last step was."""

    best: Point
    damping: Float[Array, ""]
    rejected: Bool[Array, ""]


@functools.cache  # one object for equal settings, so that a jitted fit is compiled once
def levenberg_marquardt(
    initial_damping: float = 1e-2,
    increase: float = 4.0,
    decrease: float = 0.15,
    max_step: float = 1.0,
    slack: float = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Return damped Gauss-Newton steps for f(x) = |r(x)|^2 / 2.

    (J'J + lambda diag(J'J)) step = -J'r (Marquardt 1963, eq. 14; Nocedal and Wright 2006, sec. 10.3). A point
    that does not lower f is left for the lowest one, with lambda raised; so each step costs one evaluation of
    residual and Jacobian, and a point where they are not finite is survived. `update` needs the extra arguments
    `residual`, of shape (residuals,), and `jacobian`, of shape (residuals, parameters), columns in the order of
    the raveled parameters, both at `params`.

    Args:
        initial_damping: The first lambda.
        increase: What lambda is multiplied by after a step that does not lower f.
        decrease: What it is multiplied by after two steps in a row that do.
        max_step: The most that a coordinate moves in a step: one bold early step can saturate a bounded
            parameter's transform, and none leads back.
        slack: By which fraction a step may raise f and still count as one that lowers it: 0.01 for an f by
            simulation, whose small jumps would stop the search where its gradient leads on.

    Returns:
        The optax transformation; one object for equal settings, so that a jitted fit is compiled once.

    Examples:
        >>> from calibration import levenberg_marquardt
        >>> levenberg_marquardt() is levenberg_marquardt()
        True
    """

    def init(params: PyTree) -> LevenbergMarquardtState:
        flat, _ = ravel_pytree(params)
        zeros, infinite = jnp.zeros_like(flat), jnp.asarray(jnp.inf, flat.dtype)
        start = Point(flat, infinite, zeros, jnp.outer(zeros, zeros))
        # as after a rejection: the first point keeps the damping
        return LevenbergMarquardtState(
            start, jnp.asarray(initial_damping, flat.dtype), jnp.asarray(True)
        )

    def update(updates, state, params=None, *, residual, jacobian, **extra):
        del extra
        gradient, unravel = ravel_pytree(updates)
        flat, _ = ravel_pytree(params)
        chex.assert_shape(jacobian, (residual.size, flat.size))
        here = Point(flat, 0.5 * jnp.sum(residual**2), gradient, jacobian.T @ jacobian)
        lower = here.loss < (1.0 + slack) * state.best.loss
        best = jax.tree.map(lambda new, old: jnp.where(lower, new, old), here, state.best)
        easing = jnp.where(state.rejected, 1.0, decrease)
        damping = jnp.clip(state.damping * jnp.where(lower, easing, increase), 1e-12, 1e12)
        update = best.x + _damped_step(best, damping, max_step) - flat
        return unravel(update), LevenbergMarquardtState(best, damping, ~lower)

    # optax's type of `update` has no place for extra arguments by name, which its documentation asks for
    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def _damped_step(point: Point, damping: Array, max_step: float) -> Array:
    diagonal = jnp.diag(point.normal)
    scale = jnp.maximum(diagonal, jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal))
    step = -jnp.linalg.solve(point.normal + damping * jnp.diag(scale), point.gradient)
    return step * jnp.minimum(1.0, max_step / jnp.max(jnp.abs(step)))
