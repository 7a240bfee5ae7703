"""Tables of option quotes in CSV, Parquet or Arrow: one row per quote, grouped by surface."""

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxtape.object_store import Place, arrow, local_copy

from ..ingestion.errors import listed, unreadable
from ..ingestion.field_types import closest

Columns = dict[str, np.ndarray]

NAME, EXPIRY, ASOF, OPTION = "surface", "expiry", "asof", "option"
LEVELS = ("vol", "bid", "ask", "price", "bid_price", "ask_price")
_NUMBERS = ("spot", "rate", "dividend_yield", "strike", "delta", *LEVELS, "weight")
_DEFAULTS = {"dividend_yield": 0.0, "weight": 1.0}
_SIDES = {"call": 1.0, "c": 1.0, "put": -1.0, "p": -1.0, "": 0.0, "nan": 0.0}
_MOST_SLIPS = 1000  # number of columns compared with known names
_DAYS_A_YEAR = 365.0
_AMBIGUOUS = r"^\s*[+-]?[1-9][0-9]{0,2}\.[0-9]{3}\s*$"
_WITH_POINT = r"\."
PRICES = ("spot", "strike")
DATED = "expiry is a date"


def runs_of(
    file: Place, given: Mapping[str, str], needed: Sequence[str]
) -> Iterator[tuple[str, Columns, int]]:
    """Yield the name, columns and first line of each surface of a table, read lazily.

    Args:
        file: The table, in CSV or Parquet.
        given: Constant columns, such as those named by the folders of the file.
        needed: The columns that the table must have in addition to those of its quotes.

    A file that is not such a table raises `UnreadableFile`; an unreachable object store raises
    `ConnectionError`.
    """
    return _runs(_pieces(file, given, needed))


def runs_in(
    table: Any, source: str, needed: Sequence[str], given: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Columns, int]]:
    """Yield them from an Arrow table; `source` names it in errors."""
    more = {name: value for name, value in (given or {}).items() if name not in table.schema.names}
    known = _known([*table.schema.names, *more], source, needed)
    there = [name for name in known if name not in more]
    _require_flat(table.schema, there, source)
    columns = {name: arrow("pyarrow").chunked_array(table[name]).combine_chunks() for name in there}
    columns |= {name: arrow("pyarrow").repeat(more[name], len(table)) for name in more}
    return _runs(iter([(_numbers(columns), 1)] if len(table) else []))


def _pieces(
    file: Place, given: Mapping[str, str], needed: Sequence[str]
) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of a table in pieces, as numbers, each with the line of its first row.

    Raises:
        unreadable: It is not such a table, or lacks columns (an `UnreadableFile`).
        ConnectionError: The object store cannot be reached.
    """
    try:
        with local_copy(file) as copy:
            yield from _numbers_in(copy, str(file), given, needed)
    except ConnectionError:
        raise
    except UnicodeDecodeError as error:  # in a column name
        byte = error.object[error.start]
        message = f"byte {byte:#04x} is not UTF-8 text"
        raise unreadable(str(file), message, "save the file as UTF-8") from None
    except (arrow("pyarrow").ArrowException, OSError) as error:
        raise unreadable(str(file), " ".join(str(error).split()), "correct the file") from None


def _numbers_in(
    file: Path, source: str, given: Mapping[str, str], needed: Sequence[str]
) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of a local table; `source` names it in errors."""
    is_csv = file.suffix.lower() == ".csv"
    reader = None if is_csv else arrow("pyarrow.parquet").ParquetFile(file)
    schema = reader.schema_arrow if reader else arrow("pyarrow.csv").open_csv(file).schema
    more = {name: value for name, value in given.items() if name not in schema.names}
    known = _known([*schema.names, *more], source, needed)
    there = [name for name in known if name not in more]
    if reader:
        _require_flat(schema, there, source)
        pieces: Any = reader.iter_batches(columns=there)
    else:
        options = arrow("pyarrow.csv").ConvertOptions(strings_can_be_null=False)
        options.column_types = dict.fromkeys(there, arrow("pyarrow").string())
        options.include_columns = there
        pieces = arrow("pyarrow.csv").open_csv(file, convert_options=options)
    row = 2 if is_csv else 1
    for piece in pieces:
        if len(piece):
            columns = {name: piece.column(name) for name in there}
            columns |= {name: arrow("pyarrow").repeat(more[name], len(piece)) for name in more}
            yield _numbers({name: columns[name] for name in known}), row
        row += len(piece)


