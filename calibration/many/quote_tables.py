"""Tables of quotes, in CSV or Parquet: a row a quote, the rows of a surface one after the other."""

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtape.object_store import Place, arrow, local_copy
from pricing.ingestion.errors import listed, unreadable
from pricing.ingestion.fields import closest, wrong_number
from pricing.market.quote_bounds import BOUNDS, days_slip, far_from, outside, slip_of

Columns = dict[str, np.ndarray]

_NAME, _EXPIRY, _ASOF = "surface", "expiry", "asof"
_NUMBERS = ("spot", "rate", "strike", "vol")
_DEFAULTS = {"dividend_yield": 0.0, "weight": 1.0}
_MARKET = ("spot", "rate", "dividend_yield")
_MOST_SLIPS = 1000  # columns that are compared with known ones
_DAYS_A_YEAR = 365.0
_AMBIGUOUS = r"^\s*[+-]?[1-9][0-9]{0,2}\.[0-9]{3}\s*$"
_WITH_POINT = r"\."
_PRICES = ("spot", "strike")
_DATED = "expiry is a date"


class Surface(NamedTuple):
    """The quotes of a surface, [expiries, strikes]; rows with fewer strikes than the longest end in NaN vols.

    Attributes:
        name: Its name in the table.
        market: Spot, rate and dividend yield.
        expiries: In years, increasing.
        strikes: The strike of each quote.
        vols: NaN where there is none.
        weights: Weights of the quotes.
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


def surfaces_of(file: Place, given: Mapping[str, str]) -> Iterator[Surface]:
    """Yield the surfaces of a table in the order of its rows, read as they are needed.

    given: columns of one value that the folders of the file name.
    """
    return _surfaces(_pieces(file, given))


def surfaces_in(table: Any, source: str) -> Iterator[Surface]:
    """Yield the surfaces of an Arrow table in the order of its rows; `source` names it in errors."""
    known = _known(table.schema.names, source)
    _require_flat(table.schema, known, source)
    columns = {name: arrow("pyarrow").chunked_array(table[name]).combine_chunks() for name in known}
    return _surfaces(iter([(_numbers(columns), 1)] if len(table) else []))


def _surfaces(pieces: Iterator[tuple[Columns, int]]) -> Iterator[Surface]:
    for name, columns, line in _runs(pieces):
        yield _surface_of(name, columns, line)


def _pieces(file: Place, given: Mapping[str, str]) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of a table piece by piece, as numbers, each with the line of its first row.

    Raises:
        unreadable: It is no such table, or lacks columns; it is an `UnreadableFile`.
        ConnectionError: It is in an object store that cannot be reached.
    """
    try:
        with local_copy(file) as copy:
            yield from _numbers_in(copy, str(file), given)
    except ConnectionError:
        raise
    except UnicodeDecodeError as error:  # of a name of a column
        byte = error.object[error.start]
        message = f"byte {byte:#04x} is not UTF-8 text"
        raise unreadable(str(file), message, "save the file as UTF-8") from None
    except (arrow("pyarrow").ArrowException, OSError) as error:
        raise unreadable(str(file), " ".join(str(error).split()), "correct the file") from None


def _numbers_in(file: Path, source: str, given: Mapping[str, str]) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of a table on this machine; `source` names it in errors."""
    is_csv = file.suffix.lower() == ".csv"
    reader = None if is_csv else arrow("pyarrow.parquet").ParquetFile(file)
    schema = reader.schema_arrow if reader else arrow("pyarrow.csv").open_csv(file).schema
    more = {name: value for name, value in given.items() if name not in schema.names}
    known = _known([*schema.names, *more], source)
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


def _known(names: Sequence[str], file: str) -> list[str]:
    """Return the columns of a table that are read, each of which it has once.

    Raises:
        unreadable: It lacks one, has one twice, or one that is a slip of the pen; it is an `UnreadableFile`.
    """
    counts = Counter(names)
    needed, optional = (_NAME, _EXPIRY, *_NUMBERS), (*_DEFAULTS, _ASOF)
    others = [name for name in counts if name not in (*needed, *optional)]
    if missing := [name for name in needed if not counts[name]]:
        message = f"has no column {listed(missing)} among {listed(names)}"
        remedy = f"{closest(missing[0], others)}give each quote a row with these"
        raise unreadable(file, message, remedy)
    known = [name for name in (*needed, *optional) if counts[name]]
    if twice := [name for name in known if counts[name] > 1]:
        raise unreadable(file, f"has the column {listed(twice)} twice", "keep one of them")
    absent = [name for name in optional if not counts[name]]
    for name in others[:_MOST_SLIPS]:
        if hint := closest(name.strip(), absent, 0.75):
            message = f"has a column {name!r}, which is not known"
            raise unreadable(file, message, f"{hint}rename it, or take it out")
    return known


def _require_flat(schema: Any, known: Sequence[str], file: str) -> None:
    """Check that the columns of a Parquet file hold one number or text for each row.

    Raises:
        unreadable: One holds lists or records; it is an `UnreadableFile`.
    """
    for name in known:
        kind = schema.field(name).type
        if arrow("pyarrow").types.is_nested(kind):
            message = f"has the column {name!r} of type {kind}"
            raise unreadable(file, message, "give each row one number or text")


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


def _numbers(arrays: Mapping[str, Any]) -> Columns:
    """Return Arrow's columns as numbers; NaN for an empty cell, and infinity for one that is no number."""
    cells = {name: array.to_numpy(False) for name, array in arrays.items()}
    of_any_type = cells[_NAME].astype(object)  # dates, too
    names = np.where(arrays[_NAME].is_null().to_numpy(False), "", of_any_type).astype(str)
    known = [name for name in (*_NUMBERS, *_DEFAULTS) if name in cells]
    filled = {name: np.full(len(cells[_NAME]), value) for name, value in _DEFAULTS.items()}
    numbers = {name: _floats(cells[name]) for name in known}
    readings = {f"{name} as text": _readings(arrays[name]) for name in _PRICES}
    readings[_DATED] = np.full(len(names), _ASOF in cells)
    return {_NAME: names, **filled, **numbers, _EXPIRY: _years(cells), **readings}


