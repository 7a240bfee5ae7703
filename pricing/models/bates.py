"""The Bates model: Heston with lognormal jumps of the spot at random times."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape

from ..fields import (
    FlatOr,
    Number,
    Numeric,
    between,
    non_negative,
    not_below_zero,
    positive,
    real,
)
from ..numerics.complex_functions import exp
from .at_the_money import with_parameters
from .free_parameters import Calibratable, Exp, FreeParameter, Identity
from .heston import Heston, starts_at_the_money
from .model import (
    AbstractEquityModel,
    CharacteristicFunction,
    Discounts,
    Quotes,
    Scalar,
    flat_or_curve,
)
from .shapes import Frequencies


class Bates(CharacteristicFunction, Calibratable):
    """Mean-reverting stochastic variance, and jumps that multiply the spot by exp(J), J ~ N(mu, delta^2).

    dS / S = (r - q - lambda m) dt + sqrt(v) dW + (e^J - 1) dN, dv = kappa (theta - v) dt + xi sqrt(v) dB,
    d<W, B> = rho dt, with N a Poisson process of intensity lambda and m = E[e^J] - 1 = exp(mu + delta^2 / 2) -
    1. Without jumps it is `Heston`; with constant variance it is the model of Merton (1976). European claims
    are priced, and calibrated to surfaces, by Fourier inversion.

    Bates (1996), eq. 1 and 2.

    Attributes:
        spot: The price of the asset, in currency.
        rate: r per year, continuous, a number or a curve.
        initial_variance: v0 per year, of the diffusion only.
        mean_reversion: kappa per year.
        long_run_variance: theta per year.
        vol_of_vol: xi per year.
        correlation: rho, in [-1, 1].
        jump_intensity: lambda, the mean number of jumps per year.
        jump_mean: mu, the mean of a jump of the log-spot.
        jump_vol: delta, its standard deviation.
        dividend_yield: q per year, continuous: the yield less the cost of borrow, a number or a curve.

    Examples:
        >>> from pricing import Bates, European, price
        >>> model = Bates(100.0, 0.03, 0.04, 1.5, 0.04, 0.5, -0.6, 0.3, -0.1, 0.15)
        >>> f"{price(European(100.0, 1.0), model).value:.4f}"
        '9.7298'
    """

    spot: Numeric[Float[Array, ""]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    initial_variance: Numeric[Float[Array, ""]] = non_negative("initial_variance")
    mean_reversion: Numeric[Float[Array, ""]] = positive("mean_reversion")
    long_run_variance: Numeric[Float[Array, ""]] = non_negative("long_run_variance")
    vol_of_vol: Numeric[Float[Array, ""]] = positive("vol_of_vol")
    correlation: Numeric[Float[Array, ""]] = between("correlation", -1.0, 1.0)
    jump_intensity: Numeric[Float[Array, ""]] = non_negative("jump_intensity")
    jump_mean: Numeric[Float[Array, ""]] = real("jump_mean")
    jump_vol: Numeric[Float[Array, ""]] = positive("jump_vol")
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)

    label: ClassVar[str] = "Bates"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        **Heston.free_parameters,
        "jump_intensity": FreeParameter(Exp(), start=0.3, low=0.05, high=2.0),
        "jump_mean": FreeParameter(Identity(), start=-0.1, low=-0.3, high=0.1),
        "jump_vol": FreeParameter(Exp(), start=0.1, low=0.05, high=0.3),
    }

    def log_characteristic(self, u: Frequencies, t: Scalar) -> Frequencies:
        """Return that of Heston plus lambda t (exp(i u mu - u^2 delta^2 / 2) - 1 - i u m)."""
        numbers = self.jump_intensity * t, self.jump_mean, self.jump_vol, self._mean_relative_jump
        jumps = _compensated_jumps(u, *(x.astype(u.dtype) for x in numbers))
        return self.diffusion_part.log_characteristic(u, t) + jumps

    def total_variance(self, t: Scalar) -> Scalar:
        """Return the variance of the diffusion, plus lambda t (mu^2 + delta^2)."""
        jumps = self.jump_intensity * t * (self.jump_mean**2 + self.jump_vol**2)
        return self.diffusion_part.total_variance(t) + jumps

    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        """Return that of Heston, with the phase changed by the jump compensator, -lambda t m."""
        decay, drift = self.diffusion_part.tail_rate(t)
        return decay, drift - self.jump_intensity * t * self._mean_relative_jump

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        """Return the model with sqrt(v0) and sqrt(theta) shifted by `vol`; the jumps are unchanged."""
        levels = self.initial_variance, self.long_run_variance
        start, long_run = (not_below_zero("vol", jnp.sqrt(level) + vol) ** 2 for level in levels)
        return replace(self, initial_variance=start, long_run_variance=long_run)

    def starting_for(self, quotes: Quotes) -> "Bates":
        """Return the model with at-the-money variances, of which jumps scaled to the vol take a part."""
        starts = starts_at_the_money(self, quotes)
        if not starts:
            return self
        jump = _JUMP * starts["initial_variance"] ** 0.5
        of_jumps = float(self.jump_intensity) * 2.0 * jump**2
        for name in ("initial_variance", "long_run_variance"):
            starts[name] = max(starts[name] - of_jumps, 0.5 * starts[name])
        return with_parameters(self, **starts, jump_mean=-jump, jump_vol=jump)

    @property
    def diffusion_part(self) -> Heston:
        """The same model without jumps."""
        return Heston(
            self.spot, self.rate, self.initial_variance, self.mean_reversion, self.long_run_variance,
            self.vol_of_vol, self.correlation, self.dividend_yield,
        )  # fmt: skip

    @property
    def _mean_relative_jump(self) -> Scalar:
        """m, the mean relative move of the spot in a jump."""
        return jnp.expm1(self.jump_mean + 0.5 * self.jump_vol**2)


_JUMP = 0.5  # relative to the annual vol: the (negative) mean and the standard deviation of a jump


@jaxtape.no_inline
def _compensated_jumps(
    u: Frequencies, rate: Array, mean: Array, delta: Array, m: Array
) -> Frequencies:
    iu = u * jnp.asarray(1j, u.dtype)
    return rate * (exp(iu * mean - 0.5 * (u * delta) ** 2) - 1.0 - iu * m)
