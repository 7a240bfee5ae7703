"""Read a table of trades, CSV or JSON, into rows of named values with their places in the file."""

import csv
import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from jaxtape.object_store import arrow_table

from ..ingestion.errors import show, unreadable
from ..ingestion.field_types import closest
from ..ingestion.files import parse_json
from ..ingestion.locator import Locator, Place
from ..ingestion.validation import ValidationIssue
from ..products.trade import COLUMNS

_FILLED = re.compile(r'[^\r\n \t,"][^\r\n]*')
_ONE, _ZERO = ("1", "1.0"), ("0", "0.0")
_LONG, _EUROPEAN = ("buy", "b", "long", "l"), ("european", "eu", "e")
_NO = "", ("none", "no", "n", "false", *_ZERO)
_ROLL = "", ("modified following", "modified_following", "modifiedfollowing", "mf", "modfollowing")
OTHER_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("qty", "lots", "contracts", "num_contracts", "position"), ("quantity", _ONE)),
    **dict.fromkeys(("multiplier", "contract_size"), ("quantity", _ONE)),
    **dict.fromkeys(("buy_sell", "long_short", "direction"), ("quantity", _LONG)),
    **dict.fromkeys(("style", "exercise_style", "option_style"), ("type", _EUROPEAN)),
    **dict.fromkeys(("ccy", "curr"), ("currency", ())),
    **dict.fromkeys(("nominal", "face", "face_value"), ("notional", _ONE)),
    **dict.fromkeys(("freq", "payment_frequency"), ("frequency", ())),
    **dict.fromkeys(("daycount", "dcc", "day_count_convention"), ("day_count", ())),
    **dict.fromkeys(("floating_spread", "float_spread", "margin"), ("spread", _ZERO)),
    **dict.fromkeys(("notice_days", "notice"), ("exercise_lag", _ZERO)),
    **dict.fromkeys(("pay_lag", "payment_delay"), ("payment_lag", _ZERO)),
    **dict.fromkeys(("settlement_days", "settle_lag"), ("settlement_lag", _ZERO)),
    **dict.fromkeys(("eom", "month_end"), ("end_of_month", ("no", "n", "false", "0"))),
    **dict.fromkeys(("projection_curve", "fwd_curve", "index"), ("forward_curve", ())),
    **dict.fromkeys(("float_frequency", "floating_freq"), ("floating_frequency", ())),
    **dict.fromkeys(("holiday_calendar", "holidays"), ("calendar", ())),
    **dict.fromkeys(("convention", "business_day_convention", "roll_convention", "bdc"), _ROLL),
    **dict.fromkeys(("amortization", "amortisation", "amortizing", "notional_schedule"), _NO),
    **dict.fromkeys(("stub", "compounding", "in_arrears", "step_up", "gearing"), _NO),
    **dict.fromkeys(("fixing_lag", "reset_lag", "lockout", "lookback_days"), _NO),
    **dict.fromkeys(("participation", "participation_rate"), ("", _ONE)),
}
"""Another system's name for a column with a default here -> our column, and the cells that can be ignored.

Any other cell in such a column is an error: the trade would be valued without its content. Our column is "" if
no trade has such a term.
"""
_NO_NUL = "save the file as UTF-8 text, without such characters"


@dataclass(frozen=True)
class RawRow:
    """One row of a file, as written.

    `file`: the name of the file. `values`: by column, without empty cells. `place(column)`: line and column of
    a value. `text`: whether numbers are given as text. `problem`: why the row cannot be parsed.
    """

    file: str
    line: int
    values: dict[str, object]
    place: Callable[[str], Place]
    text: bool
    problem: ValidationIssue | None = None


@dataclass(frozen=True)
class TradeRows:
    """The rows of a file; `header` is None for JSON, where every object names its own fields."""

    rows: tuple[RawRow, ...]
    header: tuple[str, ...] | None = None
    header_line: int | None = None


def read_table(text: str, file: str) -> TradeRows:
    """Return the rows of a JSON text (the file's name ends in .json) or of a CSV text.

    A text without rows raises `UnreadableFile`.
    """
    return _read_json(text, file) if file.lower().endswith(".json") else _read_csv(text, file)


def read_frame(frame: Any, name: str) -> TradeRows:
    """Return the rows of a data frame, counted from 1; a null or an empty text is an empty cell.

    An object that is not a frame raises TypeError.

    Raises:
        unreadable: No column belongs to a book (an `UnreadableFile`).
    """
    table = arrow_table(frame)
    header = tuple(column.strip().lower() for column in table.column_names)
    if not set(header) & set(COLUMNS):
        remedy = f"give columns such as {', '.join(list(COLUMNS)[:6])}"
        raise unreadable(
            name, f"none of its columns {show(', '.join(header))} belongs to a book", remedy
        )
    if fault := _repeated(header):
        raise unreadable(name, fault.message, fault.remedy, field=str(fault.path[0]))

    def row(number: int, cells: tuple) -> RawRow:
        place = lambda column: (number, header.index(column) + 1 if column in header else None)
        named = zip(header, map(_plain, cells), strict=True)
        values = {key: x for key, x in named if x is not None and x != "" and _is_ours(key)}
        return RawRow(name, number, values, place, False)

    columns = [table.column(index).to_pylist() for index in range(table.num_columns)]
    rows = zip(*columns, strict=True)
    return TradeRows(tuple(row(number, cells) for number, cells in enumerate(rows, 1)), header)


