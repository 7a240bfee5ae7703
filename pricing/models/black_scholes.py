"""Black and Scholes: dS = (r - q) S dt + sigma S dW, one asset or several."""

from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import AbstractSchedule

from ..fields import Number, correlations, positive, real
from ..market.state import MarketState
from .model import (
    AbstractEquityModel,
    BlackVol,
    ConditionallyGaussian,
    Discounts,
    GaussianState,
    Scalar,
    Walk,
    correlation_of,
    flat_or_curve,
)


@runtime_checkable
class ImpliedVols(Protocol):
    """A surface: an implied volatility for each expiry and strike."""

    def vol(self, t: Scalar, strike: Scalar) -> Scalar: ...

    def shifted(self, vol: Scalar) -> "ImpliedVols": ...


@runtime_checkable
class VolTerms(Protocol):
    """A term structure: the variance of the log-spot from today to each time."""

    def total_variance(self, t: Float[Array, "..."]) -> Float[Array, "..."]: ...

    def shifted(self, vol: Scalar) -> "VolTerms": ...


class BlackScholes(BlackVol, ConditionallyGaussian, GaussianState):
    """Lognormal spots; a surface of volatilities is read at each contract's expiry and strike.

    spot: currency, a number or one for each asset; rate: per year, continuous, a number or a curve; vol: per
    square root of a year, a number (or one for each asset), a term structure (`VolCurve`) or a surface;
    dividend_yield: per year, continuous; correlation: of several assets, [assets, assets].

    Black and Scholes (1973), eq. 13; Merton (1973) for the dividend yield.
    """

    spot: Float[Array, "*assets"] = positive("spot")
    rate: Any = flat_or_curve("rate")
    vol: Any = flat_or_curve("vol", (ImpliedVols, VolTerms))
    dividend_yield: Float[Array, "*assets"] = real("dividend_yield", default=0.0)
    correlation: Float[Array, "assets assets"] | None = correlations("correlation", default=None)

    variance_is_random: ClassVar[bool] = False

    @property
    def is_constant(self) -> bool:
        return not isinstance(self.rate, Discounts) and not isinstance(self.vol, VolTerms)

    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        if isinstance(self.vol, VolTerms):
            return jnp.sqrt(self.vol.total_variance(t) / t)
        return self.vol.vol(t, strike) if isinstance(self.vol, ImpliedVols) else self.vol

    def read_at(self, place: tuple[Scalar, Scalar] | None) -> Any:
        if place is None or not isinstance(self.vol, ImpliedVols):
            return self
        return eqx.tree_at(lambda model: model.vol, self, self.vol.vol(*place))

    def state_variance(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """Variance of the log-spot at t; for several assets their axis comes last."""
        if isinstance(self.vol, ImpliedVols):
            raise TypeError(
                "a surface has no one variance: read it first, model.read_at(product.vol_at)"
            )
        if isinstance(self.vol, VolTerms):
            return self.vol.total_variance(t)
        variance_rate = jnp.broadcast_to(self.vol, self.spot.shape) ** 2
        if variance_rate.ndim == 0:
            return variance_rate * t
        return jnp.tensordot(t, variance_rate, axes=0)

    def deflator(self, t: Scalar, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """The discount factor: rates do not depend on the state."""
        return jnp.broadcast_to(self.discount(t), x.shape)

    def market_state(self, t: Scalar, x: Scalar) -> MarketState:
        return MarketState(spot=self.forward(t) * jnp.exp(x - 0.5 * self.state_variance(t)))

    @property
    def residual_correlation(self) -> Float[Array, "assets assets"]:
        return correlation_of(self.correlation, self.spot)

    def walk(
        self,
        noise: Float[Array, "steps *assets paths"],
        times: Float[Array, " steps"],
        schedule: AbstractSchedule,
    ) -> Walk:
        del schedule
        total = self.state_variance(times)
        variance = jnp.diff(total, axis=0, prepend=jnp.zeros_like(total[:1]))
        length = jnp.diff(times, prepend=jnp.zeros_like(times[:1]))
        moves = (length > 0.0).reshape(-1, *(1,) * (total.ndim - 1))  # a date may come twice
        variance = jnp.where(moves, variance, 0.0)
        variance = jnp.where(variance < 0.0, jnp.nan, variance)  # no such law
        variances = jnp.broadcast_to(variance[..., None], noise.shape)
        return Walk(-0.5 * variances, variances, variances, jnp.zeros_like(variances), length)

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        moved = self.vol + vol if isinstance(self.vol, Array) else self.vol.shifted(vol)
        return eqx.tree_at(lambda model: model.vol, self, moved)
