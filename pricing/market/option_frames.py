"""Surfaces from frames of option quotes, and frames of the option quotes of a market."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np

from jaxtape.object_store import arrow

from ..ingestion.errors import listed
from .curve import ZeroCurve
from .equity import Equity
from .listed_quotes import EquityMarket, input_errors, of_table
from .option_tables import tables_in
from .quote_tables import ASOF, NAME
from .surface import VolSurface

_DAYS_PER_YEAR = 365.0
_ANY_DAY = date(2000, 1, 1)  # for quote ids that are not used
_COLUMNS = {
    NAME: "",
    "expiry": "",
    "strike": "",
    "vol": "vols",
    "bid": "bids",
    "ask": "asks",
    "weight": "weights",
}
"""The columns of a written table, and the surface fields of some of them."""


def option_quotes(
    quotes: Any,
    spot: float,
    rate: float | ZeroCurve,
    dividend_yield: float | ZeroCurve = 0.0,
    *,
    name: str | None = None,
    asof: date | None = None,
) -> VolSurface:
    """Return the surface of a list of option quotes, whose strikes may differ by expiry.

    The columns are `expiry` (in years, or as dates with `asof`); `strike` or `delta`; and `vol`, `bid` and
    `ask`, or for prices `price`, `bid_price` and `ask_price` with `option` (call or put). A missing mid is the
    mean of bid and ask. Weights come from a column `weight`, or else from the spreads (see `listed_vols`).
    Prices of European options are converted to vols, and spot deltas to strikes, with the given market data.

    Args:
        quotes: The path of a CSV or Parquet file, or a frame of pandas (2.2 or later), polars, pyarrow or any
            library that exports Arrow streams.
        spot: The spot.
        rate: The continuously compounded interest rate per year, a number or a curve.
        dividend_yield: The dividend yield, likewise.
        name: The surface to read if the column `surface` names several.
        asof: The as-of date, if expiries are dates.

    Returns:
        The surface, with a row of strikes for each expiry.

    Raises:
        ValueError: There is no such surface, or quotes are crossed, duplicate, without a bid, or otherwise
            wrong. The message names up to ten of them.

    Examples:
        >>> import pyarrow
        >>> from pricing.market import option_quotes
        >>> columns = {"expiry": [0.5, 0.5, 1.0], "strike": [90.0, 110.0, 100.0]}
        >>> sides = {"bid": [0.23, 0.19, 0.2], "ask": [0.25, 0.2, 0.22]}
        >>> surface = option_quotes(pyarrow.table({**columns, **sides}), 100.0, 0.03)
        >>> [[round(weight, 3) for weight in row] for row in surface.weights.tolist()]
        [[1.0, 2.0], [1.0, 0.0]]
    """
    tables = tables_in(
        quotes, {NAME: "quotes"} | ({} if asof is None else {ASOF: asof.isoformat()})
    )
    if (name is None and len(tables) != 1) or (name is not None and name not in tables):
        raise ValueError(
            f"the surfaces are {listed(tables) or 'none'}: give the name of one of them"
        )
    table = tables[name or next(iter(tables))]
    curve = rate if isinstance(rate, ZeroCurve) else ZeroCurve([1.0], [rate])  # pyright: ignore
    found = of_table(table, EquityMarket(spot, dividend_yield, None, curve), asof or _ANY_DAY)
    if found.problems or found.vols is None:
        errors = [str(error) for error in input_errors(found, table)]
        more = [f"and {len(errors) - 10} more"] if len(errors) > 10 else []
        raise ValueError("; ".join([*errors[:10], *more]) or "the list has no quote")
    return found.vols.surface


def option_table(equities: Mapping[str, Equity], asof: date) -> Any:
    """Return the option quotes of equities as an Arrow table for `Market.read`, one row per quote.

    Args:
        equities: Name -> equity.
        asof: The date of the market.
    """
    rows: dict[str, list] = {name: [] for name in _COLUMNS}
    for name, equity in equities.items():
        surface: Any = equity.surface
        for row, column in np.argwhere(~np.isnan(np.asarray(surface.vols))).tolist():
            days = round(_DAYS_PER_YEAR * float(surface.expiries[row]))
            rows[NAME].append(name)
            rows["expiry"].append(asof + timedelta(days=days))
            strikes = np.broadcast_to(surface.strikes, surface.vols.shape)
            rows["strike"].append(float(strikes[row, column]))
            for field, of_field in _COLUMNS.items():
                if of_field:
                    numbers = getattr(surface, of_field)
                    rows[field].append(None if numbers is None else _known(numbers[row, column]))
    kinds = {NAME: arrow("pyarrow").string(), "expiry": arrow("pyarrow").date32()}
    of_numbers = arrow("pyarrow").float64()
    arrays = {k: arrow("pyarrow").array(x, kinds.get(k, of_numbers)) for k, x in rows.items()}
    return arrow("pyarrow").table(arrays)


def _known(number: Any) -> float | None:
    return None if np.isnan(number) else float(number)
