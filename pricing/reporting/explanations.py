"""The page and tables of a P&L explanation: its parts, and the quotes that moved the value."""

from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from ..portfolio.explanation import Explanation
from . import charts, tables
from .formats import by_size, decimals_for, number, write_csv
from .ladders import Ladder
from .tables import Number, TextTable

PARTS = {
    "theta": "Time",
    "delta": "Spots, Delta",
    "gamma": "Spots, Gamma",
    "vega": "Implied vols",
    "rho": "Rates",
    "dividends": "Dividends",
    "correlation": "Correlations",
    "mixed": "Mixed and second order",
    "events": "Trades that ended",
    "fx": "FX rates",
    "higher_order": "Higher order",
    "residual": "Not explained",
}
"""Part of a change -> its display name."""
STEPS = {
    "spots": "Spots",
    "vols": "Implied vols",
    "rates": "Rates",
    "dividends": "Dividends",
    "correlations": "Correlations",
    "time": "Time",
}
"""Step of a full revaluation -> its display name."""


def tiles(explanation: Explanation, currency: str) -> list[tuple[str, Number, str, str]]:
    """Return the headline figures: label, number, unit, standard error; dashes if no trade was valued."""
    shown = {
        "Value before": (explanation.before, ""),
        "Value after": (explanation.after, ""),
        **({"Paid in between": (explanation.cash, "")} if explanation.payments else {}),
        "Change": (explanation.change, tables.margin(explanation.error_bound)),
        "Not explained": (explanation.residual, ""),
    }
    if not explanation.trades:
        shown = dict.fromkeys(shown, (nan, ""))
    decimals = min(4, decimals_for(value for value, _ in shown.values()))
    return [
        (label, tables.rounded(value, decimals), currency, error)
        for label, (value, error) in shown.items()
    ]


def parts(explanation: Explanation, currency: str) -> TextTable:
    """Return the parts of a change, and their shares."""
    found = {PARTS[name]: value for name, value in explanation.parts.items()}
    texts = tables.column([*found.values(), explanation.change])
    values = [*found.values(), explanation.change]
    rows = [
        (name, text, _share(value, explanation.change))
        for name, text, value in zip([*found, "change"], texts, values, strict=True)
    ]
    return TextTable(("Part", _in(currency), "Share"), tuple(rows), has_total=True)


def steps(explanation: Explanation, currency: str) -> TextTable:
    """Return the changes of a full revaluation by step, and their sum; no rows without a revaluation."""
    found = {STEPS[name]: value for name, value in explanation.steps.items()}
    values = [*found.values(), sum(found.values())] if found else []
    names = [*found, "Trades that did not end"] if found else []
    rows = tuple(zip(names, tables.column(values), strict=True))
    return TextTable(("Step", _in(currency)), rows, has_total=True)


def _in(currency: str) -> str:
    return f"P&L, {currency}" if currency else "P&L"


def _share(value: float, change: float) -> Number:
    share = value / change if change else float("nan")
    return Number(f"{number(100.0 * share, 1)} %" if change else number(share), share)


def picture(explanation: Explanation, currency: str) -> str:
    """Return a bar chart of the parts."""
    values = np.array(list(explanation.parts.values()))
    ladder = Ladder(values, labels=tuple(PARTS[name] for name in explanation.parts))
    return charts.ladders([(f"Parts of the change{currency and ', '}{currency}", ladder)])


def quotes(explanation: Explanation, currency: str, count: int) -> TextTable:
    """Return the quotes that moved the value the most."""
    ordered = sorted(explanation.by_quote.items(), key=lambda item: by_size(item[1]))
    shown = ordered[:count]
    texts = tables.column([value for _, value in shown])
    rows = tuple((quote, text) for (quote, _), text in zip(shown, texts, strict=True))
    return TextTable(("Quote", _in(currency)), rows, left_out=len(ordered) - len(shown))


def payments(explanation: Explanation, currency: str) -> TextTable:
    """Return the payments of trades between the two days."""
    texts = tables.column([payment.cash for payment in explanation.payments])
    rows = [
        (
            payment.id,
            payment.event or "\N{EN DASH}",
            "nothing" if payment.is_over else "the trade, with the dates to come",
            ", ".join(payment.assumed) or "\N{EN DASH}",
            text,
        )
        for payment, text in zip(explanation.payments, texts, strict=True)
    ]
    fixings = "Fixings that are not in the market after"
    headers = ("Trade", "Event", "What is left", fixings, _in(currency))
    return TextTable(headers, tuple(rows), words=4)


def as_json(
    explanations: Mapping[str, Explanation], total: tuple[str, Explanation] | None = None
) -> dict[str, Any]:
    """Return changes and their parts as plain values: the total at the top, each currency in `by_currency`.

    total: its currency and its change; without a total, the only currency is at the top.
    """
    by_currency = {name: _as_json(found) for name, found in explanations.items()}
    (name, first), *others = by_currency.items()
    if total is not None:
        top = {"currency": total[0], **_as_json(total[1])}
    else:
        top = {"currency": None, **dict.fromkeys(first)} if others else {"currency": name, **first}
    skipped = next(iter(explanations.values())).skipped
    return {**top, "skipped": list(skipped), "by_currency": by_currency}


def _as_json(explanation: Explanation) -> dict[str, Any]:
    names = ("before", "after", "cash", "change", "parts", "trades", "by_quote")
    return {
        **{name: getattr(explanation, name) for name in names},
        "steps": dict(explanation.steps),
        "std_error_at_most": explanation.error_bound,
        "payments": [payment._asdict() for payment in explanation.payments],
    }


def write_explanation_parts(
    path: Path,
    explanations: Mapping[str, Explanation],
    total: tuple[str, Explanation] | None = None,
) -> None:
    """Write the parts, the contributions of quotes and the payments as CSV, with full precision.

    total: its currency and its change, whose parts are written as well.
    """

    def rows() -> Iterator[dict[str, Any]]:
        if total is not None:
            for name, value in total[1].parts.items():
                yield {"kind": "total", "name": name, "pnl": value, "currency": total[0]}
        for currency, explanation in explanations.items():
            paid = {payment.id: payment.cash for payment in explanation.payments}
            kinds = {"part": explanation.parts, "step": explanation.steps}
            kinds |= {"quote": explanation.by_quote, "payment": paid}
            for kind, values in kinds.items():
                for name, value in values.items():
                    yield {"kind": kind, "name": name, "pnl": value, "currency": currency}

    write_csv(path, ("kind", "name", "pnl", "currency"), rows())
