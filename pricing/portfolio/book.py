"""A book: the trades of a CSV or JSON file; each is checked, and bad ones are reported and set aside."""

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtape.cli.escaping import escaped
from pricing.ingestion.errors import InputError, listed, show
from pricing.ingestion.field_types import closest
from pricing.ingestion.files import read_text
from pricing.ingestion.validation import ValidationIssue, validate
from pricing.market import Market, Observed, UnknownPast
from pricing.products.trade import COLUMNS, NEUTRAL, TRADE_TYPES, Trade

from .market_problems import MarketProblems
from .seasoning import History, seasoned
from .trade_table import OTHER_NAMES, RawRow, TradeRows, read_frame, read_table

_WIDTH = 1000  # characters of a name, at most

_Missing = dict[str, tuple[InputError, ...]]  # by kind of trade


@dataclass(frozen=True)
class BookRow:
    """A row of a book: its trade, or its errors.

    Attributes:
        line: The line of the file, counted from 1.
        id: The id as it is in the file, without control characters.
        type: The kind of trade, without control characters.
        trade: The trade, if the row passed every check.
        errors: The errors of the row.
        raw: The row as it was read.
        history: The event that ended or changed the trade, or None. If the trade has ended, `trade` is None and
            there is no error.
    """

    line: int
    id: str
    type: str
    trade: Trade | None
    errors: tuple[InputError, ...]
    raw: RawRow = field(repr=False, compare=False)
    history: History | None = None

    @property
    def is_over(self) -> bool:
        """Whether the trade has ended."""
        return self.history is not None and self.trade is None