def _readings(array: Any) -> np.ndarray:
    """Return 1 for a text such as 4.500, which may be 4,500, and -1 for one whose point must be a decimal's."""
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
    """Return the row of the first mistake of a surface, and what is wrong; None if all is well."""
    if not columns[_NAME][0].strip():
        return 0, f"column {_NAME!r} is empty; give each surface a name"
    checks = (_no_number, _ambiguous, _out_of_bounds, _doubled, _slip)
    return next((found for check in checks if (found := check(columns))), None)


def _said(name: str, message: str, remedy: str) -> str:
    return f"column {name!r}: {message}; {remedy}"


def _out_of_bounds(columns: Columns) -> tuple[int, str] | None:
    """Return the first row with a number that its kind cannot have, or with a strike far from the spot."""
    spot, found = float(columns["spot"][0]), []
    for name in BOUNDS:
        values = columns[name] if name not in _MARKET else columns[name][:1]
        if np.any(rows := outside(name, values)):
            row = int(np.argmax(rows))
            what = "number of years" if name == _EXPIRY else name.replace("_", " ")
            value = float(values[row])
            shown = int(value) if value.is_integer() else value
            wrong = wrong_number(what, shown, **BOUNDS[name])
            assert wrong is not None
            found.append((row, _said(name, *wrong)))
    for row, strike in enumerate(columns["strike"].tolist()):
        if far_from(spot, strike):
            message = f"{strike:g} is far from the spot {spot:g}"
            remedy = "give strikes as prices in the currency of the spot"
            found.append((row, _said("strike", message, remedy)))
            break
    return min(found, default=None)


def _ambiguous(columns: Columns) -> tuple[int, str] | None:
    """Return the first row whose strike or spot has a point that may stand between thousands.

    A price with another number of decimals says what a point is. Where all have three, no unit matters.
    """
    readings = np.stack([columns[f"{name} as text"] for name in _PRICES])
    if np.any(readings < 0.0) or np.all(readings > 0.0) or not np.any(readings > 0.0):
        return None
    row = int(np.argmax(np.any(readings > 0.0, axis=0)))
    name = _PRICES[int(np.argmax(readings[:, row]))]
    value = float(columns[name][row])
    message = f"{value:.3f} may be {value:g} or {1000.0 * value:,.0f}"
    return row, _said(name, message, f"write {value:.4f}, or {1000.0 * value:.0f}")


def _doubled(columns: Columns) -> tuple[int, str] | None:
    """Return the first row that has the expiry and the strike of one before it."""
    pairs = np.stack([columns[_EXPIRY], columns["strike"]], axis=1)
    _, first, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    rows = np.flatnonzero(first[which.ravel()] != np.arange(len(pairs)))
    if not rows.size:
        return None
    row = int(rows[0])
    expiry, strike = pairs[row]
    message = f"the quote of expiry {expiry:g} at strike {strike:g} stands twice"
    return row, f"{message}; keep one of them"


def _slip(columns: Columns) -> tuple[int, str] | None:
    """Return a mistake that the quotes of a surface make together, at its first row, or None."""
    slip = None if np.any(columns[_DATED]) else days_slip(columns[_EXPIRY])
    slip = slip or slip_of(float(columns["spot"][0]), columns["strike"], columns["vol"])
    return slip and (0, _said(slip.field, slip.message, slip.remedy))


def _no_number(columns: Columns) -> tuple[int, str] | None:
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
        name if name.strip() else f"{_NAME} of line {line}",
        (spot, rate, dividend_yield),
        expiries,
        wide(columns["strike"], spot),
        wide(columns["vol"], np.nan),
        wide(columns["weight"], 0.0),
        f"{line + wrong[0]}: {wrong[1]}" if wrong else "",
        line,
    )
