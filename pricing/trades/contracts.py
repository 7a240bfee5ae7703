"""From trades, with dates and words, to products, with year fractions and numbers."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from datetime import date
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..market import Market
from ..products import (
    AbstractProduct,
    American,
    Asian,
    Autocallable,
    AverageClaim,
    Barrier,
    Basket,
    BermudanSwaption,
    Digital,
    DoubleBarrier,
    European,
    Monitored,
    Swap,
    Swaption,
)
from ..products.bermudan import Bermudan
from .equity import (
    AmericanTrade,
    AsianTrade,
    AutocallableTrade,
    BarrierTrade,
    BasketTrade,
    BermudanTrade,
    DigitalTrade,
    DoubleKnockOutTrade,
    EuropeanTrade,
)
from .rate import BermudanSwaptionTrade, SwaptionTrade, SwapTrade
from .trade import Trade

Column = Callable[[str], Any]

_COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 52, 64)


def _plain(product: type[AbstractProduct], **renamed: str) -> Callable[[Column], Any]:
    """A product whose fields are those of the trade; `renamed`: product's name = trade's name."""
    names = [field.name for field in fields(product)]
    return lambda column: product(**{name: column(renamed.get(name, name)) for name in names})


def _bermudan(column: Column) -> Bermudan:
    payoff = European(column("strike"), column("expiry"), column("option"))
    return Bermudan(payoff, column("exercise_dates"))


def _basket(column: Column) -> Basket:
    terms = {name: column(name) for name in ("strike", "expiry", "option")}
    return Basket(**terms, kind=column("kind")[0], weights=column("all_weights"))


def _asian(column: Column) -> Asian:
    terms = {name: column(name) for name in ("strike", "option")}
    return Asian(**terms, dates=column("averaging_dates"), average=column("average")[0])


PRODUCTS: dict[type[Trade], Callable[[Column], AbstractProduct]] = {
    EuropeanTrade: _plain(European),
    DigitalTrade: _plain(Digital),
    AmericanTrade: _plain(American),
    BermudanTrade: _bermudan,
    AsianTrade: _asian,
    BarrierTrade: _plain(Barrier, kind="barrier_type", dates="monitoring_dates"),
    DoubleKnockOutTrade: _plain(DoubleBarrier, dates="monitoring_dates"),
    AutocallableTrade: _plain(Autocallable, dates="exercise_dates", call_level="barrier"),
    BasketTrade: _basket,
    SwapTrade: _plain(Swap, start="swap_start"),
    SwaptionTrade: _plain(Swaption, strike="fixed_rate", exercise_date="swap_start"),
    BermudanSwaptionTrade: _plain(
        BermudanSwaption, strike="fixed_rate", exercise_dates="exercise_days"
    ),
}
"""Trade -> product, given the trades' fields as columns, dates as times."""

PADDED = (AsianTrade, BarrierTrade, DoubleKnockOutTrade, AutocallableTrade)
"""Kinds whose lists of dates are padded to a round count, so that few programs serve them all."""


def shape_key(trade: Trade) -> Hashable:
    """What two trades of one kind must have in common to be one batch, and so to be priced by one program."""
    count = 0 if trade.dates is None else len(trade.dates)
    words = tuple(getattr(trade, name, None) for name in ("average", "kind"))
    num_assets, num_payments = len(trade.underlyings), len(getattr(trade, "payment_dates", ()))
    dates = _padded_count(count) if isinstance(trade, PADDED) else count
    return (dates, num_assets, num_payments, *words)


def products_of(trades: Sequence[Trade], market: Market) -> AbstractProduct:
    """Trades of one kind and one `shape_key` as one batch of products.

    Times are years from the market's as-of date. Where the kind has lists of dates, of various lengths, the
    batch is in canonical form and its lists are padded.
    """
    if trades[0].dates is None or not isinstance(trades[0], PADDED):
        return _batch(trades, market)
    by_count: dict[int, list[int]] = {}
    for index, trade in enumerate(trades):
        by_count.setdefault(len(trade.dates or ()), []).append(index)
    batches = []
    for members in by_count.values():
        batch = _batch([trades[index] for index in members], market).canonical.broadcast()
        assert isinstance(batch, AverageClaim | Monitored)
        batches.append(batch.padded(_padded_count(max(by_count))))
    order = np.argsort(np.concatenate(list(by_count.values())))
    return jax.tree.map(lambda *columns: jnp.concatenate(columns)[order], *batches)


def _batch(trades: Sequence[Trade], market: Market) -> AbstractProduct:
    """Trades that have all the same number of dates."""

    def time(value: Any) -> Any:
        if isinstance(value, date):
            return market.time(value)
        return [time(item) for item in value] if isinstance(value, tuple) else value

    def column(name: str) -> Any:
        values = [time(getattr(trade, name)) for trade in trades]
        return None if all(value is None for value in values) else values

    return PRODUCTS[type(trades[0])](column)


def _padded_count(count: int) -> int:
    """The next round number."""
    if count <= _COUNTS[-1]:
        return next((size for size in _COUNTS if size >= count), 0) if count else 0
    return 1 << (count - 1).bit_length()
