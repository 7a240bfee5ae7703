"""Covariance of fitted parameters, from the covariance of the residuals due to quotes and simulation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from pricing.models import AbstractModel

from .calibration import Calibration
from .least_squares_problem import LeastSquaresProblem

Covariance = Float[Array, "parameters parameters"]


@full_matmul_precision
def sandwich_covariance(
    calibration: Calibration, residual_covariance: Float[Array, "residuals residuals"]
) -> Covariance:
    """Return the covariance of the fitted parameters, given that of the residuals at the true parameters.

    It is (J'J)^{-1} J' C J (J'J)^{-1} to first order in the errors (White 1980), with J the Jacobian of the
    residuals at the fit, and C their covariance: the quotes' plus the simulation's
    (`SimulatedPriceError.covariance`), whose errors are correlated between contracts.

    Args:
        calibration: A result of `calibrate`.
        residual_covariance: C, for the raveled residuals, in their units.

    Returns:
        The covariance of the parameters themselves, in the order of `stats["covariance"]`.

    Raises:
        ValueError: If the calibration does not hold its problem, as one from `calibrate` does.

    Examples:
        >>> import jax.numpy as jnp
        >>> from calibration import calibrate, sandwich_covariance
        >>> from pricing import HullWhite
        >>> from pricing.market import SwaptionVols
        >>> matrix = SwaptionVols([1.0, 2.0], [2.0, 4.0], [[0.2, 0.19], [0.19, 0.18]])
        >>> found = calibrate(matrix, HullWhite(0.03, 0.05, 0.01), throw=False)
        >>> sandwich_covariance(found, 1e-6 * jnp.eye(4)).shape
        (2, 2)
    """
    if calibration.problem is None:
        raise ValueError("the calibration does not hold its problem: give what calibrate returned")
    return _sandwich(calibration.problem, calibration.model, residual_covariance)


@stored_jit
def _sandwich(
    problem: LeastSquaresProblem, model: AbstractModel, residual_covariance: Array
) -> Array:
    free = problem.parameters.free(model)
    _, jacobian = problem.linearized(free)
    to_parameters = jax.jacfwd(problem.parameters.values)(free) @ jnp.linalg.pinv(jacobian)
    to_parameters = to_parameters[
        :, : residual_covariance.shape[0]
    ]  # a prior's rows have no errors
    return to_parameters @ residual_covariance @ to_parameters.T
