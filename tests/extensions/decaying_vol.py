"""A model in one file: Black-Scholes whose volatility decays.

1. Its numbers are fields; `pricing.fields` names bad input.
2. It inherits the abilities that it has, and every method that asks for one of them prices it: one Black vol
   for each expiry (closed forms), a characteristic function (Fourier, calibration to a surface), lognormal
   spots (Monte Carlo, quadrature, least squares, backward equations).
3. `with_vol_shift` says what "volatility up by one point" means.
4. `free_parameters` says what a calibration may move, from where, and how far; `label` is its name in reports.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from pricing.fields import Number, Numeric, positive, real
from pricing.models import (
    BlackVol,
    Calibratable,
    CharacteristicFunction,
    Exp,
    FreeParameter,
    Identity,
    LognormalSpots,
    flat_or_curve,
)

Real = Float[Array, "..."]
Scalar = Float[Array, ""]


class DecayingVol(BlackVol, CharacteristicFunction, LognormalSpots, Calibratable):
    """dS = (r - q) S dt + sigma(t) S dW with sigma(t) = vol exp(-decay t)."""

    spot: Numeric[Scalar] = positive("spot")
    rate: Any = flat_or_curve("rate")
    vol: Numeric[Scalar] = positive("vol")
    decay: Numeric[Scalar] = real("decay")
    dividend_yield: Numeric[Scalar] = real("dividend_yield", default=0.0)
    asset_correlation: None = None

    label: ClassVar[str] = "Decaying vol"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "vol": FreeParameter(Exp(), start=0.2, low=0.05, high=1.0),
        "decay": FreeParameter(Identity(), start=0.1, low=-0.5, high=0.5),
    }

    @property
    def is_constant(self) -> bool:
        return False

    def state_variance(self, t: Real) -> Real:
        """Return the integral of sigma(t)^2."""
        return -(self.vol**2) * jnp.expm1(-2.0 * self.decay * t) / (2.0 * self.decay)

    def total_variance(self, t: Scalar) -> Scalar:
        return self.state_variance(t)

    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        del strike
        return jnp.sqrt(self.state_variance(t) / t)

    def log_characteristic(
        self, u: Complex[Array, " nodes"], t: Scalar
    ) -> Complex[Array, " nodes"]:
        iu = u * jnp.asarray(1j, u.dtype)
        return -0.5 * self.state_variance(t).astype(u.dtype) * (u * u + iu)

    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.sqrt(self.state_variance(t)), jnp.zeros_like(t)

    def with_vol_shift(self, vol: Number) -> "DecayingVol":
        return eqx.tree_at(lambda model: model.vol, self, self.vol + vol)
