"""The book as a table: figures of each position, raw and scaled to the shifts that desks quote."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..book import Book
from ..market import Market
from ..risk import MEASURES, RiskResult

SCALED = {
    "delta_1pct": ("delta", lambda spot: 0.01 * spot),
    "gamma_1pct": ("gamma", lambda spot: 0.01 * spot**2),
    "vega_1volpt": ("vega", lambda spot: 0.01),
    "theta_1day": ("theta", lambda spot: 1.0 / 365.0),
    "rho_1bp": ("rho", lambda spot: 1e-4),
}
"""Column -> the raw derivative it comes from, and its factor, given the spot.

gamma_1pct is the change of the Delta in currency (delta * spot) when the spot moves by 1 %.
"""

COLUMNS = ("id", "type", *MEASURES, "method", "status", *SCALED, "currency")


@dataclass(frozen=True)
class Position:
    """One row of the book: quantity times one contract.

    `trade`: its `Trade`, None if the row has none. `figures`: by column; none if it failed, and without
    those that the method cannot give without bias.
    """

    line: int
    id: str
    type: str
    trade: Any
    figures: dict[str, float]
    method: str
    status: str
    currency: str

    @property
    def reason(self) -> str:
        """Why it failed."""
        return self.status.removeprefix("failed: ")


def positions_of(result: RiskResult, book: Book, market: Market) -> tuple[Position, ...]:
    """Every row of the book, in its order, with its figures in the currency of its underlying."""
    spots = {name: float(equity.spot) for name, equity in market.equities.items()}

    def position_of(row, risk) -> Position:
        name = row.trade.underlying if row.trade else ""
        currency = market.equities[name].currency if name in spots else ""
        figures = dict(risk.position or {})
        figures |= {
            column: figures[raw] * factor(spots[name])
            for column, (raw, factor) in SCALED.items()
            if raw in figures
        }
        return Position(
            *(row.line, row.id, row.type, row.trade, figures, risk.method, risk.status),
            currency or market.currency,
        )

    return tuple(map(position_of, book.rows, result.trades))


def write_positions(path: Path, positions: Iterable[Position]) -> None:
    """The positions as CSV, numbers with every digit; a failed row has no figures."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for position in positions:
            head = {name: getattr(position, name) for name in ("id", "type", "method", "status")}
            writer.writerow({**head, **position.figures, "currency": position.currency})
