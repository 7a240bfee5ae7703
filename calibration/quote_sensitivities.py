"""The verb: how does what a fitted model says move with each quote that it was fitted to?"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .calibration import Calibration
from .problem import Problem

Vector = Float[Array, " parameters"]


def quote_sensitivities(
    calibration: Calibration,
    value_fn: Callable[[Any], Float[Array, ""]],
    *,
    hessian: str = "exact",
) -> Float[Array, "..."]:
    """Return the derivative of a value of the fitted model to every quoted vol, through the fit.

    At a minimum of L(x, m) = |r(x, m)|^2 / 2 in the parameters x, with quotes m, the implicit function theorem
    gives dV/dm = -(dV/dx) H^{-1} d2L/dx dm: one linear solve for lambda = H^{-1} dV/dx, and one reverse sweep
    of the slope of L along lambda. H is d2L/dx2 ("exact"), or J'J ("gauss-newton"), which leaves out the
    curvature of the residuals: it needs no second derivative, and is off by more the larger residuals are.

    Args:
        calibration: What `calibrate` returned.
        value_fn: Model -> a number, such as the price of a contract, differentiable in the model's parameters.
        hessian: Which second derivative of the loss to take.

    Returns:
        The derivatives per 1.00 of vol, in the shape of the quotes.

    Raises:
        ValueError: The calibration does not hold its problem, as one from `calibrate` does, or `hessian` is
            neither of the two.

    Examples:
        >>> from calibration import calibrate, quote_sensitivities
        >>> from pricing import European, Heston, VolSurface, price
        >>> surface = VolSurface([0.5, 1.0], [90.0, 100.0, 110.0], [[0.23, 0.21, 0.2], [0.24, 0.22, 0.21]])
        >>> found = calibrate(surface, Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5), throw=False)
        >>> call = lambda model: price(European(100.0, 1.0), model).value
        >>> quote_sensitivities(found, call).shape
        (2, 3)
    """
    if calibration.problem is None:
        raise ValueError("the calibration does not hold its problem: give what calibrate returned")
    if hessian not in ("exact", "gauss-newton"):
        raise ValueError(f"hessian must be 'exact' or 'gauss-newton', got {hessian!r}")
    return _through_the_fit(calibration.problem, calibration.model, value_fn, hessian == "exact")


@eqx.filter_jit
def _through_the_fit(problem: Problem, model: Any, value_fn: Callable, exact: bool) -> Array:
    free = problem.parameters.free(model)
    slope = jax.grad(lambda x: value_fn(problem.model(x)))(free)
    if exact:
        curvature = jax.jacfwd(jax.grad(problem.loss))(free)
    else:
        _, jacobian = problem.linearized(free)
        curvature = jacobian.T @ jacobian
    direction = jnp.linalg.solve(curvature, slope)

    def along(vols: Array) -> Array:
        moved = eqx.tree_at(lambda p: p.quoted, problem, vols)
        return jax.jvp(moved.loss, (free,), (direction,))[1]

    return -jax.grad(along)(problem.quoted)
