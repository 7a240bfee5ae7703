"""Tables of quotes, in CSV or Parquet: a row a quote, the rows of a surface one after the other."""

import datetime as dt
import importlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pricing.ingestion.errors import listed
from pricing.ingestion.files import unreadable

Columns = dict[str, np.ndarray]

_NAME, _EXPIRY, _ASOF = "surface", "expiry", "asof"
_NUMBERS = ("spot", "rate", "strike", "vol")
_DEFAULTS = {"dividend_yield": 0.0, "weight": 1.0}
_MARKET = ("spot", "rate", "dividend_yield")
_DAYS_A_YEAR = 365.0


class Surface(NamedTuple):
    """The quotes of a surface, [expiries, strikes]; rows with fewer strikes than the longest end in NaN vols.

    Attributes:
        name: In the table.
        market: Spot, rate and dividend yield.
        expiries: In years, increasing.
        strikes: The strike of each quote.
        vols: NaN where there is none.
        weights: Of the quotes.
        wrong: The line of the first cell that is no number, and what is wrong with it; empty if all are well.
        line: The line of its first row.
    """

    name: str
    market: tuple[float, float, float]
    expiries: np.ndarray
    strikes: np.ndarray
    vols: np.ndarray
    weights: np.ndarray
    wrong: str
    line: int


def surfaces_of(file: Path) -> Iterator[Surface]:
    """Yield the surfaces of a table in the order of its rows, read as they are needed."""
    for name, columns, line in _runs(_pieces(file)):
        yield _surface_of(name, columns, line)


def _pieces(file: Path) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of a table piece by piece, as numbers, each with the line of its first row.

    Raises:
        unreadable: It is no such table, or lacks columns; it is an `UnreadableFile`.
    """
    try:
        if file.suffix.lower() == ".csv":
            names = arrow("pyarrow.csv").open_csv(file).schema.names
            known = _known(names, str(file))
            options = arrow("pyarrow.csv").ConvertOptions(strings_can_be_null=False)
            options.column_types = dict.fromkeys(known, arrow("pyarrow").string())
            options.include_columns = known
            pieces: Any = arrow("pyarrow.csv").open_csv(file, convert_options=options)
        else:
            reader = arrow("pyarrow.parquet").ParquetFile(file)
            known = _known(reader.schema_arrow.names, str(file))
            pieces = reader.iter_batches(columns=known)
        row = 2 if file.suffix.lower() == ".csv" else 1
        for piece in pieces:
            if len(piece):
                yield _numbers({name: piece.column(name).to_numpy(False) for name in known}), row
            row += len(piece)
    except (arrow("pyarrow").ArrowInvalid, OSError) as error:
        raise unreadable(str(file), " ".join(str(error).split()), "correct the file") from None


def _known(names: Sequence[str], file: str) -> list[str]:
    """Return the columns of a table that are read, each of which it has once.

    Raises:
        unreadable: It lacks one, or has one twice; it is an `UnreadableFile`.
    """
    counts = Counter(names)
    needed = (_NAME, _EXPIRY, *_NUMBERS)
    if missing := [name for name in needed if not counts[name]]:
        message = f"has no column {listed(missing)} among {listed(names)}"
        raise unreadable(file, message, "give each quote a row with these")
    known = [name for name in (*needed, *_DEFAULTS, _ASOF) if counts[name]]
    if twice := [name for name in known if counts[name] > 1]:
        raise unreadable(file, f"has the column {listed(twice)} twice", "keep one of them")
    return known


def _runs(
    pieces: Iterator[tuple[Columns, int]],
) -> Iterator[tuple[str, Columns, int]]:
    """Yield the name, the columns and the first line of each run of rows of one surface."""
    held: list[Columns] = []
    name, first = "", 0
    for columns, row in pieces:
        names = columns[_NAME]
        ends = [*(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
        for begin, end in itertools.pairwise([0, *ends]):
            if held and names[begin] != name:
                yield name, _joined(held), first
                held = []
            if not held:
                name, first = str(names[begin]), row + begin
            held.append({key: column[begin:end] for key, column in columns.items()})
    if held:
        yield name, _joined(held), first


def _joined(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _numbers(cells: Columns) -> Columns:
    """Return the columns as numbers; NaN for an empty cell, and infinity for one that is no number."""
    known = [name for name in (*_NUMBERS, *_DEFAULTS) if name in cells]
    filled = {name: np.full(len(cells[_NAME]), value) for name, value in _DEFAULTS.items()}
    numbers = {name: _floats(cells[name]) for name in known}
    return {_NAME: cells[_NAME].astype(str), **filled, **numbers, _EXPIRY: _years(cells)}


def _floats(column: np.ndarray) -> np.ndarray:
    if np.issubdtype(column.dtype, np.number):
        return column.astype(float)
    try:
        return np.where(column == "", "nan", column).astype(float)
    except (ValueError, TypeError):
        return np.array([_float(cell) for cell in column.tolist()])


def _float(cell: Any) -> float:
    try:
        return np.nan if cell in (None, "") else float(cell)
    except (ValueError, TypeError):
        return np.inf


def _years(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the expiries in years, ACT/365; infinity where one is neither a number nor a date after a date."""
    if _ASOF not in columns:
        return _floats(columns[_EXPIRY])
    days = [_date(column) for column in (columns[_EXPIRY], columns[_ASOF])]
    years = (days[0] - days[1]).astype(float) / _DAYS_A_YEAR
    return np.where(np.isnat(days[0]) | np.isnat(days[1]), np.inf, years)


