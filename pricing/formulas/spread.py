"""Options on a weighted sum of two lognormal spots; weights may be negative.

Given the normal z of the second spot, the first is lognormal, so the value is an integral over z of Black's
formula with the strike (K - w_2 S_2(z)) / w_1. The integrand is smooth, less so for correlations close to +-1.
With K = 0 it is Margrabe's (1978) formula.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, LognormalSpots
from ..numerics.black import black
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.normal_law import density
from ..numerics.safe_math import larger
from ..products import Spread
from .formula import Formula, lacks_lognormal

Scalar = Float[Array, ""]

_POINTS = gauss_legendre(256)
_REACH = 8.5  # standard deviations


def _missing(product: Spread, model: AbstractModel) -> str | None:
    del product
    return lacks_lognormal(model, assets=2)


def _value(product: Spread, model: LognormalSpots) -> Scalar:
    t = product.expiry
    forwards, stds = model.forward(t), jnp.sqrt(model.state_variance(t))
    rho = model.residual_correlation[0, 1]
    first, second = product.weights_of(2)
    points, weights = (jnp.asarray(x, stds.dtype) for x in _POINTS)
    z = _REACH * points
    along = rho * stds[0]
    mean = forwards[0] * jnp.exp(along * z - 0.5 * along**2)
    other = forwards[1] * jnp.exp(stds[1] * z - 0.5 * stds[1] ** 2)
    strike = (product.strike - second * other) / first
    side = product.side * jnp.sign(first)
    is_option = strike > 0.0
    std = stds[0] * jnp.sqrt(1.0 - rho**2)
    option = black(mean, jnp.where(is_option, strike, mean), std, side)
    certain = larger(side * (mean - strike), 0.0)
    paid = jnp.abs(first) * jnp.where(is_option, option, certain)
    return model.discount(t) * _REACH * (weights @ (density(z) * paid))


SPREAD = Formula(Spread, _missing, _value)
