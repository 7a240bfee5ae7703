"""Seasoned trades: the trade that remains on a later day, and what it has paid."""

from datetime import date
from typing import NamedTuple

from ..market.dates import advance
from ..market.observed import Observed, UnknownPast
from ..products.fixed_payments import PendingRateTrade, PendingTrade
from ..products.trade import Aged, Trade


class History(NamedTuple):
    """The event that ended or changed a trade of the book.

    Attributes:
        trade: The trade as it is in the book.
        event: "expired", "exercised", "called", "knocked out" or "knocked in".
        day: The day of the event.
        cash: The payment to the position, settled by the market's day, in currency; None if unknown.
    """

    trade: Trade
    event: str
    day: date | None
    cash: float | None


def seasoned(trade: Trade, observed: Observed) -> Aged:
    """Return the rest of a trade on a day, given the fixings: `Trade.aged`, with unsettled payments kept.

    A payment on the day itself counts as paid and is not in the value. A payment that settles later remains as
    one fixed payment. A trade past its end has expired, even if its fixings are unknown.

    Args:
        trade: A trade of a book.
        observed: The levels up to the day.

    Returns:
        The remaining trade, and the cash.

    Raises:
        UnknownPast: The trade has not ended, and depends on an unknown fixing.
    """
    try:
        found = trade.aged(observed)
    except UnknownPast:
        if trade.end >= observed.until:
            raise
        return Aged(None, None, "expired", trade.expiry)
    if found.trade is not None:
        return found._replace(trade=found.trade.left_of(trade))
    if not found.cash or not trade.settlement_lag or found.day is None:
        return found
    calendar = getattr(trade, "calendar", "XECB")
    settled = advance(found.day, business_days=int(trade.settlement_lag), calendar=calendar)
    if settled <= observed.until:
        return found
    kind = PendingRateTrade if trade.in_rates else PendingTrade
    own = {name: getattr(trade, name) for name in ("line", "id", "underlying", "quantity")}
    left = kind.model_construct(**own, settlement_lag=0.0, expiry=settled, amounts=(found.cash,))
    return found._replace(cash=0.0, trade=left)
