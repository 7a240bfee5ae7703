"""Models that read the market as it stands: a fit without a calibration."""

from ..market import Market
from . import AbstractModel, BlackScholes


def black_scholes(market: Market) -> dict[str, AbstractModel]:
    """Market -> {underlying: Black-Scholes on its spot, curve, dividend yield and implied-vol surface}.

    A plain differentiable function of the market: a `fit` for `risk`.
    """
    return {
        name: BlackScholes(
            equity.spot,
            rate=market.curves[equity.curve],
            vol=equity.surface,
            dividend_yield=equity.dividend_yield,
        )
        for name, equity in market.equities.items()
    }
