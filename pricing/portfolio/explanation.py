"""P&L explain: the change of a book's value between two markets, split into parts."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, NamedTuple

import jax
import numpy as np

from ..argument_kinds import of_kinds
from ..market import Market
from .aged_book import AgedBook, Payment, aged, of_rows
from .batching import currency_of
from .book import Book
from .book_risk import RiskResult, risk
from .comparable_days import check_same_currencies, check_same_quotes
from .ex_dates import ex_dividend_moves, falls_of_spots, with_passed_dividends
from .mixed_moves import DAYS_PER_YEAR, first_order
from .step_revaluation import step_changes
from .sweep.fitted_models import BOOK, FIT, MARKET, Fit
from .sweep.trade_risk import TradeRisk
from .totals import CurrencyRisk

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

    def with_steps(self, changes: Mapping[str, np.ndarray], lasting: np.ndarray) -> "Explanation":
        """Return this explanation with the changes of trades by step, which add up to their whole changes.

        Args:
            changes: Step -> the change of each trade, [trades].
            lasting: The mask of the trades in this currency that did not end.
        """
        steps = {step: float(np.sum(own[lasting])) for step, own in changes.items()}
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
    after = with_passed_dividends(before, after)
    check_same_quotes(before, after)
    check_same_currencies(book, before, after)
    aged_book = aged(book, before, after)
    valued = lambda both: (
        risk(part, m, fit, **settings) for part, m in ((both.before, before), (both.after, after))
    )
    risk_before, risk_after = valued(aged_book)
    kept, skipped = [], {}
    for place, row in enumerate(aged_book.before.rows):
        is_over = place in aged_book.payments and aged_book.payments[place].is_over
        if risk_before.trades[place].figures and (is_over or risk_after.trades[place].figures):
            kept.append(place)
        elif not row.is_over:
            skipped[place] = row.id
    if len(kept) < len(aged_book.before.rows):
        aged_book = of_rows(aged_book, kept)
    if skipped:
        risk_before, risk_after = valued(aged_book)
        kept = range(len(kept))
    day_before, day_after = (
        _Day([x.trades[place] for place in kept], x.by_currency) for x in (risk_before, risk_after)
    )
    parts = _Parts.of(
        aged_book, lambda part, market: risk(part, market, fit, **settings), before, after
    )
    leaves, structure = jax.tree.flatten(before)
    pairs = zip(jax.tree.leaves(after), leaves, strict=True)
    moves = jax.tree.unflatten(structure, [_move(new, old) for new, old in pairs])
    moves = ex_dividend_moves(moves, before, after)
    explained = {
        currency: _explanation(
            *(currency, aged_book, day_before, day_after, parts, moves, before, after, skipped)
        )
        for currency in risk_before.by_currency
    }
    if not full_revaluation:
        return explained
    cash = [
        aged_book.payments[p].cash if p in aged_book.payments else 0.0 for p in range(len(kept))
    ]
    worth = [_value(trade) + paid for trade, paid in zip(day_after.trades, cash, strict=True)]
    changes = step_changes(
        aged_book.before, day_before.trades, worth, before, after, fit, **settings
    )
    lasting = [place not in parts.ended for place in range(len(kept))]
    currencies = [trade.currency for trade in day_before.trades]
    return {
        name: found.with_steps(changes, np.array(lasting) & (np.array(currencies) == name))
        for name, found in explained.items()
    }


class _Parts(NamedTuple):
    """The trades that a plain expansion does not cover, and their risk by currency.

    ended: indices of trades that ended or were knocked in; of_ended: their risk on the earlier day. touched:
    these, and the trades with a date that has passed or a spot that fell by a dividend; before, after: their
    risk on the two days.
    """

    ended: frozenset[int]
    touched: frozenset[int]
    of_ended: Mapping[str, CurrencyRisk]
    before: Mapping[str, CurrencyRisk]
    after: Mapping[str, CurrencyRisk]

    @classmethod
    def of(
        cls,
        aged_book: AgedBook,
        valued: Callable[[Book, Market], RiskResult],
        before: Market,
        after: Market,
    ) -> "_Parts":
        rows = enumerate(zip(aged_book.before.rows, aged_book.after.rows, strict=True))
        touched = frozenset(place for place, (old, new) in rows if old.trade is not new.trade)
        ended = frozenset(place for place, paid in aged_book.payments.items() if paid.event)
        falls = falls_of_spots(before, after)
        touched |= ended | {
            place
            for place, row in enumerate(aged_book.before.rows)
            if row.trade and any(falls.get(name) for name in row.trade.underlyings)
        }
        ended_rows, touched_rows = (
            of_rows(aged_book, sorted(places)) for places in (ended, touched)
        )
        return cls(
            *(ended, touched),
            valued(ended_rows.before, before).by_currency if ended else {},
            valued(touched_rows.before, before).by_currency if touched else {},
            valued(touched_rows.after, after).by_currency if touched else {},
        )


class _Day(NamedTuple):
    """The figures of the explained trades on one of the two days."""

    trades: list[TradeRisk]
    by_currency: Mapping[str, CurrencyRisk]


def _explanation(
    currency: str,
    aged_book: AgedBook,
    day_before: _Day,
    day_after: _Day,
    parts: "_Parts",
    moves: Market,
    market: Market,
    later: Market,
    skipped: dict[int, str],
) -> Explanation:
    """Return the change of the trades in one currency, all of which have figures."""
    in_currency = [
        row.trade and currency_of(row.trade, market) == currency for row in aged_book.before.rows
    ]
    of_currency = lambda trades: list(itertools.compress(trades, in_currency))
    before, after = day_before.by_currency[currency], day_after.by_currency.get(currency)
    payments = tuple(
        aged_book.payments[place] for place in sorted(aged_book.payments) if in_currency[place]
    )
    slopes = before.gradient
    if currency in parts.of_ended:
        slopes = jax.tree.map(np.subtract, slopes, parts.of_ended[currency].gradient)
    contributions = jax.tree.map(lambda slope, move: np.asarray(slope) * move, slopes, moves)
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
    trades, days = of_currency(day_before.trades), (later.asof - market.asof).days
    places = [place for place in range(len(in_currency)) if in_currency[place]]
    continuing = [day_before.trades[place] for place in places if place not in parts.ended]
    stays = [place for place in places if place not in parts.touched]
    firsts = [
        first_order(total, without.get(currency), [day.trades[p] for p in stays], moves, days)
        for day, total, without in (
            (day_before, before, parts.before),
            (day_after, after, parts.after),
        )
    ]
    second = 0.5 * (firsts[1] - firsts[0]) if after else 0.0
    ages = sum(trade.position.theta or 0.0 for trade in continuing if trade.position)
    by_quote = market.by_quote(contributions)
    falls = falls_of_spots(market, later)  # an ex-dividend fall of the spot has no Gamma effect
    spot_moves = {
        name: float(equity.spot) + falls.get(name, 0.0) for name, equity in moves.equities.items()
    }
    traded = {n for row in aged_book.before.rows if row.trade for n in row.trade.underlyings}
    others = (n for n in traded if n in market.fx or len(market.parts_of(n)) > 1)
    spot_moves |= {n: float(later.spot(n)) - float(market.spot(n)) for n in others}
    value = after.value if after else 0.0
    return Explanation(
        change=value + sum(payment.cash for payment in payments) - before.value,
        theta=ages * days / DAYS_PER_YEAR + total(pillars),
        delta=total(asset.spot for asset in (*equities, *pairs) if asset.spot is not None),
        gamma=sum((_gamma(trade, spot_moves) for trade in continuing), 0.0),
        vega=total(vols),
        rho=total(quotes),
        dividends=total(leaf for equity in equities for leaf in equity.dividend_quotes),
        correlation=total(jax.tree.leaves(getattr(contributions, "correlations", None))),
        mixed=second
        - sum(_gamma(day_before.trades[place], spot_moves) for place in stays if after),
        events=sum(
            (_change(aged_book, day_before, day_after, p) for p in places if p in parts.ended), 0.0
        ),
        by_quote={quote: part for quote, part in by_quote.items() if part},
        trades=len(trades),
        skipped=tuple(skipped.values()),
        skipped_rows=tuple(skipped),
        before=before.value,
        asof=market.asof,
        error_bound=sum(_error(trade) for trade in (*trades, *of_currency(day_after.trades))),
        payments=payments,
    )


def _change(aged_book: AgedBook, day_before: _Day, day_after: _Day, place: int) -> float:
    """Return the change of one trade: value after plus payment, less value before."""
    return (
        aged_book.payments[place].cash
        + _value(day_after.trades[place])
        - _value(day_before.trades[place])
    )


def _move(new: Any, old: Any) -> np.ndarray:
    """Return the move of a leaf, 0 where there is no quote."""
    new, old = np.asarray(new), np.asarray(old)
    return np.where(np.isnan(old), 0.0, new - old)


def _value(trade: TradeRisk) -> float:
    return trade.position.value if trade.position else 0.0


def _error(trade: TradeRisk) -> float:
    return abs(trade.quantity) * trade.std_errors.value if trade.std_errors else 0.0


def _gamma(trade: TradeRisk, spot: dict[str, float]) -> float:
    """Return half the trade's second derivatives times the products of the spots' moves."""
    gammas = trade.position.gamma if trade.position else {}
    return sum(0.5 * x * spot.get(a, 0.0) * spot.get(b, 0.0) for (a, b), x in gammas.items())
