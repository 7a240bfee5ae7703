"""The change of a whole book's value in one currency, with the part of FX rates."""

import dataclasses
from collections.abc import Mapping

from ..market import Market
from .explanation import Explanation


def explain_total(
    found: Mapping[str, Explanation], before: Market, after: Market, currency: str | None = None
) -> Explanation:
    """Return the change of all trades in one currency, from the changes in each.

    With x the rates at the market before and x' those after, of the trades in a currency each part counts x
    times, and the part `fx` is (x' - x) times their value after with the cash that they paid. Those add up to
    the change x' (value after + cash) - x value before, and nothing more is unexplained than in each currency.
    Where no pairs convert a currency to the total's, it raises MissingRate, a ValueError.

    Args:
        found: ISO code -> the change and its parts (`explain_by_currency`).
        before: The market before, whose currency is the default.
        after: The market after; cash that was paid is converted at its rates.
        currency: The ISO code of the total.

    Returns:
        The change and its parts, `fx` among them.

    Examples:
        >>> from pricing import Book, Market, explain_by_currency, explain_total
        >>> from pricing.models.surface_models import black_scholes
        >>> text = '{"asof": "2002-07-05", "currency": "EUR", "curves": {"EUR": {"zero_rate": 0.03}}}'
        >>> market, book = Market.from_text(text), Book.from_text("id,type,underlying,option,strike,expiry")
        >>> found = explain_by_currency(book, market, market, black_scholes)
        >>> explain_total(found, market, market).fx
        0.0
    """
    target = before.currency if currency is None else currency
    rates = {name: float(before.fx_rate(name, target)) for name in found}
    later = {name: float(after.fx_rate(name, target)) for name in found}

    def total(part: str) -> float:
        return sum(rates[name] * getattr(each, part) for name, each in found.items())

    first = next(iter(found.values()))
    numbers = dataclasses.fields(Explanation)
    parts = {field.name: total(field.name) for field in numbers if field.name in first.parts}
    steps: dict[str, float] = {}
    for name, each in found.items():
        for step, change in each.steps.items():
            steps[step] = steps.get(step, 0.0) + rates[name] * change
    fx = sum(
        (later[name] - rates[name]) * (each.before + each.change) for name, each in found.items()
    )
    by_quote: dict[str, float] = {}
    for name, each in found.items():
        for quote, part in each.by_quote.items():
            by_quote[quote] = by_quote.get(quote, 0.0) + rates[name] * part
    payments = (
        payment._replace(cash=later[name] * payment.cash)
        for name, each in found.items()
        for payment in each.payments
    )
    return dataclasses.replace(
        first,
        **parts,
        fx=fx,
        steps=steps,
        before=total("before"),
        change=total("change") + fx,
        by_quote=by_quote,
        trades=sum(each.trades for each in found.values()),
        error_bound=sum(
            max(rates[name], later[name]) * each.error_bound for name, each in found.items()
        ),
        payments=tuple(payments),
    )
