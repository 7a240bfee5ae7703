"""G2++: the short rate as the sum of two correlated Gaussian factors, fitted to today's curve."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import FlatOr, Number, Numeric, between, non_negative, positive, real
from ..market import SwaptionVols
from .at_the_money import normal_vol, with_parameters
from .free_parameters import Calibratable, Exp, FreeParameter, Identity, Tanh
from .model import Discounts, Quotes, flat_or_curve
from .rate_model import GaussianFactors, mean_exponential


class G2(GaussianFactors, Calibratable):
    """r = u + v + phi(t), du = -a u dt + sigma dW, dv = -b v dt + eta dB, d<W, B> = rho dt.

    In the notation of `GaussianFactors`, x = (u, v) and
    V_ij(t) = rho_ij sigma_i sigma_j (1 - e^{-(a_i + a_j) t}) / (a_i + a_j). A shift of the volatility level by
    c moves sigma by c and eta in proportion.

    Exchanging (a, sigma) and (b, eta) gives the same model, and the same calibration loss. The default and
    random starts have a > b (the fast factor first), and a search keeps its initial order unless it passes
    through a = b.

    Brigo and Mercurio (2006), sec. 4.2.

    Attributes:
        curve: Zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        mean_reversion: a per year, of any sign.
        vol: sigma per square root of a year.
        second_mean_reversion: b per year, of any sign.
        second_vol: eta per square root of a year.
        correlation: rho, in [-1, 1].

    Examples:
        >>> from pricing import G2
        >>> G2(0.03, 0.4, 0.012, 0.05, 0.01, -0.6).mean_reversions.shape
        (2,)
    """

    label: ClassVar[str] = "G2++"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "mean_reversion": FreeParameter(Identity(), start=0.5, low=0.2, high=1.0),
        "vol": FreeParameter(Exp(), start=0.01, low=0.003, high=0.03),
        "second_mean_reversion": FreeParameter(Identity(), start=0.05, low=0.005, high=0.15),
        "second_vol": FreeParameter(Exp(), start=0.01, low=0.003, high=0.03),
        "correlation": FreeParameter(Tanh(), start=-0.5, low=-0.8, high=0.2),
    }

    curve: FlatOr[Discounts] = flat_or_curve("curve")
    mean_reversion: Numeric[Float[Array, ""]] = real("mean_reversion")
    vol: Numeric[Float[Array, ""]] = positive("vol")
    second_mean_reversion: Numeric[Float[Array, ""]] = real("second_mean_reversion")
    second_vol: Numeric[Float[Array, ""]] = non_negative("second_vol")
    correlation: Numeric[Float[Array, ""]] = between("correlation", -1.0, 1.0)

    @property
    def mean_reversions(self) -> Float[Array, "2"]:
        return jnp.stack([self.mean_reversion, self.second_mean_reversion])

    def state_covariance(self, t: Float[Array, ""]) -> Float[Array, "2 2"]:
        a = self.mean_reversions
        vols = jnp.stack([self.vol, self.second_vol])
        one = jnp.ones_like(self.correlation)
        rho = jnp.stack([jnp.stack([one, self.correlation]), jnp.stack([self.correlation, one])])
        time = t * mean_exponential(-(a[:, None] + a[None, :]) * t)
        return rho * vols[:, None] * vols[None, :] * time

    def starting_for(self, quotes: Quotes) -> "G2":
        """Return the model with the normal vol of the quotes for both factors."""
        vol = normal_vol(quotes, self) if isinstance(quotes, SwaptionVols) else None
        return self if vol is None else with_parameters(self, vol=vol, second_vol=vol)

    def with_vol_shift(self, vol: Number) -> "G2":
        second = self.second_vol * (1.0 + vol / self.vol)
        return replace(self, vol=self.vol + vol, second_vol=second)
