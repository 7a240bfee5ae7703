"""Black and Scholes: dS = (r - q) S dt + sigma S dW."""

from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import AbstractSchedule

from ..fields import Number, positive, real
from .model import (
    AbstractModel,
    BlackVol,
    ConditionallyGaussian,
    Scalar,
    Walk,
    flat_or_curve,
)


@runtime_checkable
class ImpliedVols(Protocol):
    """A surface: an implied volatility for each expiry and strike."""

    def vol(self, t: Scalar, strike: Scalar) -> Scalar: ...

    def shifted(self, vol: Scalar) -> "ImpliedVols": ...


class BlackScholes(BlackVol, ConditionallyGaussian):
    """Lognormal spot; a surface in place of a constant volatility is read at each contract's expiry and strike.

    spot: currency; rate: per year, continuous, a number or a curve; vol: per square root of a year, a
    number or a surface; dividend_yield: per year, continuous.

    Black and Scholes (1973), eq. 13; Merton (1973) for the dividend yield.
    """

    spot: Float[Array, ""] = positive("spot")
    rate: Any = flat_or_curve("rate")
    vol: Any = flat_or_curve("vol", ImpliedVols)
    dividend_yield: Float[Array, ""] = real("dividend_yield", default=0.0)

    variance_is_random: ClassVar[bool] = False

    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        return self.vol.vol(t, strike) if isinstance(self.vol, ImpliedVols) else self.vol

    def walk(
        self,
        noise: Float[Array, "steps paths"],
        dt: Scalar,
        strike: Scalar,
        schedule: AbstractSchedule,
    ) -> Walk:
        """Steps of equal variance; a surface is read at the last date and the strike."""
        del schedule
        variance = self.black_vol(dt * noise.shape[0], strike) ** 2 * dt
        variances = jnp.full(noise.shape, variance)
        return Walk(-0.5 * variances, variances, variances)

    def with_vol_shift(self, vol: Number) -> "AbstractModel":
        moved = self.vol.shifted(vol) if isinstance(self.vol, ImpliedVols) else self.vol + vol
        return eqx.tree_at(lambda model: model.vol, self, moved)
