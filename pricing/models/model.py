"""The abstract models, and the abilities that methods may require."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..fields import Number, finite_numbers, real
from ..market import Market, SmileQuotes, SwaptionVols, VolSurface
from ..market.state import MarketState
from ..numbers_shown import repr_with_numbers
from ..results import RESULTS
from .shapes import Correlation, Frequencies, Numbers, Steps, Times

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

Quotes = VolSurface | SmileQuotes | SwaptionVols
"""Volatilities to which a model may be fitted."""

Scalar = Float[Array, ""]
Model = TypeVar("Model", bound="AbstractEquityModel")


@runtime_checkable
class Discounts(Protocol):
    """A curve: an object that discounts and can be shifted in parallel."""

    def discount(self, t: Scalar) -> Scalar: ...

    def shifted(self, rate: Scalar) -> "Discounts": ...


def flat_or_curve(
    name: str,
    ability: type | tuple[type, ...] = Discounts,
    constant: Callable[[str], Any] = real,
    **kwargs: Any,
) -> Any:
    """Return a field for a constant or an object with one of the given abilities (a curve, a surface).

    Args:
        name: The name of the field in errors.
        ability: The class or protocol, or several, of objects that may replace a number. All of their numbers
            must be finite.
        constant: The field for a number, such as `non_negative`.
        **kwargs: The other arguments of the field, such as a default.

    Returns:
        The field of an `eqx.Module`.

    Examples:
        >>> import equinox as eqx
        >>> class Account(eqx.Module):
        ...     rate: object = flat_or_curve("rate")
        >>> Account("3%")
        Traceback (most recent call last):
        ...
        TypeError: rate must be a finite number, got '3%'
    """
    of_number, of_object = constant(name).metadata["converter"], finite_numbers(name)

    def convert(value: Number):
        return of_object(value) if isinstance(value, ability) else of_number(value)

    return eqx.field(converter=convert, metadata={"core": 0}, **kwargs)


def is_flat(value: Any) -> bool:
    """Return True if a number, a curve or a surface is flat in time for any values of its numbers.

    A curve without a property `is_flat` is assumed not to be flat.

    Args:
        value: The field that `flat_or_curve` converts.

    Returns:
        True for a number, and for a curve with one pillar.

    Examples:
        >>> from pricing import ZeroCurve
        >>> is_flat(ZeroCurve([1.0], [0.03])), is_flat(ZeroCurve([1.0, 2.0], [0.03, 0.03]))
        (True, False)
    """
    return isinstance(value, Array) or getattr(value, "is_flat", False)


class AbstractModel(eqx.Module):
    """A model of the market, which can discount and be shifted.

    Attributes:
        underlying: The variable of Delta and Gamma: the spot or spots of an equity model, the parallel level of
            the zero rates of a rate model.
    """

    __repr__ = repr_with_numbers

    underlying: AbstractVar[Numbers]

    @abc.abstractmethod
    def discount(self, t: Scalar) -> Scalar:
        """Return today's value of 1 paid in t years."""

    @abc.abstractmethod
    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "AbstractModel":
        """Return the model after shifts of the underlying, the volatility level and all rates."""

    @classmethod
    @abc.abstractmethod
    def from_market(cls, market: Market, name: str, **parameters: Any) -> Any:
        """Return the model of one underlying of a market, with `parameters` for its other fields."""

    @abc.abstractmethod
    def on_market(self, market: Market, name: str) -> Any:
        """Return the model with its own parameters and the market data of an underlying."""

    @classmethod
    @abc.abstractmethod
    def quotes_in(cls, market: Market) -> Mapping[str, Quotes]:
        """Return the volatilities to which such a model may be fitted, by underlying."""

    def why_not_finite(self) -> RESULTS:
        """Return the reason, as far as the model determines it, why a value is not finite."""
        return RESULTS.non_finite

    def at_smile_point(self, place: tuple[Scalar, Scalar] | None) -> Any:
        """Return the model for a contract with this (expiry, strike): a surface is read at the strike."""
        del place
        return self


