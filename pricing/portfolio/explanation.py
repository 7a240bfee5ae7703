"""P&L explain: the change of a book's value between two markets, split into parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import jax
import numpy as np

from ..argument_kinds import of_kinds
from ..market import Market
from .aged_book import AgedBook, Payment
from .book import Book
from .comparable_days import on_both_days
from .ex_dates import ex_dividend_moves, falls_of_spots
from .step_revaluation import step_changes
from .sweep.fitted_models import BOOK, FIT, MARKET, Fit
from .sweep.trade_risk import Measures, TradeRisk
from .valued_days import CALM, ENDED, TOUCHED, ValuedDays, value_days

DAYS_PER_YEAR = 365.0
_PARTS = ("theta", "delta", "gamma", "vega", "rho", "dividends", "correlation", "mixed", "events")


@dataclass(frozen=True)
class Explanation:
    """The change of a book's value in one currency, explained by the risk before the change.

    Attributes:
        change: The value after, with the cash that was paid in between, less the value before.
        theta: The effect of time: contracts age, and the pillars of curves and surfaces come nearer. It
            includes every change of a curve's instruments other than their quotes: dates, accruals and
            convexity adjustments.
        delta: The sensitivities to spots, times their changes.
        gamma: Half the trades' Gammas times the squares of the spots' changes.
        vega: The sensitivities to implied vols (through the fit), times their changes.
        rho: The sensitivities to the quotes of curves (through the fit), times their changes.
        dividends: The sensitivities to dividend yields and dividends, times their changes. A dividend that went
            ex falls to 0; the spot's fall is part of `delta`.
        correlation: The sensitivities to correlations, times their changes.
        mixed: Half the change of all sensitivities between the two days times the moves, less `gamma`: the
            second-order effects of time, vols, rates and mixed moves, for trades whose dates and terms stay the
            same.
        events: The whole change of the trades that ended or were knocked in between the two days: value after
            plus payments, less value before. They are in no other part.
        by_quote: The contribution of each quote that moved, by its id.
        trades: The number of trades that were valued before, and were valued or paid after.
        skipped: The ids of the other rows, which no figure includes.
        skipped_rows: Their indices among the rows of the book.
        before: The value before.
        asof: The day of the earlier market.
        error_bound: An upper bound of the standard error of `change`: the sum of the standard errors of the
            trades' values, before and after. Both use the same random numbers, so the error is usually far
            smaller.
        payments: The payments of trades in between.
        fx: The effect of FX rates on a total in one currency (`explain_total`); None for a single currency.
        steps: With a full revaluation, the change of the trades that did not end, by step: on the earlier day
            spots (of equities and FX pairs), vols, rates, dividends and correlations move one after the other,
            and finally time passes. Quotes that do not move have no step. Empty otherwise.
        higher_order: With a full revaluation, the sum of `steps` less all parts of the expansion: what first
            and second order miss, for instance when the spot crosses the strike of a digital option near
            expiry. None otherwise.
    """

    change: float
    theta: float
    delta: float
    gamma: float
    vega: float
    rho: float
    dividends: float
    correlation: float
    mixed: float
    events: float
    by_quote: dict[str, float]
    trades: int
    skipped: tuple[str, ...]
    skipped_rows: tuple[int, ...]
    before: float
    asof: date
    error_bound: float
    payments: tuple[Payment, ...] = ()
    fx: float | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    higher_order: float | None = None

    @property
    def cash(self) -> float:
        """The cash paid between the two days."""
        return sum((payment.cash for payment in self.payments), 0.0)

    @property
    def after(self) -> float:
        """The value after, without the cash paid."""
        return self.before + self.change - self.cash

    @property
    def parts(self) -> dict[str, float]:
        """The parts by name, in the order of the expansion; the residual is last."""
        found = {name: getattr(self, name) for name in (*_PARTS, "fx", "higher_order", "residual")}
        return {name: part for name, part in found.items() if part is not None}

    @property
    def explained(self) -> float:
        """The sum of all parts."""
        expanded = sum(getattr(self, name) for name in _PARTS)
        return expanded + (self.fx or 0.0) + (self.higher_order or 0.0)

    def with_steps(
        self, changes: Mapping[str, np.ndarray], lasting: Sequence[int]
    ) -> "Explanation":
        """Return this explanation with the changes of trades by step, which add up to their whole changes.

        Args:
            changes: Step -> the change of each trade, [trades].
            lasting: The indices of the trades in this currency that did not end.
        """
        steps = {step: sum(own[lasting].tolist(), 0.0) for step, own in changes.items()}
        of_orders = self.explained - self.events
        return replace(self, steps=steps, higher_order=sum(steps.values()) - of_orders)

    @property
    def residual(self) -> float:
        """The unexplained part: terms of higher order; with a full revaluation, rounding alone."""
        return self.change - self.explained


@of_kinds(book=BOOK, before=MARKET, after=MARKET, fit=FIT)
def explain(
    book: Book,
    before: Market,
    after: Market,
    fit: Fit,
    *,
    full_revaluation: bool = False,
    **settings: Any,
) -> Explanation:
    """Explain a change of value by a second-order expansion at the earlier market and a full revaluation.

    Both markets must have the same curves, equities and pillars (quotes with the same ids); otherwise a
    ValueError is raised. The payments of a trade that ends or pays between the two days are included (`aged`).

    Args:
        book: The trades, all in one currency.
        before: The earlier market, at which the expansion is taken.
        after: The later market.
        fit: The map from a market to models, as in `risk`.
        full_revaluation: Whether to value the trades again after each group of quotes has moved (`steps`). What
            the expansion misses is then `higher_order`, and nothing is unexplained.
        **settings: The other arguments of `risk`.

    Returns:
        The change and its parts.

    Raises:
        ValueError: The trades are in several currencies; use `explain_by_currency`.

    Examples:
        >>> from pricing import Book, Market, explain
        >>> from pricing.models.surface_models import black_scholes
        >>> text = '{"asof": "2002-07-05", "currency": "EUR", "curves": {"EUR": {"zero_rate": 0.03}}}'
        >>> market, book = Market.from_text(text), Book.from_text("id,type,underlying,option,strike,expiry")
        >>> explain(book, market, market, black_scholes).change
        0.0
    """
    settings |= {"full_revaluation": full_revaluation}
    found = explain_by_currency(book, before, after, fit, **settings)
    if len(found) > 1:
        names = " and ".join(found)
        raise ValueError(f"the trades are in {names}: explain each currency (explain_by_currency)")
    return next(iter(found.values()))


@of_kinds(book=BOOK, before=MARKET, after=MARKET, fit=FIT)
def explain_by_currency(
    book: Book,
    before: Market,
    after: Market,
    fit: Fit,
    *,
    full_revaluation: bool = False,
    **settings: Any,
) -> dict[str, Explanation]:
    """Explain a change of value, as in `explain`, separately for the trades in each currency.

    Args:
        book: The trades.
        before: The earlier market, at which the expansion is taken.
        after: The later market.
        fit: The map from a market to models, as in `risk`.
        full_revaluation: Whether to value the trades again after each group of quotes has moved (`steps`). What
            the expansion misses is then `higher_order`, and nothing is unexplained.
        **settings: The other arguments of `risk`.

    Returns:
        ISO code -> the change and its parts.

    Examples:
        >>> from pricing import Book, Market, explain_by_currency
        >>> from pricing.models.surface_models import black_scholes
        >>> text = '{"asof": "2002-07-05", "currency": "EUR", "curves": {"EUR": {"zero_rate": 0.03}}}'
        >>> market, book = Market.from_text(text), Book.from_text("id,type,underlying,option,strike,expiry")
        >>> list(explain_by_currency(book, market, market, black_scholes))
        ['EUR']
    """
    aged_book, after = on_both_days(book, before, after)
    settings |= {"full_revaluation": full_revaluation}
    return explain_aged(aged_book, before, after, fit, **settings)


def explain_aged(
    aged_book: AgedBook,
    before: Market,
    after: Market,
    fit: Fit,
    *,
    full_revaluation: bool = False,
    **settings: Any,
) -> dict[str, Explanation]:
    """Explain a change of value, as in `explain_by_currency`, of a book on both days (`on_both_days`).

    Args:
        aged_book: The book on both days.
        before: The earlier market.
        after: The later market, with the quotes of the earlier one.
        fit: The map from a market to models, as in `risk`.
        full_revaluation: Whether to value the trades again after each group of quotes has moved.
        **settings: The other arguments of `risk`.
    """
    days = value_days(aged_book, before, after, fit, **settings)
    leaves, structure = jax.tree.flatten(before)
    pairs = zip(jax.tree.leaves(after), leaves, strict=True)
    moves = jax.tree.unflatten(structure, [_move(new, old) for new, old in pairs])
    moves = ex_dividend_moves(moves, before, after)
    places: dict[str, list[int]] = {}
    for place in days.kept:
        places.setdefault(days.before.trades[place].currency, []).append(place)
    spot_moves = _spot_moves(aged_book, days, moves, before, after)
    explained = {
        currency: _explanation(currency, own, aged_book, days, moves, spot_moves, before, after)
        for currency, own in (places or {before.currency: []}).items()
    }
    if not full_revaluation:
        return explained
    then, now = (
        np.array([day.value(place) for place in range(len(days.parts))])
        for day in (days.before, days.after)
    )
    for place, payment in aged_book.payments.items():
        now[place] += payment.cash
    changes = step_changes(aged_book.before, then, now, before, after, fit, **settings)
    lasting = {
        name: [place for place in places.get(name, []) if days.parts[place] != ENDED]
        for name in explained
    }
    return {name: found.with_steps(changes, lasting[name]) for name, found in explained.items()}


def _spot_moves(
    aged_book: AgedBook, days: ValuedDays, moves: Market, before: Market, after: Market
) -> dict[str, float]:
    """Return the move of each spot; an ex-dividend fall of the spot has no Gamma effect."""
    falls = falls_of_spots(before, after)
    found = {
        name: float(equity.spot) + falls.get(name, 0.0) for name, equity in moves.equities.items()
    }
    trades = (aged_book.before.rows[place].trade for place in days.kept)
    traded = {name for trade in trades if trade for name in trade.underlyings}
    others = (n for n in traded if n in before.fx or len(before.parts_of(n)) > 1)
    return found | {n: float(after.spot(n)) - float(before.spot(n)) for n in others}


def _explanation(
    currency: str,
    places: Sequence[int],
    aged_book: AgedBook,
    days: ValuedDays,
    moves: Market,
    spot_moves: dict[str, float],
    market: Market,
    later: Market,
) -> Explanation:
    """Return the change of the trades in one currency, which are in the rows `places`."""
    passed, (before, after, parts, *_) = (later.asof - market.asof).days, days
    leaves, structure = jax.tree.flatten(moves)
    contributions = jax.tree.unflatten(structure, before.change(currency, (CALM, TOUCHED), leaves))
    total = lambda leaves: float(sum(np.sum(leaf) for leaf in leaves))
    equities, curves = contributions.equities.values(), contributions.curves.values()
    quotes = [leaf for curve in curves for leaf in curve.quotes]
    others = [x for x in jax.tree.leaves(tuple(curves)) if all(x is not leaf for leaf in quotes)]
    pillars = others + [leaf for equity in equities for leaf in equity.times]
    vols = [equity.surface.vols for equity in equities]
    pairs = contributions.fx.values()
    of_pairs = [pair.vols for pair in pairs if pair.vols is not None]
    pillars += [quotes.expiries for quotes in of_pairs]
    vols += [leaf for quotes in of_pairs for leaf in quotes.quotes]
    vols += [] if contributions.swaption_vols is None else [contributions.swaption_vols.vols]
    of_caps = contributions.cap_vols.values()
    vols += [caps.quotes for caps in of_caps]
    pillars += [x for caps in of_caps for x in jax.tree.leaves(caps) if x is not caps.quotes]
    continuing = [before.positions[place] for place in places if parts[place] != ENDED]
    calm = [place for place in places if parts[place] == CALM]
    firsts = [
        total(day.change(currency, (CALM,), leaves))
        + _ages(map(day.positions.__getitem__, calm), passed)
        for day in (before, after)
    ]
    by_quote = market.by_quote(contributions)
    payments = {p: aged_book.payments[p] for p in places if p in aged_book.payments}
    cash = sum((payment.cash for payment in payments.values()), 0.0)
    ended = (
        payments[place].cash + after.value(place) - before.value(place)
        for place in places
        if parts[place] == ENDED
    )
    value = sum(map(before.value, places), 0.0)
    return Explanation(
        change=sum(map(after.value, places), 0.0) + cash - value,
        theta=_ages(continuing, passed) + total(pillars),
        delta=total(asset.spot for asset in (*equities, *pairs) if asset.spot is not None),
        gamma=sum((_gamma(position, spot_moves) for position in continuing), 0.0),
        vega=total(vols),
        rho=total(quotes),
        dividends=total(leaf for equity in equities for leaf in equity.dividend_quotes),
        correlation=total(jax.tree.leaves(getattr(contributions, "correlations", None))),
        mixed=0.5 * (firsts[1] - firsts[0])
        - sum(_gamma(before.positions[place], spot_moves) for place in calm),
        events=sum(ended, 0.0),
        by_quote={quote: part for quote, part in by_quote.items() if part},
        trades=len(places),
        skipped=tuple(days.skipped.values()),
        skipped_rows=tuple(days.skipped),
        before=value,
        asof=market.asof,
        error_bound=sum(_error(day.trades[place]) for day in (before, after) for place in places),
        payments=tuple(payments.values()),
    )


def _move(new: Any, old: Any) -> np.ndarray:
    """Return the move of a leaf, 0 where there is no quote."""
    new, old = np.asarray(new), np.asarray(old)
    return np.where(np.isnan(old), 0.0, new - old)


def _error(trade: TradeRisk) -> float:
    return abs(trade.quantity) * trade.std_errors.value if trade.std_errors else 0.0


def _ages(positions: Iterable[Measures | None], days: int) -> float:
    """Return the thetas of positions times the days that pass."""
    thetas = (position.theta or 0.0 for position in positions if position)
    return sum(thetas, 0.0) * days / DAYS_PER_YEAR


def _gamma(position: Measures | None, spot: dict[str, float]) -> float:
    """Return half the second derivatives of a position times the products of the spots' moves."""
    gammas = position.gamma if position else {}
    return sum(0.5 * x * spot.get(a, 0.0) * spot.get(b, 0.0) for (a, b), x in gammas.items())
