"""Read surfaces from a table of quotes, each with the spot, rate and dividend yield of its first row."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxtape.object_store import Place
from pricing.market.option_list import Fault, ForwardMarket, OptionList, listed_vols
from pricing.market.quote_bounds import slip_of
from pricing.market.quote_checks import first_fault
from pricing.market.quote_tables import (
    EXPIRY,
    NAME,
    Columns,
    is_plain_table,
    runs_in,
    runs_of,
)

_MARKET = ("spot", "rate", "dividend_yield")
_NEEDED = ("spot", "rate")


class TableSurface(NamedTuple):
    """The quotes of a surface, [expiries, strikes]; shorter rows are padded with NaN vols.

    Attributes:
        name: Its name in the table.
        market: Spot, rate and dividend yield.
        expiries: Expiries in years, increasing.
        strikes: The strike of each quote.
        vols: Implied vols; NaN for a missing quote.
        weights: Weights of the quotes.
        wrong: The line of the first invalid cell and the error in it; empty if all are valid.
        line: The line of its first row.
        bids: The bid vols, or None.
        asks: The ask vols, or None.
    """

    name: str
    market: tuple[float, float, float]
    expiries: np.ndarray
    strikes: np.ndarray
    vols: np.ndarray
    weights: np.ndarray
    wrong: str
    line: int
    bids: np.ndarray | None = None
    asks: np.ndarray | None = None


def surfaces_of(file: Place, given: Mapping[str, str]) -> Iterator[TableSurface]:
    """Yield the surfaces of a table in the order of its rows, read lazily.

    `given` are columns with one value, defined by the folders of the file.
    """
    for run in runs_of(file, given, _NEEDED):
        yield _surface_of(*run)


def surfaces_in(table: Any, source: str) -> Iterator[TableSurface]:
    """Yield the surfaces of an Arrow table in the order of its rows; `source` names it in errors."""
    for run in runs_in(table, source, _NEEDED):
        yield _surface_of(*run)


def _surface_of(name: str, columns: Columns, line: int) -> TableSurface:
    wrong = first_fault(columns)
    spot, rate, dividend_yield = (float(columns[key][0]) for key in _MARKET)
    market = spot, rate, dividend_yield
    of_kind = _plain if is_plain_table(columns) else _listed
    expiries, strikes, vols, weights, sides, fault = of_kind(columns, market, wrong)
    return TableSurface(
        name if name.strip() else f"{NAME} of line {line}",
        market,
        *(expiries, strikes, vols, weights, _said(line, fault), line, *sides),
    )


def _said(line: int, fault: Fault | None) -> str:
    if fault is None:
        return ""
    column = f"column {fault.field!r}"
    message = (
        fault.message if not fault.field else f"{column}{_joint(fault.message)}{fault.message}"
    )
    return f"{line + fault.row}: {message}; {fault.remedy}"


def _joint(message: str) -> str:
    return " " if message.startswith(("is ", "holds ", "has ")) else ": "


def _plain(columns: Columns, market: tuple, wrong: Fault | None) -> tuple:
    """Return the quotes of strikes and vols by expiry, in the order of the rows."""
    expiries, rows = np.unique(columns[EXPIRY], return_inverse=True)
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows)
    places = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)

    def wide(values: np.ndarray, missing: float) -> np.ndarray:
        found = np.full((expiries.size, int(np.max(counts))), missing)
        found[rows[order], places] = values[order]
        return found

    spot = market[0]
    numbers = wide(columns["strike"], spot), wide(columns["vol"], np.nan)
    return expiries, *numbers, wide(columns["weight"], 0.0), (None, None), wrong


def _listed(columns: Columns, market: tuple, wrong: Fault | None) -> tuple:
    """Return the quotes of a list with bids and asks, prices or deltas; a single error refuses them all."""
    spot, rate, dividend_yield = market
    nothing = np.ones((1, 1))
    none = np.ones(1), spot * nothing, np.nan * nothing, 0.0 * nothing, (None, None)

    def market_at(t: np.ndarray) -> ForwardMarket:
        discounts, growths = np.exp(-rate * t), np.exp(-dividend_yield * t)
        return ForwardMarket(spot * growths / discounts, discounts, growths)

    if wrong is not None:
        return *none, wrong
    found, faults = listed_vols(OptionList.of_columns(columns), market_at)
    if faults or found is None:
        return *none, (faults or [Fault(0, "", "the surface has no quote", "give some")])[0]
    slip = slip_of(spot, found.strikes[found.rows >= 0], found.vols)
    wrong = slip and Fault(0, slip.field, slip.message, slip.remedy)
    numbers = found.expiries, found.strikes, found.vols, found.weights
    return *numbers, (found.bids, found.asks), wrong
