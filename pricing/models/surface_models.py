"""Models that read the market directly: a fit without a calibration."""

from typing import Any

from ..market import Market
from .black_scholes import BlackScholes
from .with_dividends import with_dividends


def black_scholes(market: Market) -> dict[str, Any]:
    """Return Black-Scholes on the spot, curve, dividend yield and implied-vol surface of each underlying.

    A plain differentiable function of the market: a `fit` for `risk`. An equity with dividends of known dates
    has them (`WithDividends`).
    """
    of_equity = lambda name, vols: BlackScholes.from_market(market, name, vol=vols)
    return {
        name: with_dividends(of_equity(name, equity.surface), market, name)
        for name, equity in market.equities.items()
    }
