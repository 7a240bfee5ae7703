"""Realized variance: on dates, and with continuous monitoring.

On dates, under lognormal spots, E[log(S_i / S_(i-1))^2] is the variance of the step plus the square of its
mean. With continuous monitoring, the mean of the quadratic variation comes from the model (for Heston the
integral of the mean variance) or, for a surface, from the options of all strikes (Carr and Madan 1998, eq. 10):

    E[-2 log(S_T / F)] = 2 int (out-of-the-money option of strike K, undiscounted) / K^2 dK,

which is the variance of paths without jumps.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, BlackVol, CharacteristicFunction, LognormalSpots
from ..models.black_scholes import ImpliedVols
from ..numerics.black import black
from ..numerics.gauss_legendre import gauss_legendre
from ..products import VarianceSwap
from .formula import Formula, lacks_lognormal
from .path_dependent import steps_of

Scalar = Float[Array, ""]

_POINTS = gauss_legendre(512)  # piecewise linear vols have kinks
_REACH = 9.0  # standard deviations of the log-spot


def _missing(product: VarianceSwap, model: AbstractModel) -> str | None:
    is_variance = product.measure == "variance"
    if product.dates is not None:
        return lacks_lognormal(model) if is_variance else "closed form of a volatility on dates"
    if not is_variance:
        return lacks_lognormal(model)
    if isinstance(model, CharacteristicFunction | BlackVol):
        return None if model.underlying.size == 1 else "1 asset"
    return "known mean of the integrated variance"


def _value(product: VarianceSwap, model: Any) -> Scalar:
    if product.dates is not None:
        growth, variances = steps_of(model, product.dates, product.initial_spot)
        means = jnp.log(growth) - 0.5 * variances
        total = jnp.sum(variances + means**2)
        count = product.num_returns
    else:
        now = jax.lax.stop_gradient(model.spot)
        # 0 today; its second derivative gives Gamma
        of_this_move = jnp.sum(jnp.log(model.spot / now) ** 2)
        total = _mean_variation(model, product.expiry) + of_this_move
        count = product.annualization * (product.expiry - product.age)
    return model.discount(product.expiry) * product.paid(total, count)


def _mean_variation(model: AbstractModel, t: Scalar) -> Scalar:
    """Return the mean of the quadratic variation of the log-spot to t (years)."""
    if isinstance(model, LognormalSpots) and not isinstance(
        getattr(model, "vol", None), ImpliedVols
    ):
        return model.state_variance(t)
    if isinstance(model, BlackVol):
        return _of_all_strikes(model, t)
    assert isinstance(model, CharacteristicFunction)
    return model.total_variance(t)


def _of_all_strikes(model: BlackVol, t: Scalar) -> Scalar:
    """Return the variance implied by options of all strikes, by integrals over x = log(K / F) on both sides."""
    forward = model.forward(t)
    points, weights = (jnp.asarray(x, forward.dtype) for x in _POINTS)

    def std_at(x: Scalar) -> Scalar:
        return model.black_vol(t, forward * jnp.exp(x)) * jnp.sqrt(t)

    def side_of_forward(side: float) -> Scalar:
        end = side * _REACH * std_at(jnp.zeros_like(t))
        for _ in range(2):  # vols in the wing may be higher
            end = side * _REACH * jnp.maximum(jnp.abs(std_at(end)), std_at(jnp.zeros_like(t)))
        end = jax.lax.stop_gradient(end)

        def option(x: Scalar) -> Scalar:
            # undiscounted over the forward; dK / K^2 = dx / K
            return black(
                jnp.ones_like(x), jnp.exp(x), std_at(x), side * jnp.ones_like(x)
            ) / jnp.exp(x)

        half = 0.5 * end
        return side * half * (weights @ jax.vmap(option)(half * (1.0 + points)))

    return 2.0 * (side_of_forward(1.0) + side_of_forward(-1.0))


VARIANCE_SWAP = Formula(VarianceSwap, _missing, _value)
