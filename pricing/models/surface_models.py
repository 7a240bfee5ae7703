"""Models that read the market directly: a fit without a calibration."""

from ..market import Market
from .black_scholes import BlackScholes


def black_scholes(market: Market) -> dict[str, BlackScholes]:
    """Return Black-Scholes on the spot, curve, dividend yield and implied-vol surface of each underlying.

    A plain differentiable function of the market: a `fit` for `risk`.
    """
    quotes = BlackScholes.quotes_in(market)
    return {name: BlackScholes.from_market(market, name, vol=vols) for name, vols in quotes.items()}
