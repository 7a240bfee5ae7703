"""The verb: why did the value of a book change from one market to the next?"""

import itertools
from dataclasses import dataclass
from datetime import date
from typing import Any

import jax
import numpy as np

from .book_risk import RiskResult, risk
from .market import Market
from .sweep.fitted_models import Fit
from .sweep.trade_risk import TradeRisk
from .trades.book import Book

_DAYS_PER_YEAR = 365.0
_PARTS = ("theta", "delta", "gamma", "vega", "rho", "dividends", "correlation")


@dataclass(frozen=True)
class Explanation:
    """The change of a book's value, and what the risk before it says of it, in currency.

    Attributes:
        change: The value after less the value before.
        theta: The part of time: contracts age, and the pillars of curves and surfaces come nearer. Here is also
            what else of a curve's instruments is no quote: their dates, accruals and convexity adjustments.
        delta: The sensitivities to spots, times their changes.
        gamma: Half the trades' Gammas times the squares of the spots' changes.
        vega: The sensitivities to implied vols (through the fit), times their changes.
        rho: The sensitivities to the quotes of curves (through the fit), times their changes.
        dividends: The sensitivities to dividend yields, times their changes.
        correlation: The sensitivities to correlations, times their changes.
        by_quote: The contribution of each quote that moved, by its id.
        trades: How many trades were valued in both markets.
        skipped: The ids of the other rows, which no number here holds.
        skipped_rows: Their places among the rows of the book.
        before: The value before.
        asof: The day of the market before.
        error_bound: A bound of the standard error of `change`: the sum of those of the trades' values,
            before and after. Both have the same random numbers, so that the error is usually far below it.
    """

    change: float
    theta: float
    delta: float
    gamma: float
    vega: float
    rho: float
    dividends: float
    correlation: float
    by_quote: dict[str, float]
    trades: int
    skipped: tuple[str, ...]
    skipped_rows: tuple[int, ...]
    before: float
    asof: date
    error_bound: float

    @property
    def after(self) -> float:
        """The value after."""
        return self.before + self.change

    @property
    def parts(self) -> dict[str, float]:
        """The parts by name, in the order of the expansion, the residual last."""
        return {name: getattr(self, name) for name in (*_PARTS, "residual")}

    @property
    def explained(self) -> float:
        """The sum of all parts."""
        return sum(getattr(self, name) for name in _PARTS)

    @property
    def residual(self) -> float:
        """What is left: parts of higher order, and of mixed moves."""
        return self.change - self.explained


def explain(book: Book, before: Market, after: Market, fit: Fit, **settings: Any) -> Explanation:
    """Explain a change of value: a full revaluation beside the second-order expansion at the market before.

    The two markets name the same curves, equities and pillars (quotes of the same ids); otherwise it raises a
    ValueError.

    Args:
        book: The trades.
        before: The market that the expansion is taken at.
        after: The market to explain.
        fit: The map from a market to models, as in `risk`.
        **settings: The other arguments of `risk`.

    Returns:
        The change and its parts.
    """
    _check_same_quotes(before, after)
    book = book.checked(before).checked(after)
    then, now = (risk(book, market, fit, **settings) for market in (before, after))
    valued = [
        all(trade.figures for trade in both) for both in zip(then.trades, now.trades, strict=True)
    ]
    skipped = {
        place: book.rows[place].id for place, is_valued in enumerate(valued) if not is_valued
    }
    if skipped:
        kept = tuple(itertools.compress(book.rows, valued))
        remaining = Book(book.file, kept, book.errors)
        then, now = (risk(remaining, market, fit, **settings) for market in (before, after))
    leaves, structure = jax.tree.flatten(before)
    pairs = zip(jax.tree.leaves(after), leaves, strict=True)
    moves = jax.tree.unflatten(structure, [np.asarray(new) - np.asarray(old) for new, old in pairs])
    return _explanation(then, now, moves, before, (after.asof - before.asof).days, skipped)


def _explanation(then: RiskResult, now: RiskResult, moves: Market, market: Market, days, skipped):
    contributions = jax.tree.map(lambda slope, move: np.asarray(slope) * move, then.gradient, moves)
    total = lambda leaves: float(sum(np.sum(leaf) for leaf in leaves))  # noqa: E731
    equities, curves = contributions.equities.values(), contributions.curves.values()
    quotes = [leaf for curve in curves for leaf in curve.quotes]
    others = [x for x in jax.tree.leaves(tuple(curves)) if all(x is not leaf for leaf in quotes)]
    pillars = others + [equity.surface.expiries for equity in equities]
    vols = [equity.surface.vols for equity in equities]
    vols += [] if contributions.swaption_vols is None else [contributions.swaption_vols.vols]
    ages = sum(trade.position.theta or 0.0 for trade in then.trades if trade.position)
    by_quote = market.by_quote(contributions)
    return Explanation(
        change=now.value - then.value,
        theta=ages * days / _DAYS_PER_YEAR + total(pillars),
        delta=total(equity.spot for equity in equities),
        gamma=sum(_gamma(trade, moves) for trade in then.trades),
        vega=total(vols),
        rho=total(quotes),
        dividends=total(equity.dividend_yield for equity in equities),
        correlation=total(jax.tree.leaves(getattr(contributions, "correlations", None))),
        by_quote={quote: part for quote, part in by_quote.items() if part},
        trades=len(then.trades),
        skipped=tuple(skipped.values()),
        skipped_rows=tuple(skipped),
        before=then.value,
        asof=market.asof,
        error_bound=sum(_error(trade) for trade in (*then.trades, *now.trades)),
    )


def _error(trade: TradeRisk) -> float:
    """Return the standard error of a position's value."""
    return abs(trade.quantity) * trade.std_errors.value if trade.std_errors else 0.0


def _gamma(trade: TradeRisk, moves: Market) -> float:
    """Return half the trade's second derivatives times the products of the spots' moves."""
    spot = {name: float(equity.spot) for name, equity in moves.equities.items()}
    gammas = trade.position.gamma if trade.position else {}
    return sum(0.5 * x * spot.get(a, 0.0) * spot.get(b, 0.0) for (a, b), x in gammas.items())


def _check_same_quotes(before: Market, after: Market):
    old, new = (dict(market.flat_quotes()) for market in (before, after))
    if odd := sorted(set(old) ^ set(new)):
        raise ValueError(
            f"{len(odd)} quotes are in one market only, among them {odd[0]!r}: give markets of the same "
            "curves, equities and pillars"
        )
