"""A book on two days that can be compared: the same quotes, and the same currency of each trade."""

from ..market import Market
from .aged_book import AgedBook, aged, is_known
from .batching import currencies_in
from .book import Book
from .ex_dates import with_passed_dividends


def on_both_days(book: Book, before: Market, after: Market) -> tuple[AgedBook, Market]:
    """Return a book on both days, and the later market with the quotes of the earlier one.

    Args:
        book: The trades.
        before: The earlier market.
        after: The later market. If its quotes or their order differ, or the currency of a trade, ValueError
            is raised.
    """
    after = with_passed_dividends(before, after)
    check_same_quotes(before, after)
    check_same_currencies(book, before, after)
    return aged(book, before, after), after


def check_same_quotes(before: Market, after: Market) -> None:
    """Check that the markets have the same quotes, in the same order.

    Args:
        before: The market before.
        after: The market after.

    Raises:
        ValueError: If the quotes or their order differ.
    """
    old, new = (dict(market.flat_quotes()) for market in (before, after))
    if odd := sorted(set(old) ^ set(new)):
        raise ValueError(
            f"{len(odd)} quotes are in one market only, among them {odd[0]!r}: give markets of the same "
            "curves, equities and pillars"
        )
    if moved := [one for one, other in zip(old, new, strict=True) if one != other]:
        raise ValueError(
            f"the quotes are in another order in the market after, from {moved[0]!r} on: a delta has passed a "
            "strike; give the quotes of an expiry by strike, or by delta"
        )


def check_same_currencies(book: Book, before: Market, after: Market) -> None:
    """Check that each trade has the same currency in both markets, without which its values cannot be compared.

    Args:
        book: The trades.
        before: The market before.
        after: The market after.

    Raises:
        ValueError: If the currency of a trade differs.
    """
    of_old, of_new = currencies_in(before), currencies_in(after)
    for trade in book.checked(before).trades:
        if not is_known(trade, after):
            continue
        if (old := of_old(trade)) != (new := of_new(trade)):
            raise ValueError(
                f"trade {trade.id} on {trade.underlying} is in {old or 'no currency'} in the market before and "
                f"in {new or 'no currency'} in the market after: give the market, the equity or its curve the "
                "same currency in both"
            )
