"""From trades, with dates and words, to products, with year fractions and numbers."""

from collections.abc import Callable, Sequence
from typing import Any

from .ingestion.trades import BarrierTrade, DigitalTrade, EuropeanTrade, Trade
from .market import Market
from .products import AbstractProduct, Barrier, Digital, European

PRODUCTS: dict[type[Trade], tuple[Callable[..., AbstractProduct], dict[str, str]]] = {
    EuropeanTrade: (European, {}),
    DigitalTrade: (Digital, {}),
    BarrierTrade: (Barrier, {"kind": "barrier_type"}),
}
"""Trade -> product, and the names of the fields that the two call differently."""


def products_of(trades: Sequence[Trade], market: Market) -> AbstractProduct:
    """Trades of one kind as one batch of products. Times are years from the market's as-of date."""
    build, renamed = PRODUCTS[type(trades[0])]

    def column(name: str) -> list[Any]:
        if name == "expiry":
            return [market.time(trade.expiry) for trade in trades]
        return [getattr(trade, renamed.get(name, name)) for trade in trades]

    return build(**{name: column(name) for name in build.__dataclass_fields__})
