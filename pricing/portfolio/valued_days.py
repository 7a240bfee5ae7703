"""A book valued on two days: the figures of each trade, and the gradient of each part of the book."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..market import Market
from ..progress import Progress
from .aged_book import AgedBook
from .book_risk import RiskEngine, RiskResult
from .ex_dates import falls_of_spots
from .sweep.fitted_models import Fit
from .sweep.trade_risk import Measures, TradeRisk

CALM, TOUCHED, ENDED, SKIPPED = "", "touched", "ended", "skipped"
"""The parts of a book.

ENDED: trades that ended or were knocked in. TOUCHED: others with a date that has passed, or a spot that fell by
a dividend. SKIPPED: trades without figures on one of the days. CALM: the others.
"""


class ValuedDay(NamedTuple):
    """The figures of a book on one day.

    Attributes:
        trades: One row for each row of the book.
        positions: The figures of each trade times its quantity; None if it has none.
        gradients: ISO code -> part of the book -> the leaves of its derivative to every number of the market.
    """

    trades: Sequence[TradeRisk]
    positions: list[Measures | None]
    gradients: Mapping[str, Mapping[str, list[np.ndarray]]]

    @classmethod
    def of(cls, found: RiskResult) -> "ValuedDay":
        """Return the figures of a result."""
        gradients = {
            currency: {
                part: list(map(np.asarray, jax.tree.leaves(own)))
                for part, own in total.parts.items()
            }
            for currency, total in found.by_currency.items()
        }
        return cls(found.trades, [trade.position for trade in found.trades], gradients)

    def value(self, place: int) -> float:
        """Return the value of the trade of a row, 0 if it has ended."""
        position = self.positions[place]
        return position.value if position else 0.0

    def change(self, currency: str, parts: Sequence[str], moves: Sequence[np.ndarray]) -> Any:
        """Return the gradient of some parts in one currency times the moves of the market, leaf by leaf."""
        known = self.gradients.get(currency, {})
        own = [known[part] for part in parts if part in known]
        return [
            sum(slopes, np.zeros_like(move)) * move
            for move, *slopes in zip(moves, *own, strict=True)
        ]


class ValuedDays(NamedTuple):
    """A book on two days.

    Attributes:
        before: The figures on the earlier day.
        after: The figures on the later day.
        parts: The part of each row.
        kept: The indices of the rows that are explained.
        skipped: Index -> the id of each other trade.
    """

    before: ValuedDay
    after: ValuedDay
    parts: list[str]
    kept: list[int]
    skipped: dict[int, str]


def value_days(
    aged_book: AgedBook,
    before: Market,
    after: Market,
    fit: Fit,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> ValuedDays:
    """Value a book on two days; each market is fitted once.

    Args:
        aged_book: The book on both days.
        before: The earlier market.
        after: The later market.
        fit: The map from a market to models, as in `risk`.
        progress: The argument of `risk`.
        **settings: The other arguments of `risk`.
    """
    days = [
        (RiskEngine(fit, **settings), aged_book.before, before),
        (RiskEngine(fit, **settings), aged_book.after, after),
    ]

    def valued(parts: Sequence[str]) -> list[RiskResult]:
        return [
            engine(book, market, parts=_by_id(book.rows, parts), progress=progress)
            for engine, book, market in days
        ]

    parts = _parts_of(aged_book, before, after)
    found = valued(parts)
    has_figures = [[trade.figures is not None for trade in result.trades] for result in found]
    is_over = [
        place in aged_book.payments and aged_book.payments[place].is_over
        for place in range(len(parts))
    ]
    rows = list(zip(*has_figures, is_over, strict=True))
    kept = [place for place, (then, now, over) in enumerate(rows) if then and (now or over)]
    left = [place for place in range(len(rows)) if place not in set(kept)]
    if any(then or now for then, now, _ in map(rows.__getitem__, left)):
        for place in left:
            parts[place] = SKIPPED
        found = valued(parts)
    names = ((place, aged_book.before.rows[place]) for place in left)
    skipped = {place: row.id for place, row in names if not row.is_over}
    then, now = map(ValuedDay.of, found)
    return ValuedDays(then, now, parts, kept, skipped)


def _by_id(rows: Sequence[Any], parts: Sequence[str]) -> dict[str, str]:
    """Return the part of each trade by its id."""
    return {row.id: part for row, part in zip(rows, parts, strict=True) if row.trade and part}


def _parts_of(aged_book: AgedBook, before: Market, after: Market) -> list[str]:
    falls = falls_of_spots(before, after)

    def part(place: int) -> str:
        old, new = (book.rows[place].trade for book in aged_book[:2])
        if place in aged_book.payments and aged_book.payments[place].event:
            return ENDED
        has_fallen = old is not None and any(falls.get(name) for name in old.underlyings)
        return TOUCHED if old is not new or has_fallen else CALM

    return list(map(part, range(len(aged_book.before.rows))))