@dataclass(frozen=True)
class Book:
    """The rows of one file, in order, and its errors.

    Attributes:
        file: The name of the file.
        rows: The rows, good and bad.
        errors: The errors, with file, line, field, value and remedy.

    Examples:
        >>> lines = "id,type,underlying,option,strike,expiry", "E1,european,DAX,call,-1,2003-03-18"
        >>> book = Book.from_text(chr(10).join(lines))
        >>> book.trades, book.errors[0].remedy
        ((), 'give a strike > 0')
    """

    file: str
    rows: tuple[BookRow, ...]
    errors: tuple[InputError, ...]
    _last_served: "tuple[Market, Book, frozenset[str]] | None" = field(
        default=None, init=False, repr=False, compare=False
    )

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Book":
        """Read the book in a CSV file, or in a JSON file when the name ends in .json.

        A bad row is reported in `errors`, and the others are read (format: docs/trades.md). A file that cannot
        be read (missing, not UTF-8, no header) raises `UnreadableFile`.

        Args:
            path: The path of the file.

        Returns:
            The book.
        """
        return cls.from_text(read_text(path), os.fspath(path))

    @classmethod
    def from_text(cls, text: str, file: str = "trades.csv") -> "Book":
        """Read a book from text.

        Args:
            text: The content of a CSV or JSON file.
            file: The name for error messages; its suffix gives the format.

        Returns:
            The book.
        """
        return cls._of(read_table(text, file), file)

    @classmethod
    def from_frame(cls, frame: Any, name: str = "frame") -> "Book":
        """Read a book from a data frame with the columns of a CSV file; cells may be numbers, dates and lists.

        Args:
            frame: A frame of pandas (2.2 or later), polars, pyarrow or any other library that exports Arrow
                streams.
            name: The name of the frame in error messages, which count rows from 1.

        Returns:
            The book.

        A frame without any column of a book raises `UnreadableFile`; an object that is not a frame raises
        TypeError.

        Examples:
            >>> import pyarrow
            >>> from datetime import date
            >>> columns = {"id": ["E1"], "type": ["european"], "underlying": ["DAX"], "option": ["call"]}
            >>> columns |= {"strike": [4400.0], "expiry": [date(2003, 3, 18)]}
            >>> Book.from_frame(pyarrow.table(columns)).trades[0].strike
            4400.0
        """
        return cls._of(read_frame(frame, name), name)

    @classmethod
    def _of(cls, table: TradeRows, file: str) -> "Book":
        missing = _missing_columns(table, file)
        first_line: dict[str, int] = {}
        rows = tuple(_row(raw, missing, first_line) for raw in table.rows)
        of_header = tuple(error for errors in missing.values() for error in errors)
        of_rows = tuple(error for row in rows for error in row.errors if error not in of_header)
        return cls(file, rows, (*of_header, *of_rows))

    @property
    def trades(self) -> tuple[Trade, ...]:
        """The trades that passed every check, in file order."""
        return tuple(row.trade for row in self.rows if row.trade is not None)

    def __add__(self, other: "Book") -> "Book":
        """Return the rows of this book, then the rows of another.

        Raises:
            ValueError: An id is in both books.
        """
        both = {row.id for row in self.rows} & {row.id for row in other.rows}
        if both:
            raise ValueError(
                f"{listed(sorted(both))}: in both books; give every trade an id of its own"
            )
        return Book(self.file, self.rows + other.rows, self.errors + other.errors)

    def without(self, *ids: str) -> "Book":
        """Return the book without the rows of these ids.

        Args:
            *ids: The ids as they are in the file.

        Raises:
            ValueError: No row has such an id.
        """
        if unknown := set(ids) - {row.id for row in self.rows}:
            raise ValueError(
                f"{listed(sorted(unknown))}: there is no such id in {self.file}; give ids of its rows"
            )
        rows = tuple(row for row in self.rows if row.id not in ids)
        gone = {error for row in self.rows if row.id in ids for error in row.errors}
        gone -= {error for row in rows for error in row.errors}
        return Book(self.file, rows, tuple(e for e in self.errors if e not in gone))

    def checked(self, market: Market) -> "Book":
        """Return this book on the market's day; trades that the market cannot value are set aside.

        Each trade becomes the simpler trade that remains after its fixings (`seasoned`). A trade that has ended
        becomes a row with a `history`, without a trade or an error. A trade whose underlying or fixing is
        missing from the market is set aside with its error.

        Args:
            market: The market in which to value the book.
        """
        return self.served(market)[0]

    def served(self, market: Market) -> tuple["Book", frozenset[str]]:
        """Return the `checked` book, and the names whose quotes served as fixings of the market's day.

        Args:
            market: The market in which to value the book.
        """
        last = self._last_served
        if last and last[0] is market:
            return last[1:]
        rows, found = [], []
        observed, problems_of = Observed(market.asof, market), MarketProblems(market)
        for row in self.rows:
            served, problems = _served(row, problems_of, observed)
            errors = tuple(_error(problem, row.raw) for problem in problems)
            rows.append(replace(row, trade=None, errors=errors) if errors else served)
            found.extend(errors)
        checked = Book(self.file, tuple(rows), (*self.errors, *found))
        quoted = frozenset(observed.quoted)
        object.__setattr__(self, "_last_served", (market, checked, quoted))
        return checked, quoted

    def check(self, market: Market) -> tuple[tuple[Trade, ...], tuple[InputError, ...]]:
        """Return the trades that the market can value, and the errors of the others.

        The market cannot value a trade whose underlying is unknown or was left out because of an error, or
        whose past fixings are missing. A trade that has ended is in neither result.

        Args:
            market: The market in which to value the book.
        """
        checked = self.checked(market)
        return checked.trades, checked.errors[len(self.errors) :]


def _text(raw: RawRow, name: str) -> str:
    """Return a value as text; an integer keeps all of its digits."""
    value = raw.values.get(name, "")
    if isinstance(value, str):
        return value.strip()
    return str(value) if type(value) is int else show(value)


def _kind(raw: RawRow) -> str:
    return re.sub(r"[\s-]+", "_", _text(raw, "type").lower())


def _missing_columns(table: TradeRows, file: str) -> _Missing:
    """Return, by kind of trade, an error for each required column that the header lacks."""
    if table.header is None:
        return {}
    unknown = set(table.header) - set(COLUMNS)
    missing = {}
    for kind in dict.fromkeys(map(_kind, table.rows)):
        needed = _required(TRADE_TYPES[kind]) if kind in TRADE_TYPES else ("type",)
        whom = f"{kind} trades need it" if kind in TRADE_TYPES else "every trade needs it"
        message = f"the header has no such column, and {whom}"
        missing[kind] = tuple(
            InputError(
                *(file, table.header_line, None, column, "", message),
                remedy=f"{closest(column, unknown)}add the column to the header",
            )
            for column in needed
            if column not in table.header
        )
    return missing