def _date(column: np.ndarray) -> np.ndarray:
    def of_cell(cell: Any) -> np.datetime64:
        try:
            found = cell if isinstance(cell, dt.date) else dt.date.fromisoformat(str(cell)[:10])
            return np.datetime64(found, "D")
        except ValueError:
            return np.datetime64("NaT", "D")

    if np.issubdtype(column.dtype, np.datetime64):
        return column.astype("datetime64[D]")
    return np.array([of_cell(cell) for cell in column.tolist()])


def _wrong(columns: Columns) -> tuple[int, str] | None:
    """Return the first row with a cell that is no number, and what is wrong with it; None if all are well."""
    bad = {name: ~np.isfinite(columns[name]) for name in (_EXPIRY, "strike", "weight")}
    bad["vol"] = np.isinf(columns["vol"])
    bad |= {name: ~np.isfinite(columns[name][:1]) for name in _MARKET}
    places = {name: int(np.argmax(rows)) for name, rows in bad.items() if np.any(rows)}
    if not places:
        return None
    name = min(places, key=lambda name: places[name])
    remedy = "years, or a date beside one in asof" if name == _EXPIRY else "a number"
    return places[name], f"column {name!r} holds no number; give {remedy}"


def _surface_of(name: str, columns: Columns, line: int) -> Surface:
    """Return the quotes of a run of rows by expiry, in the order of the rows."""
    expiries, rows = np.unique(columns[_EXPIRY], return_inverse=True)
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows)
    places = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)

    def wide(values: np.ndarray, missing: float) -> np.ndarray:
        found = np.full((expiries.size, int(np.max(counts))), missing)
        found[rows[order], places] = values[order]
        return found

    wrong = _wrong(columns)
    spot, rate, dividend_yield = (float(columns[key][0]) for key in _MARKET)
    return Surface(
        name,
        (spot, rate, dividend_yield),
        expiries,
        wide(columns["strike"], spot),
        wide(columns["vol"], np.nan),
        wide(columns["weight"], 0.0),
        f"{line + wrong[0]}: {wrong[1]}" if wrong else "",
        line,
    )


def arrow(module: str) -> Any:
    """Return a module of pyarrow.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'jaxtape[many]'") from error
