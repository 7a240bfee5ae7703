"""The trades of a book as a table in a notebook."""

from collections.abc import Sequence
from html import escape
from typing import Any

from .sweep.trade_risk import TradeRisk, table_row

_MOST_ROWS = 20


def html_of(trades: Sequence[TradeRisk], title: str) -> str:
    """Return an HTML table of the first trades, as positions (quantity times one contract).

    Args:
        trades: The trades.
        title: The line above the table.

    Returns:
        The table. If trades are left out, its last line gives their number.
    """
    rows = [table_row(trade) for trade in trades[:_MOST_ROWS]]
    columns = dict.fromkeys(name for row in rows for name in row)
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in columns)}</tr>"
        for row in rows
    )
    more = f"<p>{len(trades) - _MOST_ROWS:,} more</p>" if len(trades) > _MOST_ROWS else ""
    return f"<p>{escape(title)}</p><table><tr>{head}</tr>{body}</table>{more}"


def _cell(x: Any) -> str:
    if x is None:
        return ""
    return f"{x:,.6g}" if isinstance(x, float) else escape(str(x))
