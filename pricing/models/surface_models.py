"""Models that read the market directly: a fit without a calibration."""

from typing import Any

from ..market import Market
from .black_scholes import BlackScholes
from .with_dividends import WithDividends


def black_scholes(market: Market) -> dict[str, Any]:
    """Return Black-Scholes on the spot, curve, dividend yield and implied-vol surface of each underlying.

    Of a pair of currencies it is the model of Garman and Kohlhagen (1983): the foreign curve is the dividend
    yield. A plain differentiable function of the market: a `fit` for `risk`. An equity with dividends of known
    dates has them (`WithDividends`).
    """
    return {name: of_surface(market, name) for name in market.underlyings}


def garman_kohlhagen(market: Market) -> dict[str, BlackScholes]:
    """Return Black-Scholes on the surface of each pair of currencies alone."""
    return {name: of_surface(market, name) for name in market.underlyings if name in market.fx}


def of_surface(market: Market, name: str) -> Any:
    """Return Black-Scholes on the surface of one underlying, also of an equity in another currency.

    Args:
        market: The quotes.
        name: The underlying.
    """
    return WithDividends.from_market(market, name, vol=market.asset(name).surface)