def _required(kind: type[Trade]) -> tuple[str, ...]:
    fields = kind.model_fields.items()
    return tuple(name for name, info in fields if info.is_required() and name != "line")


def _row(raw: RawRow, missing: _Missing, first_line: dict[str, int]) -> BookRow:
    name, kind = _text(raw, "id"), _kind(raw)
    trade, problems, absent = None, (), missing.get(kind, ())
    if raw.problem:
        problems = (raw.problem,)
    elif not absent:
        trade, problems = _trade(raw, kind)
    if name in first_line:
        message = f"{show(name)} is also the id of line {first_line[name]}"
        remedy = "give every trade an id of its own"
        problems = (*problems, ValidationIssue(("id",), show(name), message, remedy))
    errors = (*absent, *(_error(found, raw) for found in problems))
    trade = None if errors else trade
    if name:
        first_line.setdefault(name, raw.line)
    shown = escaped(name[:_WIDTH]) or f"line {raw.line}"
    return BookRow(raw.line, shown, escaped(kind[:_WIDTH]), trade, errors, raw)


def _trade(raw: RawRow, kind: str) -> tuple[Trade | None, tuple[ValidationIssue, ...]]:
    if kind not in TRADE_TYPES:
        known = ", ".join(TRADE_TYPES)
        value = show(raw.values["type"]) if kind else ""
        message = f"{value} is not a known kind of trade" if kind else "is missing"
        remedy = f"{closest(kind, TRADE_TYPES)}give one of {known}"
        return None, (ValidationIssue(("type",), value, message, remedy),)
    model = TRADE_TYPES[kind]
    own = {name: value for name, value in raw.values.items() if name in model.model_fields}
    foreign = tuple(
        _foreign(name, value, kind)
        for name, value in raw.values.items()
        if name not in own and name != "type" and not _says_nothing(name, value)
    )
    trade, problems = validate(model, {**own, "line": raw.line}, text=raw.text)
    return trade, (*problems, *foreign)


def _foreign(name: str, value: object, kind: str) -> ValidationIssue:
    """Return the problem of a value in a column that this kind of trade does not have."""
    if name in COLUMNS:
        message = f"{show(value)} is given, but a trade of type {kind} has no {name}"
        return ValidationIssue((name,), show(value), message, "leave it empty")
    ours = OTHER_NAMES[name][0] if name in OTHER_NAMES else None
    if ours == "":
        remedy = "leave the trade out, or empty the column if its value is meant without it"
        return ValidationIssue((name,), show(value), "is a term that no trade here has", remedy)
    hint = f"this is {ours} here: " if ours else closest(name, COLUMNS)
    remedy = f"{hint}rename or empty the column"
    return ValidationIssue((name,), show(value), "is not a known column", remedy)


def _says_nothing(name: str, value: object) -> bool:
    """Return True if a value is the neutral one, such as a rebate of 0 on a European option."""
    if name in OTHER_NAMES:
        return str(value).strip().casefold() in OTHER_NAMES[name][1]
    neutral = NEUTRAL.get(name)
    try:
        return neutral is not None and type(neutral)(value) == neutral
    except (TypeError, ValueError, OverflowError):
        return False


def _error(problem: ValidationIssue, raw: RawRow) -> InputError:
    column = str(problem.path[0]) if problem.path else ""
    line, cell = raw.place(column)
    return InputError(raw.file, line, cell, column, problem.value, problem.message, problem.remedy)


def _served(
    row: BookRow, problems_of: MarketProblems, observed: Observed
) -> tuple[BookRow, tuple[ValidationIssue, ...]]:
    """Return a row with what remains of its trade on the market's day, or its problems."""
    trade = row.trade
    if trade is None:
        return row, ()
    if problems := problems_of(trade):
        if trade.end >= observed.until:
            return row, problems
        return replace(row, trade=None, history=History(trade, "expired", trade.end, None)), ()
    try:
        found = seasoned(trade, observed)
    except UnknownPast as unknown:
        return row, (ValidationIssue((), "", unknown.message, unknown.remedy),)
    history = row.history
    if found.event:
        cash = None if found.cash is None else trade.quantity * found.cash
        history = History(trade, found.event, found.day, cash)
    return replace(row, trade=found.trade, history=history), ()
