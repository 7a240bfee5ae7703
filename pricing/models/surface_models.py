"""Models that read the market directly, without a calibration."""

from typing import Any

from ..market import Market
from .black_scholes import BlackScholes
from .with_dividends import WithDividends


def black_scholes(market: Market) -> dict[str, Any]:
    """Return Black-Scholes on the spot, curve, dividend yield and implied-vol surface of each underlying.

    For an FX pair it is the model of Garman and Kohlhagen (1983), with the foreign curve as the dividend yield.
    An equity with dividends on known dates keeps them (`WithDividends`). The function is differentiable in the
    market and can be used as `fit` of `risk`.
    """
    return {name: of_surface(market, name) for name in market.underlyings}


def garman_kohlhagen(market: Market) -> dict[str, BlackScholes]:
    """Return Black-Scholes on the surface of each FX pair only."""
    return {name: of_surface(market, name) for name in market.underlyings if name in market.fx}


def of_surface(market: Market, name: str) -> Any:
    """Return Black-Scholes on the surface of one underlying, possibly an equity in another currency.

    Args:
        market: The quotes.
        name: The underlying.
    """
    return WithDividends.from_market(market, name, vol=market.asset(name).surface)
