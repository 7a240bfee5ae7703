"""The book as a table: figures of each position, raw and scaled to the shifts that desks quote."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from ..book_risk import MEASURES, RiskResult
from ..market import Market
from ..trades.book import Book
from .formats import cell

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

SCALED_IN_RATES = {
    "delta_1bp": ("delta", lambda spot: 1e-4),
    "gamma_1bp": ("gamma", lambda spot: 1e-8),
}
"""The same for trades on a curve, whose Delta and Gamma are those of the level of its zero rates.

gamma_1bp is the change of delta_1bp when the rates move by 1 bp.
"""

COLUMNS = (
    *("id", "type", *MEASURES, "method", "status", *SCALED, *SCALED_IN_RATES),
    "currency",
)
"""Of every table of positions; after them, `delta:NAME` and `gamma:NAME:NAME` of the assets of baskets."""

_WORDS = ("id", "type", "method", "status", "currency")


@dataclass(frozen=True)
class Position:
    """One row of the book: quantity times one contract.

    `trade`: its `Trade`, None if the row has none. `figures`: by column; none if it failed, and without
    those that the method cannot give without bias. `by_asset`: of a basket, what the spot of each of its assets
    does alone.
    """

    line: int
    id: str
    type: str
    trade: Any
    figures: dict[str, float]
    method: str
    status: str
    currency: str
    by_asset: dict[str, dict[str, float]] = field(default_factory=dict)

    def on(self, name: str) -> "Position":
        """The position as its Delta and Gamma to the spot of one of its assets."""
        return replace(self, figures=self.by_asset[name]) if self.by_asset else self

    @property
    def reason(self) -> str:
        """Why it failed."""
        return self.status.removeprefix("failed: ")


def positions_of(result: RiskResult, book: Book, market: Market) -> tuple[Position, ...]:
    """Every row of the book, in its order, with its figures in the currency of its underlying."""

    def position_of(row, risk) -> Position:
        figures, by_asset = _scaled(risk.position or {}, row.trade, market)
        name = row.trade.underlyings[0] if row.trade else ""
        equity = market.equities.get(name)
        return Position(
            *(row.line, row.id, row.type, row.trade, figures, risk.method, risk.status),
            currency=(equity.currency if equity else "") or market.currency,
            by_asset=by_asset,
        )

    return tuple(map(position_of, book.rows, result.trades))


def _scaled(
    figures: dict[str, float], trade: Any, market: Market
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The figures with the columns that are scaled, and those of each asset of a basket."""
    if not figures or trade is None:
        return figures, {}
    if trade.in_rates:
        kind = market.swaption_vols.kind if market.swaption_vols else ""
        columns = {name: SCALED[name] for name in ("vega_1volpt", "theta_1day", "rho_1bp")}
        if kind == "normal":
            columns["vega_1volpt"] = ("vega", lambda spot: 1e-4)
        return _with(figures, {**columns, **SCALED_IN_RATES}, 1.0), {}
    names = trade.underlyings
    spots = {name: float(market.equities[name].spot) for name in names}
    if len(names) == 1:
        return _with(figures, SCALED, spots[names[0]]), {}
    by_asset = {}
    for name, spot in spots.items():
        of_asset = {"delta": f"delta:{name}", "gamma": f"gamma:{name}:{name}"}
        raw = {measure: figures[key] for measure, key in of_asset.items() if key in figures}
        by_asset[name] = _with(raw, SCALED, spot)
    return _with(_in_proportion(figures, spots), SCALED, spots[names[0]]), by_asset


def _with(figures: dict[str, float], columns: dict[str, tuple], spot: float) -> dict[str, float]:
    """The figures and those columns that can be made of them."""
    made = {
        c: figures[raw] * factor(spot) for c, (raw, factor) in columns.items() if raw in figures
    }
    return {**figures, **made}


def _in_proportion(figures: dict[str, float], spots: dict[str, float]) -> dict[str, float]:
    """A basket's figures with a Delta and a Gamma for all spots together, per 1.00 of the first one.

    All spots move in proportion: by 1 % of each in the scaled columns. Each pair of assets has one Gamma.
    """
    names, first = list(spots), next(iter(spots.values()))
    twice = {f"gamma:{b}:{a}" for i, a in enumerate(names) for b in names[i + 1 :]}
    together = {}
    for measure, order in (("delta", 1), ("gamma", 2)):
        parts = {
            ":".join((measure, *of)): prod(spots[name] / first for name in of)
            for of in product(names, repeat=order)
        }
        if figures.keys() >= parts.keys():
            together[measure] = sum(figures[key] * ratio for key, ratio in parts.items())
    return {**together, **{key: x for key, x in figures.items() if key not in twice}}


def write_positions(path: Path, positions: Sequence[Position]) -> None:
    """The positions as CSV, numbers with every digit; a failed row has no figures."""
    of_assets = (name for position in positions for name in position.figures if ":" in name)
    columns = (*COLUMNS, *dict.fromkeys(of_assets))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for position in positions:
            words = {name: cell(getattr(position, name)) for name in _WORDS}
            writer.writerow({**words, **position.figures})
