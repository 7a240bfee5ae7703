"""Priors of a model's parameters."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from pricing.fields import Converted
from pricing.market.interpolation import as_leaf
from pricing.models import AbstractModel, AbstractTransform

from .parameters import FreeParameters

Vector = Float[Array, " parameters"]


class Prior(eqx.Module):
    """A Gaussian prior of the parameters theta, as residuals W (theta - mean) added to those of the quotes.

    With a covariance C of the parameters and quotes of standard error s, W'W = s^2 C^{-1}: half the sum of all
    squares is s^2 times minus the logarithm of the posterior density, and the fit is its mode (mixed
    estimation, Theil and Goldberger 1961; Tikhonov's regularization). The parameters are the model's own, in
    its units, not the unconstrained ones; the prior does not bound them.

    `Calibration.prior` makes one for today's parameters from yesterday's fit.

    Attributes:
        mean: The expected parameters, field by field as in `Calibration.stats`, of shape (parameters,).
        weights: W, of shape (parameters, parameters), in units of a residual per unit of a parameter; zeros
            carry no information.

    Raises:
        ValueError: If the weights are not a square matrix of the size of the mean.

    Examples:
        >>> from calibration import Prior
        >>> from pricing import HullWhite
        >>> prior = Prior.of(HullWhite(0.03, 0.05, 0.01), {"mean_reversion": 0.02}, noise=0.004)
        >>> [f"{float(x):.2f}" for x in prior.weights.diagonal()]
        ['0.20', '0.00']
    """

    mean: Converted[Vector] = eqx.field(converter=as_leaf)
    weights: Converted[Float[Array, "parameters parameters"]] = eqx.field(converter=as_leaf)

    def __check_init__(self):
        if self.weights.shape[-2:] != self.mean.shape[-1:] * 2:
            raise ValueError(
                f"a prior of {self.mean.shape[-1:]} parameters has weights of shape {self.weights.shape}: give "
                "a square matrix of that size"
            )

    @classmethod
    def of(
        cls,
        model: AbstractModel,
        std_errors: Mapping[str, ArrayLike],
        noise: ArrayLike,
        transform: Mapping[str, AbstractTransform] | None = None,
    ) -> "Prior":
        """Return a prior with independent parameters about a model's.

        Args:
            model: The model whose parameters are the mean.
            std_errors: Field -> standard deviation of the parameter about the mean, above 0. The prior carries
                no information about an omitted field.
            noise: The standard error of a quote, as the objective measures it: per 1.00 vol by default.
            transform: Field -> bounds of each free parameter; the default is the model's own.

        Raises:
            ValueError: If a field is not free, or a number is not above 0.
        """
        parameters = FreeParameters.of(model, transform)
        for name, error in {**std_errors, "noise": noise}.items():
            if name != "noise" and name not in parameters.names:
                free = ", ".join(parameters.names)
                raise ValueError(f"{name!r} is not a free parameter: give std_errors of {free}")
            if not np.all(np.asarray(error) > 0.0):
                raise ValueError(f"{name} is off by {error}: give a number above 0")
        mean = parameters.values(parameters.free(model))
        errors = parameters.spread(std_errors, missing=jnp.inf)
        return cls(mean, jnp.diag(noise / errors))

    def residual(self, values: Vector) -> Vector:
        """Return W (theta - mean).

        Raises:
            ValueError: If the prior has fewer or more parameters than `values`.
        """
        if values.shape != self.mean.shape:
            raise ValueError(
                f"a prior of {self.mean.size} parameters for a model of {values.size}: give one "
                f"of the "
                "free parameters"
            )
        return jnp.matmul(self.weights, values - self.mean, precision="highest")

    @classmethod
    def drifted(
        cls,
        mean: Vector,
        jacobian: Float[Array, "residuals parameters"],
        noise: Float[Array, ""],
        variance: Vector,
    ) -> "Prior":
        """Return yesterday's information as a prior for today, after a random walk of the parameters.

        Yesterday's information is A / s^2 with A = J'J; with Q, the covariance of the walk, today's is
        (s^2 A^{-1} + Q)^{-1} = A (s^2 + Q A)^{-1}. This needs no inverse of A, which is singular where the
        quotes do not identify the parameters.

        Args:
            mean: Yesterday's parameters.
            jacobian: J, the Jacobian of the residuals in the parameters themselves.
            noise: s, the standard error of a residual.
            variance: The diagonal of Q.
        """
        norms = jnp.linalg.norm(jacobian, axis=0)
        scale = jnp.where(norms > 0.0, norms, 1.0)
        scaled = jacobian / scale[None, :]
        normal = scaled.T @ scaled
        noise = jnp.maximum(noise, jnp.finfo(mean.dtype).eps ** (2 / 3))  # the noise of rounding
        inflation = (variance * scale**2)[:, None] * normal / noise**2
        information = normal @ jnp.linalg.inv(jnp.eye(mean.size, dtype=mean.dtype) + inflation)
        values, vectors = jnp.linalg.eigh(0.5 * (information + information.T))
        root = jnp.sqrt(jnp.maximum(values, 0.0))[:, None] * vectors.T
        return cls(mean, root * scale[None, :])