def _known(names: Sequence[str], file: str, needed: Sequence[str]) -> list[str]:
    """Return the known columns of a table, each of which must occur once.

    Raises:
        unreadable: A column is missing, duplicate or misspelt (an `UnreadableFile`).
    """
    counts = Counter(names)
    places = () if counts["delta"] else ("strike",)
    levels = () if any(counts[name] for name in LEVELS) else ("vol",)
    needed = (NAME, EXPIRY, *needed, *places, *levels)
    optional = (*_DEFAULTS, ASOF, OPTION)
    all_known = dict.fromkeys((*needed, *_NUMBERS, *optional))
    others = [name for name in counts if name not in all_known]
    if missing := [name for name in needed if not counts[name]]:
        message = f"has no column {listed(missing)} among {listed(names)}"
        remedy = f"{closest(missing[0], others)}give each quote a row with these"
        raise unreadable(file, message, remedy)
    known = [name for name in all_known if counts[name]]
    if twice := [name for name in known if counts[name] > 1]:
        raise unreadable(file, f"has the column {listed(twice)} twice", "keep one of them")
    vols, prices = ([name for name in kind if counts[name]] for kind in (LEVELS[:3], LEVELS[3:]))
    if vols and prices:
        message = f"has vols ({listed(vols)}) and prices ({listed(prices)})"
        raise unreadable(file, message, "give the quotes as one of them")
    if prices and not counts[OPTION]:
        message = f"has prices ({listed(prices)}) and no column {OPTION!r}"
        raise unreadable(file, message, "give call or put beside each price")
    absent = [name for name in optional if not counts[name]]
    for name in others[:_MOST_SLIPS]:
        if hint := closest(name.strip(), absent, 0.75):
            message = f"has a column {name!r}, which is not known"
            raise unreadable(file, message, f"{hint}rename it, or take it out")
    return known


def _require_flat(schema: Any, known: Sequence[str], file: str) -> None:
    """Check that the columns of a Parquet file hold one number or text for each row.

    Raises:
        unreadable: A column holds lists or records (an `UnreadableFile`).
    """
    for name in known:
        kind = schema.field(name).type
        if arrow("pyarrow").types.is_nested(kind):
            message = f"has the column {name!r} of type {kind}"
            raise unreadable(file, message, "give each row one number or text")


def _runs(
    pieces: Iterator[tuple[Columns, int]],
) -> Iterator[tuple[str, Columns, int]]:
    """Yield the name, columns and first line of each run of rows of one surface."""
    held: list[Columns] = []
    name, first = "", 0
    for columns, row in pieces:
        names = columns[NAME]
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


def _numbers(arrays: Mapping[str, Any]) -> Columns:
    """Return Arrow columns as numbers; NaN for an empty cell, infinity for one that is not a number.

    In a plain table a missing column of numbers has its default; in other tables it is NaN, like a missing
    weight.
    """
    cells = {name: array.to_numpy(False) for name, array in arrays.items()}
    of_any_type = cells[NAME].astype(object)  # may be dates
    names = np.where(arrays[NAME].is_null().to_numpy(False), "", of_any_type).astype(str)
    is_plain = is_plain_table(cells)
    absent = _DEFAULTS if is_plain else dict.fromkeys(_NUMBERS, np.nan) | {"dividend_yield": 0.0}
    filled = {name: np.full(len(names), value) for name, value in absent.items()}
    numbers = {name: _floats(cells[name]) for name in _NUMBERS if name in cells}
    readings = {f"{name} as text": _readings(arrays[name]) for name in PRICES if name in cells}
    readings[DATED] = np.full(len(names), ASOF in cells)
    sides = {} if is_plain else {OPTION: _sides(cells.get(OPTION), len(names))}
    return {NAME: names, **filled, **numbers, EXPIRY: _years(cells), **readings, **sides}


def is_plain_table(columns: Iterable[str]) -> bool:
    """Return True if strikes, vols and weights are the only columns of quotes."""
    return not {"delta", OPTION, *LEVELS[1:]} & {*columns}


def _sides(column: np.ndarray | None, count: int) -> np.ndarray:
    """Return +1 for calls, -1 for puts, 0 for empty cells, and infinity for other words."""
    if column is None:
        return np.zeros(count)
    return np.array([_SIDES.get(str(x or "").strip().lower(), np.inf) for x in column.tolist()])


def _readings(array: Any) -> np.ndarray:
    """Return 1 for text such as 4.500, which may mean 4,500, and -1 if the point must be a decimal point."""
    if not arrow("pyarrow").types.is_string(array.type):
        return np.zeros(len(array))
    matches = arrow("pyarrow.compute").match_substring_regex
    ambiguous, with_point = (
        matches(array, pattern).fill_null(False).to_numpy(False).astype(bool)
        for pattern in (_AMBIGUOUS, _WITH_POINT)
    )
    return np.where(ambiguous, 1.0, np.where(with_point, -1.0, 0.0))


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
    """Return the expiries in years (ACT/365); infinity if neither a number nor a date with an as-of date."""
    if ASOF not in columns:
        return _floats(columns[EXPIRY])
    days = [_date(column) for column in (columns[EXPIRY], columns[ASOF])]
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
