"""Conversion of trades (dates and words) to products (year fractions and numbers)."""

import functools
from collections.abc import Callable, Hashable, Sequence
from datetime import date
from typing import Any

import jax
import numpy as np

from jaxtape import stored_jit

from ..market import Market
from ..products import AbstractProduct, Padded
from ..products.trade import Trade

_FEWEST_ROWS = 128
_COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 52, 64)


def shape_key(trade: Trade) -> Hashable:
    """Return the key of trades of one kind that can share a batch, and therefore a program.

    It does not change as dates pass: lists are padded to a round length, at least the length in the book.
    """
    return _padded_count(trade.num_dates), trade.shape


def currency_of(trade: Trade, market: Market) -> str:
    """Return the ISO code of the currency in which a trade is valued; "" if the market names none."""
    return market.currency_of(trade.underlyings[0], in_rates=trade.in_rates)


def currencies_in(market: Market) -> Callable[[Trade], str]:
    """Return `currency_of` for a market, cached by name: trades are many, names few."""
    of_name = functools.cache(lambda name, in_rates: market.currency_of(name, in_rates=in_rates))
    return lambda trade: of_name(trade.underlyings[0], trade.in_rates)


def products_of(trades: Sequence[Trade], market: Market) -> AbstractProduct:
    """Return trades of one kind and one `shape_key` as one batch of products in canonical form.

    Times are years from the market's as-of date. Lists of dates are padded to one length. The arrays are built
    with `padded_rows` rows, so that a book of another size compiles no new programs.
    """
    by_count: dict[int, list[int]] = {}
    for index, trade in enumerate(trades):
        by_count.setdefault(len(trade.dates or ()), []).append(index)
    num_dates = _padded_count(trades[0].num_dates) or None  # the same for all: see `shape_key`
    batches = []
    for members in by_count.values():
        batch = _canonical(_batch([trades[index] for index in members], market), num_dates)
        rows = slice(len(members))
        batches.append(jax.tree.map(lambda column, rows=rows: np.asarray(column)[rows], batch))
    order = np.argsort(np.concatenate(list(by_count.values())))
    joined = jax.tree.map(lambda *columns: np.concatenate(columns)[order], *batches)
    return jax.device_put(joined)  # `jnp.asarray` would compile a program for each number of rows


@stored_jit(runs_briefly=True)
def _canonical(batch: AbstractProduct, num_dates: int | None) -> AbstractProduct:
    """Return a batch in canonical form, with dates (if any) padded to `num_dates`: one program for each kind.

    Raises:
        TypeError: The product has dates but cannot be padded.
    """
    batch = batch.canonical.broadcast()
    if num_dates is None:
        return batch
    if not isinstance(batch, Padded):
        raise TypeError(f"{type(batch).__name__} has a list of dates: make it Padded")
    return batch.padded(num_dates)


def _batch(trades: Sequence[Trade], market: Market) -> AbstractProduct:
    """Return trades with the same number of dates as one batch; the last row may be repeated as padding."""
    time = functools.cache(market.time)  # trades are many, their days few
    repeated = padded_rows(len(trades)) - len(trades)

    def number(value: Any) -> Any:
        if isinstance(value, date):
            return time(value)
        return [number(item) for item in value] if isinstance(value, tuple) else value

    def column(name: str) -> Any:
        values = [number(getattr(trade, name)) for trade in trades]
        if all(value is None for value in values):
            return None
        return values + values[-1:] * repeated

    return trades[0].products(column)


def padded_rows(count: int) -> int:
    """Return the next power of two, at least 128: the number of trades that programs are compiled for."""
    return max(_FEWEST_ROWS, 1 << (count - 1).bit_length())


def _padded_count(count: int) -> int:
    if count <= _COUNTS[-1]:
        return next((size for size in _COUNTS if size >= count), 0) if count else 0
    return 1 << (count - 1).bit_length()
