"""What a sweep says of each trade: its figures with names, or the reason why it has none."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import jax
import numpy as np

from ..results import RESULTS
from ..trades.book import Book, Row
from .groups import Group

NON_FINITE = "failed: a figure is not finite; check the trade's numbers for extremes"

Columns = Mapping[str, Any]  # measure -> array [trades], of several assets [trades, assets, ...]


@dataclass(frozen=True)
class Figures:
    """A value and its raw derivatives, each per 1.00.

    None, or an empty dictionary, stands for what was not asked for and for what the method cannot give without
    bias.

    Attributes:
        value: In currency.
        delta: Underlying -> derivative to its spot, or to the level of the zero rates of a curve.
        gamma: Pair of underlyings -> second derivative; each pair stands in both orders.
        vega: Derivative where all implied vols move in parallel, through the fit.
        theta: Derivative to calendar time, per year.
        rho: Derivative where all zero rates move in parallel, through the fit.

    Examples:
        >>> from pricing import Figures
        >>> figures = Figures(12.5, {"DAX": 0.5}, {("DAX", "DAX"): 0.01})
        >>> figures.scaled(-2.0).delta["DAX"]
        -1.0
    """

    value: float
    delta: dict[str, float] = field(default_factory=dict)
    gamma: dict[tuple[str, str], float] = field(default_factory=dict)
    vega: float | None = None
    theta: float | None = None
    rho: float | None = None

    def scaled(self, factor: float) -> "Figures":
        """Return every figure times `factor`."""

        def scale(figure: Any) -> Any:
            if isinstance(figure, dict):
                return {name: factor * x for name, x in figure.items()}
            return None if figure is None else factor * figure

        return Figures(**{name: scale(figure) for name, figure in vars(self).items()})

    @property
    def is_finite(self) -> bool:
        """Whether every figure is a finite number."""
        nested = (x.values() if isinstance(x, dict) else (x,) for x in vars(self).values())
        return all(x is None or isfinite(x) for x in itertools.chain(*nested))


def figures_of(columns: Columns, names: tuple[str, ...], count: int) -> list[Figures]:
    """Return the figures of the first `count` trades of a tile on the assets of these names."""
    keys = {"delta": names, "gamma": tuple(itertools.product(names, repeat=2))}

    def named(measure: str, column: np.ndarray) -> list:
        rows = np.reshape(column, (len(column), -1))[:count].tolist()
        if measure in keys:
            return [dict(zip(keys[measure], row, strict=True)) for row in rows]
        return [figure for (figure,) in rows]

    lists = {measure: named(measure, np.asarray(column)) for measure, column in columns.items()}
    rows = zip(*lists.values(), strict=True)
    return [Figures(**dict(zip(lists, row, strict=True))) for row in rows]


def reasons_of(refusals: RESULTS, count: int) -> list[str]:
    """Return why the method does not reach each of the first `count` trades of a tile; empty if it does."""
    (codes,) = map(np.asarray, jax.tree.leaves(refusals))
    one = lambda code: jax.tree.map(lambda _: np.asarray(code), refusals)  # noqa: E731
    reason = {code: RESULTS[one(code)] for code in np.unique(codes)}
    return [reason[code] for code in codes[:count]]


@dataclass(frozen=True)
class TradeRisk:
    """What a sweep found for one row of a book.

    Attributes:
        id: The row's id, as it stands in the file.
        type: The kind of trade.
        quantity: The number of contracts, negative when short.
        figures: The figures of one contract; None if the trade failed.
        method: The name of the method that valued it; empty if none did.
        status: "ok", or "failed: " and the reason.
        std_errors: The standard error of each figure, 0 for a deterministic method; None if the trade failed.

    Examples:
        >>> from pricing import Figures, TradeRisk
        >>> trade = TradeRisk("E1", "european", 10.0, Figures(1.5), "ClosedForm", "ok", Figures(0.0))
        >>> trade.position.value
        15.0
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
        """The figures times the quantity; None if the trade failed."""
        return None if self.figures is None else self.figures.scaled(self.quantity)


Found = dict[str, tuple[Group, Figures, Figures, str]]
"""By id: the group of a trade, its figures, their standard errors, and why its method does not reach it."""


def trade_risks(book: Book, found: Found, unpriced: Mapping[str, str]) -> tuple[TradeRisk, ...]:
    """Return every row of the book, in its order, with its figures or the reason why it has none."""

    def of_row(row: Row) -> TradeRisk:
        head = row.id, row.type, row.trade.quantity if row.trade else 0.0
        if row.trade is None:
            return TradeRisk(*head, None, "", f"failed: {'; '.join(map(str, row.errors))}")
        if row.id in unpriced:
            return TradeRisk(*head, None, "", f"failed: {unpriced[row.id]}")
        group, figures, errors, reason = found[row.id]
        method = type(group.method).__name__
        if not (figures.is_finite and errors.is_finite):
            return TradeRisk(*head, None, method, f"failed: {reason}" if reason else NON_FINITE)
        return TradeRisk(*head, figures, method, "ok", errors)

    return tuple(map(of_row, book.rows))
