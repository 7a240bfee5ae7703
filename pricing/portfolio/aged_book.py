"""A book on two days: the trades that remain on the second, and their payments in between."""

from dataclasses import replace
from typing import NamedTuple

from ..ingestion.errors import InputError
from ..market import Market
from ..market.observed import Observed
from ..products.trade import Trade
from .book import Book
from .seasoning import seasoned


class Payment(NamedTuple):
    """A payment of a trade between two days.

    Attributes:
        id: The id of the trade.
        cash: The payment to the position, in its currency.
        is_over: Whether the trade has ended.
        event: The event that ended or changed the trade, such as "expired" (`History.event`), or "".
        assumed: The fixings, in words, that the later market lacks and that its own quotes replaced.
    """

    id: str
    cash: float
    is_over: bool
    event: str
    assumed: tuple[str, ...]


class AgedBook(NamedTuple):
    """A book on two days.

    Attributes:
        before: The book in the earlier market.
        after: The remaining book in the later market. A row whose trade has ended has no trade and no error.
        payments: Index of a row -> the payment of its trade in between, if the trade ended, was knocked in,
            paid, or depends on an assumed fixing.
    """

    before: Book
    after: Book
    payments: dict[int, Payment]

    @property
    def errors(self) -> tuple[InputError, ...]:
        """The errors of the book in both markets."""
        return tuple(dict.fromkeys((*self.before.errors, *self.after.errors)))


def aged(book: Book, before: Market, after: Market) -> AgedBook:
    """Return the book in both markets, and the payments of its trades in between.

    Fixings come from the later market (`Market.fixings`). If it lacks one from after the earlier market's day,
    its quote is used instead; on its own day the quotes are the fixings.

    Args:
        book: The trades.
        before: The earlier market.
        after: The later market.
    """
    rows, payments, book = [], {}, book.checked(before)
    for place, row in enumerate(book.rows):
        trade, observed = row.trade, Observed(before.asof, after)
        if trade is not None and is_known(trade, after):
            found = seasoned(trade, observed)
            assumed = tuple(dict.fromkeys(observed.assumed))
            if found.cash is not None and (found.cash or found.event or assumed):
                cash, is_over = trade.quantity * found.cash, found.trade is None
                payments[place] = Payment(row.id, cash, is_over, found.event, assumed)
            row = replace(row, trade=found.trade)
        rows.append(row)
    return AgedBook(book, Book(book.file, tuple(rows), book.errors).checked(after), payments)


def is_known(trade: Trade, market: Market) -> bool:
    """Return True if a market has the curves, or the equities and pairs, of a trade.

    Args:
        trade: The trade.
        market: The market.
    """
    names, in_rates = trade.underlyings, trade.in_rates
    known = market.curves if in_rates else market.underlyings
    parts = [part for name in names for part in ((name,) if in_rates else market.parts_of(name))]
    return all(part in known for part in parts)
