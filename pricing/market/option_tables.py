"""The rows of a table of option quotes, by equity."""

import os
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from jaxtape.object_store import arrow_table, place_of

from .quote_tables import ASOF, NAME, Columns, runs_in, runs_of


class OptionTable(NamedTuple):
    """The rows of one equity in a table.

    Attributes:
        file: The name of the table in errors.
        columns: Its columns.
        lines: The line of each row.
    """

    file: str
    columns: Columns
    lines: np.ndarray


def read_option_tables(source: Any, asof: date) -> dict[str, OptionTable]:
    """Return the rows of a table of option quotes by equity.

    Expiries are dates.

    Args:
        source: The path of a CSV or Parquet file, or a frame that exports Arrow streams.
        asof: The date of the market.
    """
    return tables_in(source, {ASOF: asof.isoformat()})


def tables_in(source: Any, given: Mapping[str, str]) -> dict[str, OptionTable]:
    """Return the rows of a table by surface; given: constant columns to add if the table lacks them."""
    if isinstance(source, str | os.PathLike):
        file, runs = os.fspath(source), runs_of(place_of(source), given, ())
    else:
        file, runs = "option quotes", runs_in(arrow_table(source), "option quotes", (), given)
    found: dict[str, OptionTable] = {}
    for name, columns, line in runs:
        table = OptionTable(file, columns, line + np.arange(columns[NAME].size))
        found[name] = _joined(found[name], table) if name in found else table
    return found


def _joined(one: OptionTable, more: OptionTable) -> OptionTable:
    columns = {name: np.concatenate([x, more.columns[name]]) for name, x in one.columns.items()}
    return OptionTable(one.file, columns, np.concatenate([one.lines, more.lines]))