def _plain(cell: Any) -> Any:
    """Return a cell as JSON would hold it: a date as text, NaN as None."""
    if isinstance(cell, list):
        return list(map(_plain, cell))
    if isinstance(cell, datetime) and cell.time() == time():
        cell = cell.date()
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, float) and math.isnan(cell):
        return None
    return int(cell) if isinstance(cell, Decimal) and cell == int(cell) else cell


def count_rows(text: str, file: str) -> int:
    """Return the number of rows that `read_table` would parse; 0 or less if it finds none."""
    if file.lower().endswith(".json"):
        elements = parse_json(text, file)
        return len(elements) if isinstance(elements, list) else 0
    return sum(1 for _ in _FILLED.finditer(text)) - 1


def _read_csv(text: str, file: str) -> TradeRows:
    lines = enumerate(re.split("\r\n|\n|\r", text), start=1)
    filled = [(number, line) for number, line in lines if line.strip(' \t,"')]
    number, line = filled[0] if filled else (None, "")
    header, fault = _header(line)
    if fault:
        field = "".join(map(str, fault.path))
        raise unreadable(file, fault.message, fault.remedy, place=(number, None), field=field)
    rows = tuple(_csv_row(file, number, line, header) for number, line in filled[1:])
    return TradeRows(rows, header, number)


def _header(line: str) -> tuple[tuple[str, ...], ValidationIssue | None]:
    """Return the column names in lower case, and the reason why the line is not a header, or None."""
    if not line:
        return (), ValidationIssue(
            (), "", "has no header", f"begin with the line {','.join(COLUMNS)}"
        )
    if "\0" in line:
        return (), ValidationIssue((), "", "the header holds the character U+0000", _NO_NUL)
    try:
        names = [name.lower() for name in _cells(line)]
    except csv.Error as error:
        return (), ValidationIssue((), "", f"the header is not valid CSV: {error}", "correct it")
    if not set(names) & set(COLUMNS):
        separators = {";": "semicolons", "\t": "tabs", "|": "bars"}
        wrong = next((word for sign, word in separators.items() if sign in line), None)
        if wrong:
            message = f"the cells are separated by {wrong}"
            remedy = "save the file with commas between cells and a point in decimals"
        else:
            message = f"the first line, {show(line)}, is not a header"
            remedy = f"begin with the line {','.join(COLUMNS)}"
        return (), ValidationIssue((), "", message, remedy)
    return tuple(names), _repeated(names)


def _repeated(names: Sequence[str]) -> ValidationIssue | None:
    """Return the problem of a repeated column, if there is one."""
    for name, count in Counter(names).items():
        if name and count > 1:
            message = f"the column {name!r} appears twice"
            return ValidationIssue((name,), "", message, "keep one of them")
    return None


def _cells(line: str) -> list[str]:
    """Return the cells of one line. A cell never holds a line break, so a bad quote spoils only one row."""
    return [cell.strip() for cell in next(csv.reader([line], strict=True, skipinitialspace=True))]


def _csv_row(file: str, number: int, line: str, header: tuple[str, ...]) -> RawRow:
    def place(column: str) -> Place:
        return number, header.index(column) + 1 if column in header else None

    problem = None
    if "\0" in line:
        problem = ValidationIssue((), show(line), "the row holds the character U+0000", _NO_NUL)
    try:
        cells = _cells(line)
    except csv.Error as error:
        cells = line.split(",")
        remedy = 'write a quote within a quoted cell as "", and close every quote'
        problem = ValidationIssue((), show(line), f"the row is not valid CSV: {error}", remedy)
    else:
        if len(cells) < len(header) or any(cells[len(header) :]):
            message = f"the row has {len(cells)} cells, the header {len(header)}"
            remedy = "give one cell for each column; quote a cell that holds a comma"
            problem = ValidationIssue((), show(line), message, remedy)
    named = zip(header, cells, strict=False)
    values: dict[str, object] = {name: cell for name, cell in named if cell and _is_ours(name)}
    return RawRow(file, number, values, place, True, problem)


def _read_json(text: str, file: str) -> TradeRows:
    elements, locator = parse_json(text, file), Locator(text)
    if not isinstance(elements, list):
        message = f"{show(elements)} is not a book"
        raise unreadable(file, message, "give a list of objects, one for each trade")

    def row(index: int, element: object) -> RawRow:
        written: dict[str, str] = {}

        def place(column: str) -> Place:
            return locator.place((index, written.get(column, column)))

        line = locator.place((index,))[0] or 1
        if not isinstance(element, dict):
            remedy = 'give an object such as {"id": "E1", "type": "european", ...}'
            problem = ValidationIssue(
                (), show(element), f"{show(element)} is not an object", remedy
            )
            return RawRow(file, line, {}, place, False, problem)
        given, problem = {}, None
        for key, value in element.items():
            name = key.strip().lower()
            if value is None or value == "" or not _is_ours(name):
                continue
            if name in given:
                message = f"the key {show(key)} means the same as {show(written[name])}"
                problem = ValidationIssue((name,), show(value), message, "keep one of them")
            given[name], written[name] = value, key
        return RawRow(file, line, given, place, False, problem)

    return TradeRows(tuple(row(index, element) for index, element in enumerate(elements)))


def _is_ours(name: str) -> bool:
    """Return True if a column is ours, another name for one of ours, or a likely misspelling."""
    known = name in COLUMNS or name in OTHER_NAMES
    return bool(name) and (known or _is_slip(name, tuple(COLUMNS)))


@functools.cache
def _is_slip(name: str, columns: tuple[str, ...]) -> bool:
    return bool(closest(name, columns, cutoff=0.75))
