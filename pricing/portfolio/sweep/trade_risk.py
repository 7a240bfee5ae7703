"""The results of a sweep for each trade: its named figures, or the reason why it has none."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import jax
import numpy as np

from ...market import Market
from ...results import RESULTS
from ..batching import currencies_in
from ..book import Book, BookRow
from .groups import TradeGroup

_COLUMNS = ("value", "std_error", "delta", "gamma", "vega", "theta", "rho")
NON_FINITE = "failed: a figure is not finite; check the trade's numbers for extremes"

Columns = dict[str, np.ndarray]  # measure -> [trades]; for several assets [trades, assets, ...]


@dataclass(frozen=True)
class Measures:
    """A value and its raw derivatives, each per 1.00.

    None, or an empty dictionary, means that a figure was not requested, or that the method cannot compute it
    without bias.

    Attributes:
        value: The value in currency.
        delta: Underlying -> derivative to its spot, or to a parallel move of the zero rates of a curve.
        gamma: Pair of underlyings -> second derivative; each pair occurs in both orders.
        vega: The derivative to a parallel move of all implied vols, through the fit.
        theta: The derivative to calendar time, per year.
        rho: The derivative to a parallel move of all zero rates, through the fit.
    """

    value: float
    delta: dict[str, float] = field(default_factory=dict)
    gamma: dict[tuple[str, str], float] = field(default_factory=dict)
    vega: float | None = None
    theta: float | None = None
    rho: float | None = None

    def scaled(self, factor: float) -> "Measures":
        """Return every figure times `factor`."""

        def scale(figure: Any) -> Any:
            if isinstance(figure, dict):
                return {name: factor * x for name, x in figure.items()}
            return None if figure is None else factor * figure

        return Measures(**{name: scale(figure) for name, figure in vars(self).items()})


def _figures_of(columns: Columns, names: tuple[str, ...]) -> list[Measures]:
    """Return the figures of each trade on the named assets."""
    keys = {"delta": names, "gamma": tuple(itertools.product(names, repeat=2))}

    def named(measure: str, column: np.ndarray) -> list:
        rows = column.reshape(len(column), -1).tolist()
        if measure in keys:
            return [dict(zip(keys[measure], row, strict=True)) for row in rows]
        return [figure for (figure,) in rows]

    rows = zip(*(named(measure, column) for measure, column in columns.items()), strict=True)
    return [Measures(**dict(zip(columns, row, strict=True))) for row in rows]


@dataclass(frozen=True)
class TradeRisk:
    """The result of a sweep for one row of a book.

    Attributes:
        id: The row's id, as it is in the file.
        type: The kind of trade.
        quantity: The number of contracts, negative when short.
        figures: The figures of one contract, seasoned to the market's day; None if the trade failed, or has
            ended and is worthless.
        method: The name of the method that valued the trade, or "".
        status: "ok", or "failed: " and the reason; for a trade that has ended, "expired", "exercised",
            "called", "knocked out" or "settled".
        std_errors: The standard error of each figure. 0 for a deterministic method; for a grid, with
            `grid_errors` in `risk`, the difference to a grid with half the nodes and steps. None if the trade
            failed.
        rounding_errors: The rounding error of each figure if devices compute in single precision, with
            `rounding_errors` in `risk`; else None.
        currency: The ISO code of the currency of the figures; "" if there are no figures, or the market names
            none.
    """

    id: str
    type: str
    quantity: float
    figures: Measures | None
    method: str
    status: str
    std_errors: Measures | None = None
    rounding_errors: Measures | None = None
    currency: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether the trade could not be valued."""
        return self.status.startswith("failed")

    @property
    def position(self) -> Measures | None:
        """The figures times the quantity; None if there are none."""
        return None if self.figures is None else self.figures.scaled(self.quantity)


