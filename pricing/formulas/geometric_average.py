"""Options on geometric averages of lognormal spots, which are lognormal."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import LognormalSpots
from ..numerics.black import black
from ..numerics.safe_math import smaller
from ..products import Average

Scalar = Float[Array, ""]


def geometric_average_value(product: Average, model: LognormalSpots) -> Scalar:
    """Return Black's formula with the mean m and variance v of sum_j w_j log S_j: forward exp(m + v / 2).

    Kemna and Vorst (1990), eq. 15, for dates; the same for assets.
    """
    log_spots, covariance = (_of_assets if product.multi_asset else _of_dates)(product, model)
    weights = product.weights_of(log_spots.size)
    mean, variance = weights @ log_spots, weights @ covariance @ weights
    value = black(jnp.exp(mean + 0.5 * variance), product.strike, jnp.sqrt(variance), product.side)
    return model.discount(product.fixings[-1]) * value


def _of_dates(product: Average, model: LognormalSpots) -> tuple[Array, Array]:
    """Return means and covariances of one asset's log-spots at the fixings."""
    variance = model.state_variance(product.fixings)
    log_forward = jnp.log(jax.vmap(model.forward)(product.fixings))
    return log_forward - 0.5 * variance, smaller(variance[:, None], variance[None, :])


def _of_assets(product: Average, model: LognormalSpots) -> tuple[Array, Array]:
    """Return means and covariances of the assets' log-spots at expiry."""
    variance = model.state_variance(product.fixings)[-1]
    std = jnp.sqrt(variance)
    log_forward = jnp.log(model.forward(product.fixings[-1]))
    covariance = model.residual_correlation * std[:, None] * std[None, :]
    return log_forward - 0.5 * variance, covariance
