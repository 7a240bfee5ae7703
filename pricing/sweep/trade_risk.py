"""What a sweep says of each trade: its figures with names, or the reason why it has none."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from ..trades.book import Book, Row
from .groups import Group

NON_FINITE = "failed: a figure is not finite; check the trade's numbers for extremes"

Columns = Mapping[str, Any]  # measure -> array [trades], of several assets [trades, assets, ...]


@dataclass(frozen=True)
class Figures:
    """A value in currency and its raw derivatives.

    delta: by underlying; gamma: by pair of underlyings, each pair in both orders. None, or an empty dictionary,
    stands for what was not asked for and for what the method cannot give without bias.
    """

    value: float
    delta: dict[str, float] = field(default_factory=dict)
    gamma: dict[tuple[str, str], float] = field(default_factory=dict)
    vega: float | None = None
    theta: float | None = None
    rho: float | None = None

    def scaled(self, factor: float) -> "Figures":
        """Every figure times `factor`."""

        def scale(figure: Any) -> Any:
            if isinstance(figure, dict):
                return {name: factor * x for name, x in figure.items()}
            return None if figure is None else factor * figure

        return Figures(**{name: scale(figure) for name, figure in vars(self).items()})

    @property
    def is_finite(self) -> bool:
        """Whether every figure is."""
        nested = (x.values() if isinstance(x, dict) else (x,) for x in vars(self).values())
        return all(x is None or isfinite(x) for x in itertools.chain(*nested))


def figures_of(columns: Columns, names: tuple[str, ...], count: int) -> list[Figures]:
    """The figures of the first `count` trades of a tile on the assets of these names."""
    keys = {"delta": names, "gamma": tuple(itertools.product(names, repeat=2))}

    def named(measure: str, column: np.ndarray) -> list:
        rows = np.reshape(column, (len(column), -1))[:count].tolist()
        if measure in keys:
            return [dict(zip(keys[measure], row, strict=True)) for row in rows]
        return [figure for (figure,) in rows]

    lists = {measure: named(measure, np.asarray(column)) for measure, column in columns.items()}
    rows = zip(*lists.values(), strict=True)
    return [Figures(**dict(zip(lists, row, strict=True))) for row in rows]


@dataclass(frozen=True)
class TradeRisk:
    """One row of a book.

    figures: of one contract, None if it failed; std_errors: of each figure, 0 for a deterministic method.
    """

    id: str
    type: str
    quantity: float
    figures: Figures | None
    method: str
    status: str
    std_errors: Figures | None = None

    @property
    def position(self) -> Figures | None:
        """The figures times the quantity."""
        return None if self.figures is None else self.figures.scaled(self.quantity)


def trade_risks(
    book: Book, found: Mapping[str, tuple[Group, Figures, Figures]], unpriced: Mapping[str, str]
) -> tuple[TradeRisk, ...]:
    """Every row of the book, in its order.

    found: by id, the group of a trade, its figures and their standard errors; unpriced: the reasons, by id.
    """

    def of_row(row: Row) -> TradeRisk:
        head = row.id, row.type, row.trade.quantity if row.trade else 0.0
        if row.trade is None:
            return TradeRisk(*head, None, "", f"failed: {'; '.join(map(str, row.errors))}")
        if row.id in unpriced:
            return TradeRisk(*head, None, "", f"failed: {unpriced[row.id]}")
        group, figures, errors = found[row.id]
        method = type(group.method).__name__
        if not (figures.is_finite and errors.is_finite):
            return TradeRisk(*head, None, method, NON_FINITE)
        return TradeRisk(*head, figures, method, "ok", errors)

    return tuple(map(of_row, book.rows))
