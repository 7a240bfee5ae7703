"""The kinds of trade a book may hold: a new kind is one more pydantic class in `TRADE_TYPES`."""

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
from .trade import Trade as Trade

TRADE_TYPES: dict[str, type[Trade]] = {
    kind.type: kind
    for kind in (
        *(EuropeanTrade, DigitalTrade, BarrierTrade, AmericanTrade, BermudanTrade, AsianTrade),
        *(DoubleKnockOutTrade, AutocallableTrade, BasketTrade),
        *(SwapTrade, SwaptionTrade, BermudanSwaptionTrade),
    )
}

COLUMNS = (
    *("id", "type", "underlying", "quantity", "option", "strike", "expiry", "barrier"),
    *("barrier_type", "rebate", "payout", "amount", "averaging_dates", "exercise_dates"),
    *("notional", "fixed_rate", "monitoring_dates", "average", "lower", "upper", "coupons"),
    *("protection", "initial_spot", "kind", "weights"),
    *("side", "start", "maturity", "frequency", "day_count", "calendar"),
)
"""Every column a trades file may have, of this and of other kinds of trade."""

NEUTRAL = {
    "rebate": 0.0,
    "payout": "cash",
    "amount": 1.0,
    "average": "arithmetic",
    "kind": "arithmetic",
}
"""Values that say nothing: a trade may give them in a column that its kind does not have."""
