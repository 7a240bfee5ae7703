"""The change of value by step: each trade is valued again after each group of quotes has moved."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ..market import Market
from ..market.market import replaced
from .book import Book
from .book_risk import RiskEngine
from .ex_dates import falls_of_spots
from .sweep.fitted_models import Fit
from .sweep.trade_risk import TradeRisk

STEPS = {
    "spots": ("EQUITY/", "FX/"),
    "vols": ("EQUITY_OPTION/", "FX_OPTION/", "SWAPTION/", "CAPFLOOR/"),
    "rates": ("ZERO/", "MM/", "MM_FUTURE/", "FRA/", "OIS/", "IR_SWAP/", "BASIS_SWAP/"),
    "dividends": ("EQUITY_DIVIDEND/", "DIVIDEND/"),
    "correlations": ("CORRELATION/",),
}
"""Step, in order -> the prefixes of the ids of its quotes. Time is the step after these."""


def step_markets(before: Market, after: Market) -> Iterator[tuple[str, Market]]:
    """Yield each step whose quotes move, and the earlier market with the quotes of all steps so far moved.

    Spots move together with the dividends that go ex in between. The earlier spots remain the fixings of their
    day, so that a moved spot triggers no barrier.

    Args:
        before: The earlier market.
        after: The later market, with the same quotes.
    """
    new = dict(after.flat_quotes())
    ids = before.quote_ids()
    for name, fall in falls_of_spots(before, after).items():
        new[ids.equities[name].spot.item()] += fall
    names = (*before.equities, *before.fx)
    levels = {(name, before.asof): float(before.spot(name)) for name in names}
    market = replace(before, fixings={**levels, **dict(before.fixings)})
    old = {quote: x for quote, x in before.flat_quotes() if not np.isnan(x)}
    for step, words in STEPS.items():
        own = {quote: new[quote] for quote in old if quote.startswith(words)}
        if any(old[quote] != x for quote, x in own.items()):
            market = replaced(market, own)
            yield step, market


def step_changes(
    book: Book,
    then: Float[np.ndarray, " trades"],
    now: Float[np.ndarray, " trades"],
    before: Market,
    after: Market,
    fit: Fit,
    *,
    progress: Any = None,
    **settings: Any,
) -> dict[str, np.ndarray]:
    """Return the change of each trade, [trades], by step; the steps add up to the whole change.

    If a trade has no value in a step, its change falls into the next step in which it has one. Time is the last
    step.

    Args:
        book: The trades on the day of the earlier market.
        then: Their values in the earlier market.
        now: Their values in the later market plus their payments.
        before: The earlier market.
        after: The later market.
        fit: The map from a market to models.
        progress: Called in each step with the number of trades done, the total number and an empty message.
        **settings: The other arguments of `risk`.
    """
    settings["greeks"] = False
    engine = RiskEngine(fit, **settings)
    value, found = then, {}
    for step, market in step_markets(before, after):
        moved = _values(engine(book, market, progress=progress).trades)
        moved = np.where(np.isnan(moved), value, moved)
        found[step], value = moved - value, moved
    return found | {"time": now - value}


def _values(trades: Sequence[TradeRisk]) -> np.ndarray:
    """Return the values of positions; NaN for a trade without one."""
    return np.array([np.nan if x.position is None else x.position.value for x in trades])