@dataclass(frozen=True)
class GroupRisk:
    """The results of a sweep for a group: columns of figures, their standard errors, and refusals.

    refusals: the reason why the method does not value each trade, if it does not. roundings: the rounding error
    of each figure, if known.
    """

    group: TradeGroup
    figures: Columns
    errors: Columns
    refusals: RESULTS
    roundings: Columns | None = None

    @functools.cached_property
    def is_finite(self) -> np.ndarray:
        """Whether every figure of a trade is a finite number."""
        columns = (*self.figures.values(), *self.errors.values())
        flat = [np.isfinite(column).reshape(len(column), -1) for column in columns]
        return np.all(np.concatenate(flat, axis=1), axis=1)

    @property
    def value(self) -> float:
        """The sum of quantity times value over the trades that were valued."""
        quantities = np.array([trade.quantity for trade in self.group.trades])[self.is_finite]
        return float(quantities @ self.figures["value"][self.is_finite].astype(float))

    @functools.cached_property
    def rows(self) -> list[tuple[Measures | None, str, str, Measures | None, Measures | None]]:
        """The figures, method, status, standard errors and rounding errors of each trade."""
        names, method = self.group.trades[0].underlyings, self.group.method.name
        (codes,) = map(np.asarray, jax.tree.leaves(self.refusals))
        one = lambda code: jax.tree.map(lambda _: np.asarray(code), self.refusals)
        reasons = {code: RESULTS[one(code)] for code in np.unique(codes)}
        status = {code: f"failed: {why}" if why else NON_FINITE for code, why in reasons.items()}
        columns = _figures_of(self.figures, names), _figures_of(self.errors, names)
        unknown = [None] * len(codes)
        roundings = _figures_of(self.roundings, names) if self.roundings else unknown
        found = zip(*columns, roundings, self.is_finite, codes, strict=True)
        return [
            (figures, method, "ok", errors, rounding)
            if finite
            else (None, method, status[code], None, None)
            for figures, errors, rounding, finite, code in found
        ]


class TradeRisks(Sequence[TradeRisk]):
    """All rows of a book, in order, with their figures or the reasons why they have none.

    Rows are built on demand from the columns of a sweep. unpriced: reasons, by id.
    """

    def __init__(
        self, book: Book, groups: Sequence[GroupRisk], unpriced: Mapping[str, str], market: Market
    ):
        self._rows, self._groups, self._unpriced = book.rows, groups, unpriced
        self._currency_of = currencies_in(market)

    @functools.cached_property
    def _places(self) -> dict[str, tuple[GroupRisk, int]]:
        """Id -> the group of a trade and its index there."""
        return {
            trade.id: (risk, index)
            for risk in self._groups
            for index, trade in enumerate(risk.group.trades)
        }

    @functools.cached_property
    def _found(self) -> tuple[TradeRisk, ...]:
        return tuple(map(self._of_row, self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TradeRisk]:
        return iter(self._found)

    @overload
    def __getitem__(self, index: int) -> TradeRisk: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TradeRisk, ...]: ...
    def __getitem__(self, index):
        return self._found[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def _of_row(self, row: BookRow) -> TradeRisk:
        if row.is_over and row.history is not None:
            ended = row.history
            return TradeRisk(row.id, row.type, ended.trade.quantity, None, "", ended.event)
        head = row.id, row.type, row.trade.quantity if row.trade else 0.0
        if row.trade is None:
            return TradeRisk(*head, None, "", f"failed: {'; '.join(map(str, row.errors))}")
        if row.id in self._unpriced:
            return TradeRisk(*head, None, "", f"failed: {self._unpriced[row.id]}")
        risk, index = self._places[row.id]
        figures, method, status, *errors = risk.rows[index]
        currency = self._currency_of(row.trade) if figures else ""
        return TradeRisk(*head, figures, method, status, *errors, currency=currency)


def table_row(trade: TradeRisk) -> dict[str, Any]:
    """Return the cells of a trade: its names, its position's figures, and the standard error of the value."""
    head = {"id": trade.id, "type": trade.type, "quantity": trade.quantity}
    tail = {"method": trade.method, "status": trade.status, "currency": trade.currency or None}
    position: Any = trade.position
    figures: dict[str, float | None] = dict.fromkeys(_COLUMNS)
    if position is not None:
        errors: Any = trade.std_errors
        figures |= {name: getattr(position, name) for name in ("value", "vega", "theta", "rho")}
        figures["std_error"] = abs(trade.quantity) * errors.value
        if len(position.delta) == 1:
            (figures["delta"],) = position.delta.values()
            figures["gamma"] = next(iter(position.gamma.values()), None)
        else:
            figures |= {f"delta:{name}": x for name, x in position.delta.items()}
            upper = itertools.combinations_with_replacement(position.delta, 2)
            figures |= {f"gamma:{a}:{b}": position.gamma.get((a, b)) for a, b in upper}
    return head | tail | figures
