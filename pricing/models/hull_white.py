"""Hull and White: dr = (theta(t) - a r) dt + sigma dW, fitted to today's curve."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Number, non_negative, positive, real
from .model import Scalar, flat_or_curve
from .rates import BondState, mean_exponential


class HullWhite(BondState):
    """The one-factor Gaussian short rate, as a linear Gauss-Markov model.

    Under the measure of its numeraire N, x is a martingale of variance zeta and
    P(t, T) / N(t, x) = P(0, T) exp(-H(T) x - H(T)^2 zeta(t) / 2),
    zeta(t) = sigma^2 e^{-2 a h} (e^{2 a t} - 1) / (2 a), H(T) = (1 - e^{-a (T - h)}) / a,
    both smooth through a = 0. With h = 0 N is the price of the money that an immediately maturing bond buys
    today; with another h, of the bond that matures then (`anchored`). No price depends on it.

    curve: zero rates (`ZeroCurve`) or one flat rate, continuous, per year; mean_reversion a: per year, of any
    sign; vol sigma: of the short rate, per square root of a year; horizon h: years.

    Hull and White (1990); Hagan and Woodward, Markov interest rate models (1999), for the form.
    """

    curve: Any = flat_or_curve("curve")
    mean_reversion: Float[Array, ""] = real("mean_reversion")
    vol: Float[Array, ""] = positive("vol")
    horizon: Float[Array, ""] = non_negative("horizon", default=0.0)

    def state_variance(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        a = self.mean_reversion
        return self.vol**2 * jnp.exp(-2.0 * a * self.horizon) * t * mean_exponential(2.0 * a * t)

    def anchored(self, horizon: Scalar) -> "HullWhite":
        return eqx.tree_at(lambda model: model.horizon, self, jax.lax.stop_gradient(horizon))

    def slope(self, maturity: Float[Array, "..."]) -> Float[Array, "..."]:
        """H: minus the derivative of log P(t, maturity) / N in x (years)."""
        after = maturity - self.horizon
        return after * mean_exponential(-self.mean_reversion * after)

    def deflated_bond(
        self, t: Float[Array, "..."], maturity: Float[Array, "..."], x: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        slope = self.slope(maturity)
        exponent = slope * x + 0.5 * slope**2 * self.state_variance(t)
        return self.discount(maturity) * jnp.exp(-exponent)

    def with_vol_shift(self, vol: Number) -> "HullWhite":
        return eqx.tree_at(lambda model: model.vol, self, self.vol + vol)
