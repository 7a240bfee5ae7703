"""A change of value step by step: each trade is valued again after each group of quotes has moved."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..market import Market
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
"""Step, in order -> the first words of the ids of its quotes. Time is the step after these."""


def step_markets(before: Market, after: Market) -> Iterator[tuple[str, Market]]:
    """Yield each step whose quotes move, and the market before with the quotes of all steps so far.

    Spots move with the dividends that go ex in between. The spots before are fixings of their day: no trade is
    knocked by a spot that has moved.

    Args:
        before: The market before.
        after: The market after, of the same quotes.
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
            market = market.with_quotes(own)
            yield step, market


def step_changes(
    book: Book,
    then: Sequence[TradeRisk],
    now: Sequence[float],
    before: Market,
    after: Market,
    fit: Fit,
    *,
    progress: Any = None,
    **settings: Any,
) -> dict[str, np.ndarray]:
    """Return step -> the change of each trade in it, [trades]; the steps add up to the whole change.

    A trade that has no value in a step has its change in the next one in which it has. Time is the last step.

    Args:
        book: The trades, as the market before finds them.
        then: Their figures in the market before.
        now: Their values in the market after, with what they paid, [trades].
        before: The market before.
        after: The market after.
        fit: The map from a market to models.
        progress: Called with the trades done, their total number and an empty message, in each step.
        **settings: The other arguments of `risk`.
    """
    settings["greeks"] = False
    engine = RiskEngine(fit, **settings)
    value, found = _values(then), {}
    for step, market in step_markets(before, after):
        moved = _values(engine(book, market, progress=progress).trades)
        moved = np.where(np.isnan(moved), value, moved)
        found[step], value = moved - value, moved
    return found | {"time": np.asarray(now) - value}


def _values(trades: Sequence[TradeRisk]) -> np.ndarray:
    """Return the values of positions; NaN of a trade without one."""
    return np.array([np.nan if x.position is None else x.position.value for x in trades])
