"""The Black-Scholes model: dS = (r - q) S dt + sigma S dW, for one or several assets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..fields import FlatOr, Number, Numeric, correlations, non_negative, positive
from ..market import DeltaSurface
from ..results import RESULTS
from .free_parameters import Calibratable, ForwardVols, FreeParameter
from .lognormal import LognormalSpots
from .model import (
    AbstractEquityModel,
    BlackVol,
    Discounts,
    Joinable,
    Scalar,
    YieldCurves,
    flat_or_curve,
    is_flat,
    stacked,
)
from .shapes import Correlation, Numbers

_SMALL_VOL = 1e-3  # below it early-exercise methods, and derivatives, may divide by 0
_ROUNDING = 64.0  # in eps over the standard deviation; 5 occurred


@runtime_checkable
class ImpliedVols(Protocol):
    """A surface with an implied volatility for each expiry and strike."""

    def vol(self, t: Scalar, strike: Scalar) -> Scalar: ...

    def shifted(self, vol: Scalar) -> "ImpliedVols": ...


@runtime_checkable
class VolTerms(Protocol):
    """A term structure of the variance of the log-spot from today to each time."""

    def total_variance(self, t: Numbers) -> Numbers: ...

    def shifted(self, vol: Scalar) -> "VolTerms": ...


class BlackScholes(BlackVol, LognormalSpots, Joinable, Calibratable):
    """Lognormal spots; a volatility surface is read at each contract's strike.

    dS = (r - q) S dt + sigma S dW. Black and Scholes (1973), eq. 13; Merton (1973) for the dividend yield. Rate
    and vol may depend on time. They cannot depend on the spot, so under a surface each contract has its own
    dynamics: sigma(t)^2 is the time derivative of vol(t, K)^2 t at the contract's strike K. This reprices
    European options with that strike at every expiry, and ignores the smile at other levels, such as a barrier.
    `LocalVol` and `Heston` have the same dynamics for all strikes.

    A payoff of the spot at a single time, such as a digital, is valued under the distribution implied by the
    vols of all strikes.

    A calibration changes the vol, or the vols of a `VolCurve` with increasing total variance; a surface needs
    no calibration.

    Attributes:
        spot: The price of the asset, or the prices of several, of shape (assets,), in currency.
        rate: r per year, continuous, a number or a curve.
        vol: sigma per square root of a year, at least 0: a number (or one for each asset), a term structure
            (`VolCurve`) or a surface.
        dividend_yield: q per year, continuous: the yield of each asset less its cost of borrow, a number or a
            curve.
        asset_correlation: The correlations of several assets, of shape (assets, assets); None if independent.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> f"{price(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2)).value:.3f}"
        '10.451'
    """

    spot: Numeric[Float[Array, "*assets"]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    vol: FlatOr[ImpliedVols | VolTerms] = flat_or_curve(
        "vol", (ImpliedVols, VolTerms), non_negative
    )
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)
    asset_correlation: Numeric[Correlation | None] = correlations("asset_correlation", default=None)

    label: ClassVar[str] = "Black-Scholes"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "vol": FreeParameter(ForwardVols(), start=0.2, low=0.05, high=0.6)
    }

    @property
    def is_constant(self) -> bool:
        return all(map(is_flat, (self.rate, self.dividend_yield, self.vol)))

    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        if isinstance(self.vol, VolTerms):
            return jnp.sqrt(self.vol.total_variance(t) / t)
        return self.vol.vol(t, strike) if isinstance(self.vol, ImpliedVols) else self.vol

    def why_not_finite(self) -> RESULTS:
        still = isinstance(self.vol, Array) and bool(jnp.any(self.vol < _SMALL_VOL))
        return RESULTS.no_volatility if still else RESULTS.non_finite

    def at_smile_point(self, place: tuple[Scalar, Scalar] | None) -> Any:
        if place is None or not isinstance(self.vol, ImpliedVols):
            return self
        strike = place[1]
        surface = self.vol.struck(strike) if isinstance(self.vol, DeltaSurface) else self.vol
        return eqx.tree_at(lambda model: model.vol, self, AtStrike(surface, strike))

    def state_variance(self, t: Numbers) -> Numbers:
        """Return the variance of the log-spot at t; several assets are on the last axis.

        Raises:
            TypeError: The vol is a surface that has not yet been read (`at_smile_point`).
        """
        if isinstance(self.vol, ImpliedVols):
            raise TypeError(
                "a surface has no one variance: read it first, model.at_smile_point(product.smile_point)"
            )
        if isinstance(self.vol, ForwardMoneyVols):
            return self.vol.total_variance(t)
        if isinstance(self.vol, VolTerms):
            total = self.vol.total_variance(t)
            each = jnp.expand_dims(total, tuple(range(-self.spot.ndim, 0)))
            return jnp.broadcast_to(each, total.shape + self.spot.shape)
        variance_rate = jnp.broadcast_to(self.vol, self.spot.shape) ** 2
        if variance_rate.ndim == 0:
            return variance_rate * t
        return jnp.tensordot(t, variance_rate, axes=0)

    @property
    def alone(self) -> "BlackScholes":
        """The single-asset model of an array with one asset, or the model itself."""
        if self.spot.ndim == 0:
            return self
        first = lambda x: jnp.ravel(x)[0]
        return replace(
            self,
            spot=first(self.spot),
            vol=first(self.vol) if isinstance(self.vol, Array) else self.vol,
            dividend_yield=self._first_yield,
            asset_correlation=None,
        )

    @property
    def _first_yield(self) -> Any:
        """The dividend yield of the first asset."""
        if isinstance(self.dividend_yield, YieldCurves):
            return self.dividend_yield.yields[0]
        return (
            self.dividend_yield
            if isinstance(self.dividend_yield, Discounts)
            else jnp.ravel(self.dividend_yield)[0]
        )

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        moved = self.vol + vol if isinstance(self.vol, Array) else self.vol.shifted(vol)
        return replace(self, vol=moved)

    @classmethod
    def joined(
        cls, models: Sequence["BlackScholes"], asset_correlation: Correlation
    ) -> "BlackScholes":
        """Return one model; for several assets, surfaces are read at the forward for each time."""
        if len(models) == 1 and isinstance(models[0].vol, ImpliedVols):
            return stacked(models, asset_correlation=asset_correlation, vol=models[0].vol)
        if all(isinstance(model.vol, Array) for model in models):
            return stacked(models, asset_correlation=asset_correlation)
        return stacked(
            models, asset_correlation=asset_correlation, vol=ForwardMoneyVols(tuple(models))
        )


class AtStrike(eqx.Module):
    """The term structure of vols of a surface at one strike.

    Total variance cannot decrease: from the first quoted expiry at which it does, it is NaN.
    """

    surface: ImpliedVols
    strike: Scalar

    def total_variance(self, t: Numbers) -> Numbers:
        """Return the variance of the log-spot from today to `t` (years)."""
        total = self.surface.vol(t, self.strike) ** 2 * t
        if getattr(self.surface, "expiries", None) is None:
            return total
        return jnp.where(jnp.vectorize(self._has_fallen)(t, total), jnp.nan, total)

    def _has_fallen(self, t: Scalar, total: Scalar) -> Bool[Array, ""]:
        """Return True if the total variance at `t`, or at an expiry up to `t`, is below an earlier one."""
        surface: Any = self.surface
        expiries, total = jax.lax.stop_gradient((surface.expiries, total))
        pillars = jax.lax.stop_gradient(surface.vol(expiries, self.strike)) ** 2 * expiries
        passed = jnp.append(jnp.where(expiries <= t, pillars, 0.0), total)
        highest = jax.lax.cummax(passed)
        # programs round converted vols differently, by some eps over the standard deviation
        rounding = _ROUNDING * jnp.finfo(total.dtype).eps * (jnp.sqrt(highest) + highest)
        falls = passed < highest - rounding
        return jnp.any(falls & jnp.append(expiries <= t, True))

    def shifted(self, vol: Number) -> "AtStrike":
        """Return the same with every vol shifted by `vol`."""
        return AtStrike(self.surface.shifted(vol), self.strike)


class ForwardMoneyVols(eqx.Module):
    """The variances of several assets, each from the vol of its own model at the forward for each time.

    The forwards are fixed when the models are joined. They do not move with shifted spots, so spot Greeks keep
    the vols fixed.
    """

    models: tuple[Any, ...]

    def total_variance(self, t: Numbers) -> Float[Array, "... assets"]:
        """Return the variance of each log-spot from today to `t` (years)."""
        return jnp.stack([self._variance(model, t) for model in self.models], axis=-1)

    def _variance(self, model: BlackScholes, t: Numbers) -> Numbers:
        if isinstance(model.vol, ImpliedVols):
            return model.vol.vol(t, jnp.vectorize(model.forward)(t)) ** 2 * t
        return model.state_variance(t)

    def shifted(self, vol: Number) -> "ForwardMoneyVols":
        """Return the same with every vol shifted by `vol`."""
        return ForwardMoneyVols(tuple(model.shifted(vol=vol) for model in self.models))