class AbstractEquityModel(AbstractModel):
    """A model of assets with an interest rate and dividend yields, continuously compounded.

    Attributes:
        spot: The price of the asset, or the prices of several, of shape (assets,), in currency.
        rate: The interest rate per year, a number or a curve.
        dividend_yield: The dividend yield of each asset less its cost of borrow, per year: a number, or a curve
            whose discount factor is the number of assets today that grows to one.

    Examples:
        >>> from pricing.models import BlackScholes
        >>> f"{BlackScholes(100.0, 0.05, 0.2, 0.02).forward(1.0):.2f}"
        '103.05'
    """

    spot: AbstractVar[Numbers]
    rate: AbstractVar[Any]
    dividend_yield: AbstractVar[Any]

    @property
    def underlying(self) -> Numbers:
        return self.spot

    @jaxtape.no_inline
    def discount(self, t: Scalar) -> Scalar:
        return _discount(self.rate, t)

    @jaxtape.no_inline
    def dividend_discount(self, t: Scalar) -> Numbers:
        """Return the number of each asset that grows to one in t years through its dividend yield."""
        return _discount(self.dividend_yield, t)

    @jaxtape.no_inline
    def forward(self, t: Scalar) -> Numbers:
        """Return the forward price of each asset for t years."""
        return self.spot * self.dividend_discount(t) / self.discount(t)

    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "AbstractEquityModel":
        moved = self.rate.shifted(rate) if isinstance(self.rate, Discounts) else self.rate + rate
        there = dataclasses.replace(self, spot=self.spot + underlying, rate=moved)
        return there.with_vol_shift(vol)

    @abc.abstractmethod
    def with_vol_shift(self, vol: Number) -> "AbstractEquityModel":
        """Return the model with its volatility level shifted by `vol` (per 1.00)."""

    @classmethod
    def from_market(cls, market: Market, name: str, **parameters: Any) -> Any:
        found: Any = _market_fields(market, name)
        return cls(**found, **parameters)

    def on_market(self, market: Market, name: str) -> Any:
        found = _market_fields(market, name)
        where = lambda model: [getattr(model, field) for field in found]
        return eqx.tree_at(where, self, list(found.values()))

    @classmethod
    def quotes_in(cls, market: Market) -> Mapping[str, VolSurface | SmileQuotes]:
        surfaces: dict[str, Any] = {
            name: equity.surface
            for name, equity in market.equities.items()
            if equity.dividends is None  # else quoted vols are not the process's
        }
        return surfaces


def _discount(rate: Any, t: Scalar) -> Numbers:
    return rate.discount(t) if isinstance(rate, Discounts) else jnp.exp(-rate * t)


class YieldCurves(eqx.Module):
    """The dividend yields of several assets, each a number or a curve."""

    yields: tuple[Any, ...]

    @property
    def is_flat(self) -> bool:
        """Whether all yields are flat in time."""
        return all(is_flat(each) for each in self.yields)

    def discount(self, t: Scalar) -> Float[Array, " assets"]:
        """Return the discount factors to t years."""
        return jnp.stack([_discount(each, t) for each in self.yields])

    def shifted(self, rate: Number) -> "YieldCurves":
        """Return the yields shifted by `rate` (per 1.00)."""
        moved = (x.shifted(rate) if isinstance(x, Discounts) else x + rate for x in self.yields)
        return YieldCurves(tuple(moved))


def _market_fields(market: Market, name: str) -> dict[str, Any]:
    """Return spot, rate and dividend yield of an underlying.

    Raises:
        ValueError: The underlying pays dividends on known dates.
    """
    equity = market.asset(name)
    if equity.dividends is not None:
        raise ValueError(
            f"{name} pays dividends on known dates, which the model would ignore: use "
            f"WithDividends.from_market, or wrap it as WithDividends(model, "
            f"market.equities[name].dividends)"
        )
    curve = market.curve(equity.curve)
    return {"spot": equity.spot, "rate": curve, "dividend_yield": equity.dividend_yield}


class Joinable(AbstractEquityModel):
    """Ability: single-asset models on one curve can be joined to a model of several assets."""

    @classmethod
    @abc.abstractmethod
    def joined(cls, models: Sequence[Any], asset_correlation: Correlation) -> Any:
        """Return the model of several assets; asset_correlation: that of the drivers of their log-spots."""


class BlackVol(AbstractEquityModel):
    """Ability: terminal spots have an implied volatility for each expiry and strike."""

    @property
    @abc.abstractmethod
    def is_constant(self) -> bool:
        """Whether rate and volatility are known to be constant in time.

        It decides which methods apply, so it may depend on shapes but not on numbers.
        """

    @abc.abstractmethod
    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        """Return the implied volatility, annualised, for expiry t (years) and strike."""

    def smile(self, t: Scalar, strike: Scalar) -> tuple[Scalar, Scalar]:
        """Return the implied volatility and its slope in strike; at a kink, the mean of both slopes."""
        slope = lambda strike: jax.jvp(lambda k: self.black_vol(t, k), (strike,), (one,))[1]
        one, step = jnp.ones_like(strike), 4.0 * jnp.finfo(strike.dtype).eps
        sides = jnp.stack([strike * (1.0 - step), strike * (1.0 + step)])
        return self.black_vol(t, strike), jnp.mean(jax.vmap(slope)(sides))


