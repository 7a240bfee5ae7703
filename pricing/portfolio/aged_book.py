"""A book on two days: what is left of its trades on the second, and what they paid in between."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..ingestion.errors import InputError
from ..market import Market
from ..market.observed import Observed
from ..products.trade import Trade
from .book import Book, BookRow
from .seasoning import seasoned


class Payment(NamedTuple):
    """A payment of a trade between two days.

    Attributes:
        id: The id of the trade.
        cash: The payment to the position, in its currency.
        is_over: Whether nothing of the trade is left.
        event: The event that ended or changed the trade, such as "expired" (`History.event`), or "".
        assumed: The fixings that the market after does not have, in words: its own quotes stood in for them.
    """

    id: str
    cash: float
    is_over: bool
    event: str
    assumed: tuple[str, ...]


class AgedBook(NamedTuple):
    """A book on two days.

    Attributes:
        before: The book in the market before.
        after: The remaining book in the market after: a row whose trade is over has no trade, and no error.
        payments: Index of a row -> the payments of its trade in between, if it ended, was knocked in or paid,
            or continued because a fixing was assumed.
    """

    before: Book
    after: Book
    payments: dict[int, Payment]

    @property
    def errors(self) -> tuple[InputError, ...]:
        """All that is wrong with the book in either market."""
        return tuple(dict.fromkeys((*self.before.errors, *self.after.errors)))


def aged(book: Book, before: Market, after: Market) -> AgedBook:
    """Return a book on two days, and the payments of its trades in between.

    The fixings are those of the market after (`Market.fixings`), or its quotes where it has none of a day after
    the market before: on its own day they are the fixings.

    Args:
        book: The trades.
        before: The market before.
        after: The market after.
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


def of_rows(two: AgedBook, places: Sequence[int]) -> AgedBook:
    """Return some rows of a book on two days.

    Args:
        two: The book on two days.
        places: The places of the rows, in order.
    """

    def part(book: Book) -> Book:
        rows: list[BookRow] = [book.rows[place] for place in places]
        return Book(book.file, tuple(rows), book.errors)

    kept = {new: two.payments[old] for new, old in enumerate(places) if old in two.payments}
    return AgedBook(part(two.before), part(two.after), kept)
