"""What a page and a table say of a change of value: its parts, and the quotes that moved it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..explain import Explanation
from . import figures, tables
from .formats import by_size, decimals_for, number, write_csv
from .ladders import Ladder
from .tables import Number, Table

PARTS = {
    "theta": "Time",
    "delta": "Spots, Delta",
    "gamma": "Spots, Gamma",
    "vega": "Implied vols",
    "rho": "Rates",
    "dividends": "Dividends",
    "correlation": "Correlations",
    "residual": "Not explained",
}
"""Part of a change -> how it is called."""


def tiles(explanation: Explanation, currency: str) -> list[tuple[str, Number, str, str]]:
    """Return the head figures: label, number, unit, standard error."""
    shown = {
        "Value before": (explanation.before, ""),
        "Value after": (explanation.after, ""),
        "Change": (explanation.change, tables.margin(explanation.error_bound)),
        "Not explained": (explanation.residual, ""),
    }
    decimals = min(4, decimals_for(value for value, _ in shown.values()))
    return [
        (label, Number(number(value, decimals), value), currency, error)
        for label, (value, error) in shown.items()
    ]


def parts(explanation: Explanation) -> Table:
    """Return the parts of a change, and their shares of it."""
    found = {PARTS[name]: value for name, value in explanation.parts.items()}
    texts = tables.column([*found.values(), explanation.change])
    values = [*found.values(), explanation.change]
    rows = [
        (name, text, _share(value, explanation.change))
        for name, text, value in zip([*found, "change"], texts, values, strict=True)
    ]
    return Table(("Part", "P&L", "Share"), tuple(rows), has_total=True)


def _share(value: float, change: float) -> Number:
    share = value / change if change else float("nan")
    return Number(f"{number(100.0 * share, 1)} %" if change else number(share), share)


def picture(explanation: Explanation, currency: str) -> str:
    """Return the bars of the parts."""
    values = np.array(list(explanation.parts.values()))
    ladder = Ladder(values, labels=tuple(PARTS.values()))
    return figures.ladders([(f"Parts of the change, {currency}", ladder)])


def quotes(explanation: Explanation, count: int) -> Table:
    """Return the quotes that moved the value most."""
    ordered = sorted(explanation.by_quote.items(), key=lambda item: by_size(item[1]))
    shown = ordered[:count]
    texts = tables.column([value for _, value in shown])
    rows = tuple((quote, text) for (quote, _), text in zip(shown, texts, strict=True))
    return Table(("Quote", "P&L"), rows, left_out=len(ordered) - len(shown))


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return a change and its parts in plain values."""
    return {
        "before": explanation.before,
        "after": explanation.after,
        "change": explanation.change,
        "std_error_at_most": explanation.error_bound,
        "parts": explanation.parts,
        "trades": explanation.trades,
        "skipped": list(explanation.skipped),
        "by_quote": explanation.by_quote,
    }


def write_explanation_parts(path: Path, explanation: Explanation) -> None:
    """Write the parts, then the quotes' contributions, as CSV, numbers with every digit."""

    def rows() -> Iterator[dict[str, Any]]:
        for name, value in explanation.parts.items():
            yield {"kind": "part", "name": name, "pnl": value}
        for quote, value in explanation.by_quote.items():
            yield {"kind": "quote", "name": quote, "pnl": value}

    write_csv(path, ("kind", "name", "pnl"), rows())
