"""Continuously monitored lookback options under constant coefficients.

Goldman, Sosin and Gatto (1979); Conze and Viswanathan (1991). Their formulas are 0/0 at zero carry. Here the
value is computed from their integrals: with M the highest spot,

    E[(M - x)+] = int_x^inf P(M > m) dm,
    P(M > S e^h) = N((nu T - h) / s) + e^(2 nu h / sigma^2) N(-(nu T + h) / s),

nu = r - q - sigma^2 / 2, s = sigma sqrt(T), for x >= S, and the mirror image for the lowest spot. The integrand
is smooth, so that 128 Gauss-Legendre nodes give full precision for any carry.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, BlackVol
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.normal_law import cdf, scaled_cdf
from ..numerics.safe_math import larger, nan_where
from ..products import Lookback
from .formula import Formula, lacks_constants, lacks_lognormal

Scalar = Float[Array, ""]

_POINTS = gauss_legendre(128)
_REACH = 9.5  # standard deviations of the log-spot


def _missing(product: Lookback, model: AbstractModel) -> str | None:
    if product.dates is not None:
        return "closed form on dates"
    if product.strike is None and (lack := lacks_lognormal(model)):
        return lack
    return lacks_constants(model)


def _value(product: Lookback, model: BlackVol) -> Scalar:
    t, spot = product.expiry, model.spot
    sign = jnp.where(product.reads_highest, 1.0, -1.0).astype(spot.dtype)
    forward = model.forward(t)
    vol = model.black_vol(t, spot if product.strike is None else product.strike)
    here = spot if product.extreme is None else sign * larger(sign * spot, sign * product.extreme)
    if product.strike is None:
        start, certain = here, sign * (here - forward)
    else:
        start = sign * larger(sign * here, sign * product.strike)
        certain = larger(sign * (here - product.strike), 0.0)
    beyond = _mean_beyond(sign, start, spot, jnp.log(forward / spot), vol * jnp.sqrt(t))
    return nan_where(vol <= 0.0, model.discount(t) * (certain + beyond))


def _mean_beyond(sign: Scalar, start: Scalar, spot: Scalar, growth: Scalar, std: Scalar) -> Scalar:
    """Return the mean distance of the extreme beyond a given extreme so far; growth: log(F / S)."""
    drift = sign * (growth - 0.5 * std**2)
    low = sign * jnp.log(start / spot)
    center = larger(drift + larger(sign, 0.0) * std**2, 0.0)
    high = larger(low, center) + _REACH * std
    points, weights = (jnp.asarray(x, low.dtype) for x in _POINTS)
    half = 0.5 * (high - low)
    h = low + half * (1.0 + points)
    touched = cdf((drift - h) / std) + scaled_cdf(2.0 * drift * h / std**2, -(drift + h) / std)
    return half * (weights @ (spot * jnp.exp(sign * h) * touched))


LOOKBACK = Formula(Lookback, _missing, _value)
