"""Heston: dS = (r - q) S dt + sqrt(v) S dW, dv = kappa (theta - v) dt + xi sqrt(v) dB, d<W, B> = rho dt."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Number, between, correlations, non_negative, positive, real
from ..numerics.complex_functions import exp, log1p_over, reciprocal, sqrt
from ..numerics.elementwise import elementwise
from .model import (
    AbstractEquityModel,
    CharacteristicFunction,
    Joinable,
    Scalar,
    flat_or_curve,
    stacked,
)
from .parameters import Calibratable, Exp, FreeParameter, Tanh
from .quadratic_exponential import QuadraticExponential
from .shapes import Correlation, Frequencies, Numbers
from .stochastic_variance import StochasticVariance


class Heston(StochasticVariance, CharacteristicFunction, Joinable, Calibratable):
    """Stochastic variance, mean reverting, correlated with the spot.

    dS = (r - q) S dt + sqrt(v) S dW, dv = kappa (theta - v) dt + xi sqrt(v) dB, d<W, B> = rho dt. The Feller
    condition is not asked for. Several assets have arrays in place of numbers (`StochasticVariance`).

    Heston (1993), eq. 1 and 4.

    Attributes:
        spot: The price of the asset, or the prices of several, of shape (assets,), in currency.
        rate: r per year, continuous, a number or a curve.
        initial_variance: v0 per year.
        mean_reversion: kappa per year.
        long_run_variance: theta per year.
        vol_of_vol: xi per year.
        correlation: rho, in [-1, 1].
        dividend_yield: q per year, continuous.
        asset_correlation: Of several assets, of shape (assets, assets); None where they are independent.

    Examples:
        >>> from pricing import Heston
        >>> model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        >>> f"{model.mean_variance(0.04, 1.0):.4f}"
        '0.0555'
    """

    spot: Float[Array, "*assets"] = positive("spot")
    rate: Any = flat_or_curve("rate")
    initial_variance: Float[Array, "*assets"] = non_negative("initial_variance")
    mean_reversion: Float[Array, "*assets"] = positive("mean_reversion")
    long_run_variance: Float[Array, "*assets"] = non_negative("long_run_variance")
    vol_of_vol: Float[Array, "*assets"] = positive("vol_of_vol")
    correlation: Float[Array, "*assets"] = between("correlation", -1.0, 1.0)
    dividend_yield: Float[Array, "*assets"] = real("dividend_yield", default=0.0)
    asset_correlation: Correlation | None = correlations("asset_correlation", default=None)

    label: ClassVar[str] = "Heston"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "initial_variance": FreeParameter(Exp(), start=0.1, low=0.01, high=0.5),
        "mean_reversion": FreeParameter(Exp(), start=1.0, low=0.2, high=20.0),
        "long_run_variance": FreeParameter(Exp(), start=0.1, low=0.01, high=0.5),
        "vol_of_vol": FreeParameter(Exp(), start=0.5, low=0.1, high=4.0),
        "correlation": FreeParameter(Tanh(), start=-0.5, low=-0.9, high=0.5),
    }

    def log_characteristic(self, u: Frequencies, t: Scalar) -> Frequencies:
        """Return log E[exp(i u X)], free of branch cuts (Albrecher et al. 2007), stable as vol_of_vol -> 0.

        With beta = kappa - rho xi i u, D = sqrt(beta^2 + xi^2 (u^2 + i u)), A = (beta - D) / xi^2 and
        g = (beta - D) / (beta + D):
        v0 A (1 - e^{-Dt}) / (1 - g e^{-Dt}) + kappa theta (A t - 2 log((1 - g e^{-Dt}) / (1 - g)) / xi^2).
        """
        v0, kappa, theta, xi, rho, t = (
            x.astype(u.dtype)
            for x in (
                self.initial_variance, self.mean_reversion, self.long_run_variance,
                self.vol_of_vol, self.correlation, t,
            )
        )  # fmt: skip
        iu = u * jnp.asarray(1j, u.dtype)
        of_level, of_start = _exponents(u * u + iu, kappa - rho * xi * iu, xi * xi, t)
        return kappa * theta * of_level + v0 * of_start

    def mean_variance(self, variance: Numbers, t: Numbers) -> Numbers:
        """Return theta + (v - theta) e^{-kappa t}."""
        excess = variance - self.long_run_variance
        return self.long_run_variance + excess * jnp.exp(-self.mean_reversion * t)

    def mean_integral(self, variance: Numbers, t: Numbers) -> Numbers:
        """Return theta t + (v - theta) (1 - e^{-kappa t}) / kappa."""
        excess = variance - self.long_run_variance
        decayed = -jnp.expm1(-self.mean_reversion * t) / self.mean_reversion
        return self.long_run_variance * t + excess * decayed

    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        """Return (sqrt(1 - rho^2), -rho) (v0 + kappa theta t) / xi."""
        scale = self.initial_variance + self.mean_reversion * self.long_run_variance * t
        over = scale / self.vol_of_vol
        return jnp.sqrt(1.0 - self.correlation**2) * over, -self.correlation * over

    def variance_drift(self, v: Numbers) -> Numbers:
        return self.mean_reversion * (self.long_run_variance - v)

    def variance_of_variance(self, v: Numbers) -> Numbers:
        return self.vol_of_vol**2 * v

    def spot_covariance(self, v: Numbers) -> Numbers:
        return self.correlation * self.vol_of_vol * v

    def highest_variance(self, t: Scalar) -> Scalar:
        """Return four standard deviations above the higher of the levels, and more where they are small."""
        kappa = self.mean_reversion
        level = jnp.maximum(self.initial_variance, self.long_run_variance)
        scale = -0.5 * self.vol_of_vol**2 * jnp.expm1(-kappa * t) / kappa
        return level + 4.0 * jnp.sqrt(level * scale) + 6.0 * scale

    def variance_scheme(self, dt: Scalar) -> QuadraticExponential:
        """Return Andersen's QE-M: no square root at zero variance is ever differentiated.

        Paths are continuous in the parameters but for the scheme's switch, with a kink where the variance
        reaches zero.
        """
        return QuadraticExponential.of(
            self.mean_reversion, self.long_run_variance, self.vol_of_vol, self.correlation, dt
        )

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        """Return the model with sqrt(v0) and sqrt(theta) up by `vol`: a parallel shift of the level."""
        levels = (self.initial_variance, self.long_run_variance)
        return eqx.tree_at(
            lambda model: (model.initial_variance, model.long_run_variance),
            self,
            tuple((jnp.sqrt(level) + vol) ** 2 for level in levels),
        )

    @classmethod
    def joined(cls, models: Sequence["Heston"], correlation: Correlation) -> "Heston":
        return stacked(models, asset_correlation=correlation)


@elementwise
def _exponents(
    symbol: Frequencies, beta: Frequencies, xi2: Array, t: Array
) -> tuple[Frequencies, Frequencies]:
    """Return what kappa theta and v0 are multiplied by in `Heston.log_characteristic`."""
    root = sqrt(beta * beta + xi2 * symbol)
    per_sum = reciprocal(beta + root)
    a = -symbol * per_sum
    g_over_xi2 = a * per_sum
    g = xi2 * g_over_xi2
    decay = exp(-root * t)
    lost = 1.0 - decay
    # log((1 - g e) / (1 - g)) / xi^2 through z = g (1 - e) / (1 - g), where g / xi^2 stays finite
    z_over_xi2 = g_over_xi2 * lost * reciprocal(1.0 - g)
    log_term = z_over_xi2 * log1p_over(xi2 * z_over_xi2)
    return a * t - 2.0 * log_term, a * lost * reciprocal(1.0 - g * decay)