class GaussianState(AbstractModel):
    """Ability: the market is a function of one Gaussian martingale x, x_0 = 0, x_t ~ N(0, state_variance(t)).

    Increments of x are independent, and values divided by the numeraire are martingales.

    Examples:
        >>> from pricing.models import BlackScholes
        >>> f"{BlackScholes(100.0, 0.05, 0.2).state_variance(2.0):.2f}"
        '0.08'
    """

    @abc.abstractmethod
    def state_variance(self, t: Numbers) -> Numbers:
        """Return Var x_t, increasing in t (years)."""

    @abc.abstractmethod
    def deflator(self, t: Scalar, x: Numbers) -> Numbers:
        """Return 1 / numeraire at t in state x: E[deflator(t, x_t)] = discount(t)."""

    @abc.abstractmethod
    def market_state(self, t: Scalar, x: Scalar) -> MarketState:
        """Return the market state for payoffs at t (years) in state x."""

    def anchored(self, horizon: Scalar) -> Any:
        """Return the same model with the bond maturing at `horizon` (years) as numeraire, if it has rates."""
        del horizon
        return self


class CharacteristicFunction(AbstractEquityModel):
    """Ability: the characteristic function of X = log(S_t / forward(t)) is known."""

    @abc.abstractmethod
    def log_characteristic(self, u: Frequencies, t: Scalar) -> Frequencies:
        """Return log E[exp(i u X)]."""

    @abc.abstractmethod
    def total_variance(self, t: Scalar) -> Scalar:
        """Return the mean of the integrated variance up to t, the squared scale of X."""

    @abc.abstractmethod
    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        """Return (c, d) in E[exp(i u X)] ~ exp((-c + i d) u) for large real u."""


class LogSpotSteps(NamedTuple):
    """Steps of log(S / forward), of shape (steps, paths), or (steps, assets, paths) for several assets.

    The variance also moves between two dates. The path between two known positions is a bridge with the full
    integrated variance, even if the variance path explains part of `variance`. All fields add up over steps.

    Attributes:
        mean: The mean of each step given the variance path.
        variance: The variance of each step given the variance path, which makes it Gaussian.
        bridge_variance: The integrated variance of each step.
        variance_change: The change of the instantaneous variance over each step.
        length: The length of each step, in years, of shape (steps,).

    Examples:
        >>> import jax.numpy as jnp
        >>> from jaxtape import StoreAll
        >>> from pricing.models import BlackScholes
        >>> times, noise = jnp.array([0.5, 1.0]), jnp.zeros((2, 3))
        >>> BlackScholes(100.0, 0.05, 0.2).walk(noise, times, StoreAll()).variance.shape
        (2, 3)
    """

    mean: Steps
    variance: Steps
    bridge_variance: Steps
    variance_change: Steps
    length: Times


class ConditionallyGaussian(AbstractEquityModel):
    """Ability: given its variance path, log(S_t / forward(t)) is a Gaussian walk with known steps.

    The variance path is random except for `LognormalSpots`; under a `LocalVolatility` its noise also moves the
    spot.
    """

    @property
    @abc.abstractmethod
    def residual_correlation(self) -> Correlation:
        """The correlation of the Gaussian steps of several assets, given their variance paths."""

    @abc.abstractmethod
    def walk(self, noise: Steps, times: Times, schedule: AbstractSchedule) -> LogSpotSteps:
        """Return the steps ending at `times` (years, increasing), given normals for the variance path.

        They are relative to the forward, and depend on the spot only under a `LocalVolatility`.
        schedule: the checkpointing schedule of the steps (`jaxtape.scan`).
        """

    def walk_by_substeps(
        self, noise: Steps, times: Times, schedule: AbstractSchedule, substeps: int
    ) -> LogSpotSteps:
        """Return the steps of `walk` summed in groups of `substeps`."""
        joined = lambda x: jnp.sum(x.reshape(-1, substeps, *x.shape[1:]), axis=1)
        return jax.tree.map(joined, self.walk(noise, times, schedule))

    def marginals(self, walk: LogSpotSteps) -> tuple[Steps, Steps]:
        """Return mean and variance of log(S / forward) at the end of each step, given the variance path."""
        return jnp.cumsum(walk.mean, axis=0), jnp.cumsum(walk.variance, axis=0)


def correlation_of(
    correlation: Float[Array, "rows columns"] | None, spot: Float[Array, " assets"]
) -> Correlation:
    """Return the correlation matrix of the assets: the given matrix, or the identity.

    Raises:
        ValueError: It has another number of assets.
    """
    if correlation is None:
        return jnp.eye(spot.size, dtype=spot.dtype)
    if correlation.shape != (spot.size, spot.size):
        raise ValueError(
            f"asset_correlation is of {correlation.shape[0]} assets, and spot of {spot.size}: give one row and "
            "one column for each asset"
        )
    return correlation


def stacked(models: Sequence[Model], **given: Any) -> Model:
    """Return a model with the stacked numbers of the models, and the rate of the first."""
    yields = tuple(model.dividend_yield for model in models)
    if any(isinstance(each, Discounts) for each in yields):
        given = {"dividend_yield": YieldCurves(yields), **given}
    numbers = {
        field.name: jnp.stack([getattr(model, field.name) for model in models])
        for field in dataclasses.fields(models[0])
        if field.name not in ("rate", *given)
    }
    return type(models[0])(**{**numbers, "rate": models[0].rate, **given})
