"""The verb: why did the value of a book change from one market to the next?"""

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
    """The change of a book's value, and its explanation by the risk before it, in one currency.

    Attributes:
        change: The value after, with the cash that was paid in between, less the value before.
        theta: The part of time: contracts age, and the pillars of curves and surfaces come nearer. It includes
            all else that changes in a curve's instruments but their quotes: dates, accruals and convexity
            adjustments.
        delta: The sensitivities to spots, times their changes.
        gamma: Half the trades' Gammas times the squares of the spots' changes.
        vega: The sensitivities to implied vols (through the fit), times their changes.
        rho: The sensitivities to the quotes of curves (through the fit), times their changes.
        dividends: The sensitivities to dividend yields and dividends, times their changes. A dividend that went
            ex falls to 0, beside the Delta of the spot's fall by it.
        correlation: The sensitivities to correlations, times their changes.
        mixed: Half the change of all sensitivities over the two days times the moves, less `gamma`: the second
            order of time, vols, rates and mixed moves, of the trades whose dates and terms stay the same.
        events: The whole change of the trades that ended, or were knocked in, between the two days: their value
            after, with what they paid, less their value before. They are in no other part.
        by_quote: The contribution of each quote that moved, by its id.
        trades: The number of trades that were valued before, and valued or paid after.
        skipped: The ids of the other rows, which are in none of these numbers.
        skipped_rows: Their places among the rows of the book.
        before: The value before.
        asof: The day of the market before.
        error_bound: A bound of the standard error of `change`: the sum of the standard errors of the trades'
            values, before and after. Both have the same random numbers, so that the error is usually far below
            it.
        payments: The payments in between, of trades that ended or paid.
        fx: The part of FX rates to the currency of a total (`explain_total`); None of one currency.
        steps: With a full revaluation, the change of the trades that did not end: on the earlier day spots (of
            equities and pairs), vols, rates, dividends and correlations move one after the other, if they do,
            and at last time passes. Else empty.
        higher_order: With a full revaluation, the sum of `steps` less all parts of the expansion: what first
            and second orders miss, as of a digital option that passes its strike near its end. Else None.
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
        """The parts by name, in the order of the expansion, the residual last."""
        found = {name: getattr(self, name) for name in (*_PARTS, "fx", "higher_order", "residual")}
        return {name: part for name, part in found.items() if part is not None}

    @property
    def explained(self) -> float:
        """The sum of all parts."""
        expanded = sum(getattr(self, name) for name in _PARTS)
        return expanded + (self.fx or 0.0) + (self.higher_order or 0.0)

    def with_steps(self, changes: Mapping[str, np.ndarray], lasting: np.ndarray) -> "Explanation":
        """Return this explanation with the changes of trades step by step, which add up to their whole changes.

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
    """Explain a change of value: a full revaluation beside the second-order expansion at the market before.

    The two markets name the same curves, equities and pillars (quotes of the same ids); otherwise it raises a
    ValueError. A trade that ends between the two days, or pays, is counted with its payments (`aged`).

    Args:
        book: The trades, all in one currency.
        before: The market that the expansion is taken at.
        after: The market to explain.
        fit: The map from a market to models, as in `risk`.
        full_revaluation: Whether to value the trades again after each group of quotes has moved (`steps`):
            what the expansion misses is then `higher_order`, and nothing is unexplained.
        **settings: The other arguments of `risk`.

    Returns:
        The change and its parts.

    Raises:
        ValueError: The trades are in several currencies: `explain_by_currency` takes them.

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
    """Explain a change of value as `explain` does, separately for the trades in each currency.

    Args:
        book: The trades.
        before: The market that the expansion is taken at.
        after: The market to explain.
        fit: The map from a market to models, as in `risk`.
        full_revaluation: Whether to value the trades again after each group of quotes has moved (`steps`):
            what the expansion misses is then `higher_order`, and nothing is unexplained.
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
    two = aged(book, before, after)
    valued = lambda two: (
        risk(part, m, fit, **settings) for part, m in ((two.before, before), (two.after, after))
    )
    then, now = valued(two)
    kept, skipped = [], {}
    for place, row in enumerate(two.before.rows):
        is_over = place in two.payments and two.payments[place].is_over
        if then.trades[place].figures and (is_over or now.trades[place].figures):
            kept.append(place)
        elif not row.is_over:
            skipped[place] = row.id
    if len(kept) < len(two.before.rows):
        two = of_rows(two, kept)
    if skipped:
        then, now = valued(two)
        kept = range(len(kept))
    first, last = (_Day([x.trades[place] for place in kept], x.by_currency) for x in (then, now))
    parts = _Parts.of(two, lambda part, market: risk(part, market, fit, **settings), before, after)
    leaves, structure = jax.tree.flatten(before)
    pairs = zip(jax.tree.leaves(after), leaves, strict=True)
    moves = jax.tree.unflatten(structure, [_move(new, old) for new, old in pairs])
    moves = ex_dividend_moves(moves, before, after)
    explained = {
        currency: _explanation(*(currency, two, first, last, parts, moves, before, after, skipped))
        for currency in then.by_currency
    }
    if not full_revaluation:
        return explained
    cash = [two.payments[p].cash if p in two.payments else 0.0 for p in range(len(kept))]
    worth = [_value(trade) + paid for trade, paid in zip(last.trades, cash, strict=True)]
    changes = step_changes(two.before, first.trades, worth, before, after, fit, **settings)
    lasting = [place not in parts.ended for place in range(len(kept))]
    currencies = [trade.currency for trade in first.trades]
    return {
        name: found.with_steps(changes, np.array(lasting) & (np.array(currencies) == name))
        for name, found in explained.items()
    }


