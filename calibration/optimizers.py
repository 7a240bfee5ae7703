"""The Levenberg-Marquardt method as an optax transformation."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from pricing.numerics.elimination import eliminate


class Point(NamedTuple):
    """A point, half the sum of squares there, its gradient J'r and J'J."""

    x: Float[Array, " parameters"]
    loss: Float[Array, ""]
    gradient: Float[Array, " parameters"]
    normal: Float[Array, "parameters parameters"]


class LevenbergMarquardtState(NamedTuple):
    """The lowest point so far, the current lambda, and whether the last step was rejected."""

    best: Point
    damping: Float[Array, ""]
    rejected: Bool[Array, ""]


@functools.cache  # one object for equal settings, so that a jitted fit is compiled once
def levenberg_marquardt(
    initial_damping: float = 1e-2,
    increase: float = 4.0,
    decrease: float = 0.15,
    max_step: float = 1.0,
    geodesic: bool = False,
    slack: float = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Return damped Gauss-Newton steps for f(x) = |r(x)|^2 / 2.

    (J'J + lambda diag(J'J)) step = -J'r (Marquardt 1963, eq. 14; Nocedal and Wright 2006, sec. 10.3). If a
    point does not lower f, the next step starts from the lowest one with a larger lambda; so each step costs
    one evaluation of residual and Jacobian, and points where they are not finite do no harm. `update` needs the
    extra arguments `residual`, of shape (residuals,), and `jacobian`, of shape (residuals, parameters), columns
    in the order of the raveled parameters, both at `params`.

    With geodesic acceleration (Transtrum and Sethna 2012) half of a second-order step a,
    (J'J + lambda diag(J'J)) a = -J' r_vv, is added to the step v, where r_vv is the second derivative of r
    along v, unless |a| / |v| exceeds .75 in the scale of diag(J'J), because the parabola is then unreliable.
    `update` then needs the extra argument `curvature`, a function (x, v) -> J(x)' r_vv(x), raveled. A step
    costs about twice as much. If the valley of the loss bends, half or a third of the steps suffice.

    Args:
        initial_damping: The first lambda.
        increase: Factor of lambda after a step that does not lower f.
        decrease: Factor of lambda after two steps in a row that lower f.
        max_step: The largest move of a coordinate in a step: a single large early step can saturate a bounded
            parameter's transform, from which no step leads back.
        geodesic: Whether steps are accelerated.
        slack: The fraction by which a step may raise f and still count as lowering it: 0.01 for a simulated f,
            whose small jumps would otherwise stop the search early.

    Returns:
        The optax transformation; the same object for equal settings, so that a jitted fit is compiled once.

    Examples:
        >>> from calibration import levenberg_marquardt
        >>> levenberg_marquardt() is levenberg_marquardt()
        True
    """

    def init(params: PyTree) -> LevenbergMarquardtState:
        flat, _ = ravel_pytree(params)
        zeros, infinite = jnp.zeros_like(flat), jnp.asarray(jnp.inf, flat.dtype)
        start = Point(flat, infinite, zeros, jnp.outer(zeros, zeros))
        # as after a rejection, so that the first point keeps the damping
        return LevenbergMarquardtState(
            start, jnp.asarray(initial_damping, flat.dtype), jnp.asarray(True)
        )

    def update(updates, state, params=None, *, residual, jacobian, curvature=None, **extra):
        del extra
        gradient, unravel = ravel_pytree(updates)
        flat, _ = ravel_pytree(params)
        chex.assert_shape(jacobian, (residual.size, flat.size))
        here = Point(flat, 0.5 * jnp.sum(residual**2), gradient, jacobian.T @ jacobian)
        lower = here.loss < (1.0 + slack) * state.best.loss
        best = jax.tree.map(lambda new, old: jnp.where(lower, new, old), here, state.best)
        easing = jnp.where(state.rejected, 1.0, decrease)
        damping = jnp.clip(state.damping * jnp.where(lower, easing, increase), 1e-12, 1e12)
        damped = _Damped.of(best.normal, damping)
        step = -damped.solve(best.gradient)
        if geodesic:
            if curvature is None:
                raise TypeError(_NO_CURVATURE)
            step = step + damped.acceleration(step, curvature(best.x, step))
        step = step * jnp.minimum(1.0, max_step / jnp.max(jnp.abs(step)))
        update = best.x + step - flat
        return unravel(update), LevenbergMarquardtState(best, damping, ~lower)

    # optax's type of `update` lacks the extra keyword arguments that its documentation asks for
    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


_MOST_ACCELERATION = 0.75  # of |a| / |v|: Transtrum and Sethna (2012)
_NO_CURVATURE = (
    "geodesic acceleration needs the second derivative of the residuals: give update(..., curvature=f), "
    "f(x, v) = J(x)' r_vv(x), or use levenberg_marquardt(geodesic=False)"
)


class _Damped(NamedTuple):
    """J'J + lambda diag(J'J), and its diagonal without lambda."""

    matrix: Float[Array, "parameters parameters"]
    scale: Float[Array, " parameters"]

    @classmethod
    def of(cls, normal: Array, damping: Array) -> "_Damped":
        diagonal = jnp.diag(normal)
        scale = jnp.maximum(diagonal, jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal))
        return cls(normal + damping * jnp.diag(scale), scale)

    def solve(self, gradient: Array) -> Array:
        return jnp.ravel(eliminate(self.matrix, gradient[:, None]))

    def acceleration(self, velocity: Array, curvature: Array) -> Array:
        """Return half the second-order step, or 0 if it is not small beside the first."""
        half = -0.5 * self.solve(curvature)
        sizes = [jnp.sum(self.scale * x**2) for x in (half, velocity)]
        is_small = 4.0 * sizes[0] <= _MOST_ACCELERATION**2 * sizes[1]
        return jnp.where(is_small, half, 0.0)
