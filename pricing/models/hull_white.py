"""The Hull-White model: dr = (theta(t) - a r) dt + sigma dW, fitted to today's curve."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import FlatOr, Number, Numeric, non_negative, positive, real
from ..market import SwaptionVols
from ..market.state import MarketState
from .at_the_money import normal_vol, with_parameters
from .diffusion import Diffusion, State
from .free_parameters import Calibratable, Exp, FreeParameter, Identity
from .model import Discounts, Quotes, Scalar, flat_or_curve
from .rate_model import BondState, GaussianFactors, mean_exponential
from .shapes import Numbers


class HullWhite(BondState, GaussianFactors, Diffusion, Calibratable):
    """The one-factor Gaussian short rate, dr = (theta(t) - a r) dt + sigma dW, as a linear Gauss-Markov model.

    Under the measure of the numeraire N, x is a martingale with variance zeta and
    P(t, T) / N(t, x) = P(0, T) exp(-H(T) x - H(T)^2 zeta(t) / 2),
    zeta(t) = sigma^2 e^{-2 a h} (e^{2 a t} - 1) / (2 a), H(T) = (1 - e^{-a (T - h)}) / a,
    both smooth through a = 0. With h = 0, N is the numeraire of an immediately maturing bond; for other h, that
    of the bond maturing at h (`anchored`). Prices do not depend on h.

    Hull and White (1990); Hagan and Woodward, Markov interest rate models (1999), for the form.

    Attributes:
        curve: Zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        mean_reversion: a per year, of any sign.
        vol: sigma of the short rate, per square root of a year.
        horizon: h, in years.

    Examples:
        >>> from pricing import HullWhite
        >>> f"{HullWhite(0.03, 0.05, 0.01).discount(10.0):.4f}"
        '0.7408'
    """

    label: ClassVar[str] = "Hull-White"
    step_is_exact: ClassVar[bool] = True
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "mean_reversion": FreeParameter(Identity(), start=0.05, low=-0.05, high=0.3),
        "vol": FreeParameter(Exp(), start=0.01, low=0.002, high=0.03),
    }

    curve: FlatOr[Discounts] = flat_or_curve("curve")
    mean_reversion: Numeric[Float[Array, ""]] = real("mean_reversion")
    vol: Numeric[Float[Array, ""]] = positive("vol")
    horizon: Numeric[Float[Array, ""]] = non_negative("horizon", default=0.0)

    def state_variance(self, t: Numbers) -> Numbers:
        a = self.mean_reversion
        return self.vol**2 * jnp.exp(-2.0 * a * self.horizon) * t * mean_exponential(2.0 * a * t)

    def anchored(self, horizon: Scalar) -> "HullWhite":
        return eqx.tree_at(lambda model: model.horizon, self, jax.lax.stop_gradient(horizon))

    def slope(self, maturity: Numbers) -> Numbers:
        """Return H: minus the derivative of log P(t, maturity) / N in x (years)."""
        return self._rate_slope(maturity - self.horizon)

    def deflated_bond(self, t: Numbers, maturity: Numbers, x: Numbers) -> Numbers:
        slope = self.slope(maturity)
        exponent = slope * x + 0.5 * slope**2 * self.state_variance(t)
        return self.discount(maturity) * jnp.exp(-exponent)

    @property
    def mean_reversions(self) -> Float[Array, "1"]:
        return self.mean_reversion[None]

    def state_covariance(self, t: Scalar) -> Float[Array, "1 1"]:
        return self._rate_variance(t)[None, None]

    @property
    def state0(self) -> State:
        """The short rate less today's forward rate, under the money-market measure.

        dX = (y(t) - a X) dt + sigma dW, y(t) = Var X_t = sigma^2 (1 - e^{-2 a t}) / (2 a); steps are exact.
        """
        return jnp.zeros((1,), self.vol.dtype)

    def drift(self, t: Scalar, x: State) -> State:
        return self._rate_variance(t) - self.mean_reversion * x

    def diffusion(self, t: Scalar, x: State) -> Array:
        del t, x
        return self.vol

    def step(self, t: Scalar, dt: Scalar, x: State, dw: State) -> State:
        mean = lambda t: 0.5 * (self.vol * self._rate_slope(t)) ** 2
        decay = jnp.exp(-self.mean_reversion * dt)
        return decay * (x - mean(t)) + mean(t + dt) + jnp.sqrt(self._rate_variance(dt) / dt) * dw

    def short_rate(self, t: Scalar, x: State) -> Scalar:
        return super().short_rate(t, x) + x[0]

    def observed(self, t: Scalar, x: State) -> MarketState:
        def bonds(maturities: Numbers) -> Numbers:
            slope = self._rate_slope(maturities - t)
            exponent = slope * x[0] + 0.5 * slope**2 * self._rate_variance(t)
            return self.discount(maturities) / self.discount(t) * jnp.exp(-exponent)

        return MarketState(bonds=bonds)

    def _rate_slope(self, left: Numbers) -> Numbers:
        """Return minus the derivative of log P(t, t + left) to the short rate (years)."""
        return left * mean_exponential(-self.mean_reversion * left)

    def _rate_variance(self, t: Numbers) -> Numbers:
        """Return the variance of the short rate at t."""
        return self.vol**2 * t * mean_exponential(-2.0 * self.mean_reversion * t)

    def starting_for(self, quotes: Quotes) -> "HullWhite":
        """Return the model with the normal vol of the quotes."""
        vol = normal_vol(quotes, self) if isinstance(quotes, SwaptionVols) else None
        return self if vol is None else with_parameters(self, vol=vol)

    def with_vol_shift(self, vol: Number) -> "HullWhite":
        return replace(self, vol=self.vol + vol)
