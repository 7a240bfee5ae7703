"""The change of a whole book's value in one currency, including the FX part."""

import dataclasses
from collections.abc import Mapping

from ..market import Market
from .explanation import Explanation


def explain_total(
    found: Mapping[str, Explanation], before: Market, after: Market, currency: str | None = None
) -> Explanation:
    """Return the change of all trades in one currency, from the changes in each currency.

    Let x and x' be the FX rates of a currency in the earlier and the later market. Each part of that currency
    is multiplied by x, and `fx` is (x' - x) (value after + cash). They add up to x' (value after + cash) - x
    (value before), so conversion adds no unexplained part. A currency that no FX pair converts raises
    MissingRate, a ValueError.

    Args:
        found: ISO code -> the change and its parts, from `explain_by_currency`.
        before: The earlier market, whose currency is the default.
        after: The later market, at whose rates paid cash is converted.
        currency: The ISO code of the total.

    Returns:
        The change and its parts, including `fx`.

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
