"""A model of one asset that pays dividends on known dates."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import stored_jit

from ..argument_kinds import check_kind
from ..fields import Number, is_traced, rolled, word
from ..market import Dividends, Market, VolSurface
from ..results import RESULTS
from .black_scholes import BlackScholes, ImpliedVols
from .model import AbstractEquityModel, Scalar

Times = Float[Array, "..."]

_MODEL = AbstractEquityModel, "a model of one asset, such as BlackScholes(100.0, 0.05, 0.2)"
_DIVIDENDS = Dividends, "Dividends(times, cash=...)"


class WithDividends(AbstractEquityModel):
    """A model of one asset that pays dividends on known dates.

    Let R(t) be the growth factor of the asset from rate, dividend yield and proportional dividends, and b(t)
    the value at t of the cash paid after t, discounted with R.

    "escrowed", the default: S_t = X_t + b(t), where X is the model's process, starting at X_0 = S_0 - b(0) with
    the forward R(t) X_0. All known dividends are in b, so a single process prices the options of all expiries,
    and no path falls below the value of its dividends (Buehler 2010). Escrowing only the dividends up to each
    option's expiry would give a different process for each, with the arbitrage shown by Haug, Haug and Lewis
    (2003). Vols that are numbers or curves, and the parameters of all other models, are those of X. The vols of
    a surface are those of the spot, as quoted, and are converted. `calibration.fit` fits models to such quotes.

    "spot": S is the model's process between ex-dates, and falls by each dividend (at most to 0). It applies to
    `BlackScholes` with a number or a `VolCurve`, whose vol is then that of S, and is solved by finite
    differences.

    Attributes:
        base: The model of the asset. Its spot is the raw spot, to which the Greeks refer.
        dividends: The future dividends; past dividends have no effect.
        dynamics: "escrowed" or "spot".

    Raises:
        ValueError: The value of the cash is not below the spot.
        TypeError: The model has several assets, or reads a surface that it cannot convert.

    Examples:
        >>> from pricing import BlackScholes, Dividends, European, WithDividends, price
        >>> model = WithDividends(BlackScholes(100.0, 0.05, 0.2), Dividends([0.5], cash=[3.0]))
        >>> f"{model.forward(1.0):.4f} {price(European(100.0, 1.0), model).value:.4f}"
        '102.0512 8.6696'
    """

    base: Any
    dividends: Any
    dynamics: str = word("dynamics", ("escrowed", "spot"), default="escrowed")

    def __check_init__(self):
        check_kind("base", self.base, *_MODEL)
        check_kind("dividends", self.dividends, *_DIVIDENDS)
        if self.base.underlying.ndim:
            raise TypeError("dividends belong to one asset: give a model of one asset")
        vol, name = getattr(self.base, "vol", None), type(self.base).__name__
        is_surface = isinstance(vol, ImpliedVols)
        reads_another = isinstance(getattr(self.base, "surface", None), ImpliedVols)
        if reads_another or (is_surface and not isinstance(vol, VolSurface)):
            raise TypeError(
                f"{name} reads vols of the spot that cannot be converted to those above the dividends: give "
                "BlackScholes with a VolSurface, or Heston"
            )
        is_one_process = isinstance(self.base, BlackScholes) and not is_surface
        if self.dynamics == "spot" and not is_one_process:
            raise TypeError(
                "spot dynamics need BlackScholes with a number or a VolCurve as vol: use escrowed "
                "dynamics"
            )
        if not is_traced((self.base, self.dividends)):
            worth = float(_worth(self))
            if worth >= float(self.spot):
                raise ValueError(
                    f"the cash dividends are worth {worth:g}, and the spot is {float(self.spot):g}: give "
                    "those of the next years as cash, and later ones as proportions or a yield"
                )

    @property
    def spot(self) -> Scalar:
        return self.base.spot

    @property
    def rate(self) -> Any:
        return self.base.rate

    @property
    def dividend_yield(self) -> Any:
        return self.base.dividend_yield

    def growth(self, t: Times) -> Times:
        """Return R(t), of any shape."""
        factors = jnp.vectorize(lambda t: self.base.dividend_discount(t) / self.base.discount(t))
        return factors(t) * self.dividends.kept(t)

    def cash(self, t: Times) -> Times:
        """Return b(t), the value at t of the cash paid later, of any shape."""
        return self.dividends.value_after(t, self.growth)

    @jaxtape.no_inline
    def forward(self, t: Scalar) -> Scalar:
        """Return the forward price at t years."""
        return self.growth(t) * self._start + self.cash(t)

    @property
    def _start(self) -> Scalar:
        """X_0, the spot less the value of all cash dividends."""
        return self.spot - self.cash(jnp.zeros_like(self.spot))

    @property
    def stock(self) -> Any:
        """The base model at X_0 with proportional dividends in its yield; a surface is not converted."""
        yields = stock_yield(self.base, self.dividends)
        return dataclasses.replace(self.base, spot=self._start, dividend_yield=yields)

    def nearer(self, years: Scalar) -> "WithDividends":
        """Return the model with all ex-dates moved `years` closer."""
        return dataclasses.replace(self, dividends=rolled(self.dividends, years))

    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "WithDividends":
        moved = self.base.shifted(underlying=underlying, vol=vol, rate=rate)
        return dataclasses.replace(self, base=moved)

    def with_vol_shift(self, vol: Number) -> "WithDividends":
        return self.shifted(vol=vol)

    def why_not_finite(self) -> RESULTS:
        return self.base.why_not_finite()

    @classmethod
    def from_market(cls, market: Market, name: str, **parameters: Any) -> Any:
        """Return Black-Scholes on an underlying of a market, with its dividends, if any."""
        bare, dividends = _apart(market, name)
        model = BlackScholes.from_market(bare, name, **parameters)
        return model if dividends is None else cls(model, dividends)

    def on_market(self, market: Market, name: str) -> Any:
        bare, dividends = _apart(market, name)
        return dataclasses.replace(self, base=self.base.on_market(bare, name), dividends=dividends)


def stock_yield(base: Any, dividends: Dividends) -> Any:
    """Return the dividend yield of X: that of the base with the proportional dividends.

    Args:
        base: The model of the asset without dividends on known dates.
        dividends: The dividends.
    """
    return base.dividend_yield if dividends.proportions is None else _Kept(base, dividends)


def with_dividends_of(market: Market, name: str, model: Any) -> Any:
    """Return a model of X as a model of the raw spot, with the dividends of a market's underlying.

    Args:
        market: The market.
        name: The underlying.
        model: A model with parameters of X, the spot above its cash dividends.

    Returns:
        The model with dividends; the model itself if the underlying has no dividends on known dates.
    """
    bare, dividends = _apart(market, name)
    return model if dividends is None else WithDividends(model.on_market(bare, name), dividends)


@stored_jit(runs_briefly=True)
def _worth(model: WithDividends) -> Scalar:
    """Return b(0), today's value of the cash dividends."""
    return model.cash(jnp.zeros_like(model.spot))


def _apart(market: Market, name: str) -> tuple[Market, Dividends | None]:
    """Return a market without the dividends of one underlying, and these dividends."""
    equity = market.equities.get(name)
    if equity is None or equity.dividends is None:
        return market, None
    bare = dataclasses.replace(equity, dividends=None)
    return dataclasses.replace(market, equities={**market.equities, name: bare}), equity.dividends


class _Kept(eqx.Module):
    """The dividend yield of a model, and its proportional dividends, as one discount factor."""

    base: AbstractEquityModel
    dividends: Dividends

    def discount(self, t: Scalar) -> Scalar:
        """Return the number of assets today that grows to one in t years."""
        return self.base.dividend_discount(t) * self.dividends.kept(t)

    def shifted(self, rate: Number) -> "_Kept":
        """Return the same with the dividend yield shifted by `rate` (per 1.00)."""
        moved = self.base.dividend_yield
        moved = moved + rate if isinstance(moved, Array) else moved.shifted(rate)
        return _Kept(dataclasses.replace(self.base, dividend_yield=moved), self.dividends)