class _Parts(NamedTuple):
    """The trades that need more than an expansion, and their risk by currency.

    ended: places of trades that ended or were knocked in, of_ended: their risk before; touched: those, the
    trades of which a date has passed and those whose spot fell by a dividend, before and after: their risk on
    both days.
    """

    ended: frozenset[int]
    touched: frozenset[int]
    of_ended: Mapping[str, CurrencyRisk]
    before: Mapping[str, CurrencyRisk]
    after: Mapping[str, CurrencyRisk]

    @classmethod
    def of(
        cls,
        two: AgedBook,
        valued: Callable[[Book, Market], RiskResult],
        before: Market,
        after: Market,
    ) -> "_Parts":
        rows = enumerate(zip(two.before.rows, two.after.rows, strict=True))
        touched = frozenset(place for place, (old, new) in rows if old.trade is not new.trade)
        ended = frozenset(place for place, paid in two.payments.items() if paid.event)
        falls = falls_of_spots(before, after)
        touched |= ended | {
            place
            for place, row in enumerate(two.before.rows)
            if row.trade and any(falls.get(name) for name in row.trade.underlyings)
        }
        own, other = (of_rows(two, sorted(places)) for places in (ended, touched))
        return cls(
            *(ended, touched),
            valued(own.before, before).by_currency if ended else {},
            valued(other.before, before).by_currency if touched else {},
            valued(other.after, after).by_currency if touched else {},
        )


class _Day(NamedTuple):
    """The figures of the trades that are explained, on one of the two days."""

    trades: list[TradeRisk]
    by_currency: Mapping[str, CurrencyRisk]


def _explanation(
    currency: str,
    two: AgedBook,
    then: _Day,
    now: _Day,
    parts: "_Parts",
    moves: Market,
    market: Market,
    later: Market,
    skipped: dict[int, str],
) -> Explanation:
    """Return the change of the trades in one currency, all of which have figures."""
    own = [row.trade and currency_of(row.trade, market) == currency for row in two.before.rows]
    of_currency = lambda trades: list(itertools.compress(trades, own))
    before, after = then.by_currency[currency], now.by_currency.get(currency)
    payments = tuple(two.payments[place] for place in sorted(two.payments) if own[place])
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
    trades, days = of_currency(then.trades), (later.asof - market.asof).days
    places = [place for place in range(len(own)) if own[place]]
    continuing = [then.trades[place] for place in places if place not in parts.ended]
    stays = [place for place in places if place not in parts.touched]
    firsts = [
        first_order(total, without.get(currency), [day.trades[p] for p in stays], moves, days)
        for day, total, without in ((then, before, parts.before), (now, after, parts.after))
    ]
    second = 0.5 * (firsts[1] - firsts[0]) if after else 0.0
    ages = sum(trade.position.theta or 0.0 for trade in continuing if trade.position)
    by_quote = market.by_quote(contributions)
    falls = falls_of_spots(market, later)  # a fall by a dividend moves no option
    spot_moves = {
        name: float(equity.spot) + falls.get(name, 0.0) for name, equity in moves.equities.items()
    }
    traded = {n for row in two.before.rows if row.trade for n in row.trade.underlyings}
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
        mixed=second - sum(_gamma(then.trades[place], spot_moves) for place in stays if after),
        events=sum((_change(two, then, now, p) for p in places if p in parts.ended), 0.0),
        by_quote={quote: part for quote, part in by_quote.items() if part},
        trades=len(trades),
        skipped=tuple(skipped.values()),
        skipped_rows=tuple(skipped),
        before=before.value,
        asof=market.asof,
        error_bound=sum(_error(trade) for trade in (*trades, *of_currency(now.trades))),
        payments=payments,
    )


def _change(two: AgedBook, then: _Day, now: _Day, place: int) -> float:
    """Return the value after of one trade, with what it paid, less its value before."""
    return two.payments[place].cash + _value(now.trades[place]) - _value(then.trades[place])


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
