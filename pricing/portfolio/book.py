"""A book: the trades of a CSV or JSON file, each checked, the bad ones reported and set aside."""

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtape.cli.escaping import escaped
from pricing.ingestion.errors import InputError, listed, show
from pricing.ingestion.fields import closest
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
    """A row of a book: its trade, or None and the errors of the row.

    Attributes:
        line: The line of the file, from 1 on.
        id: The id as it is in the file, without control characters.
        type: The kind of trade, without control characters.
        trade: The trade, if the row passed every check.
        errors: The errors of the row.
        raw: The row as it was read.
        history: The event that ended or changed the trade, or None. If nothing is left of it, `trade` is None
            without an error.
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
        """Whether nothing is left of the trade."""
        return self.history is not None and self.trade is None


@dataclass(frozen=True)
class Book:
    """A book holds the rows of one file, in its order, and all of its errors.

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

        A bad row is reported in `errors` and does not stop the book (format: docs/trades.md). A file without
        rows (no file, not UTF-8, no header) is an `UnreadableFile`.

        Args:
            path: The path of the file.

        Returns:
            The book.
        """
        return cls.from_text(read_text(path), os.fspath(path))

    @classmethod
    def from_text(cls, text: str, file: str = "trades.csv") -> "Book":
        """Read the book in a text.

        Args:
            text: The content of a CSV or JSON file.
            file: The name that error messages show; its ending gives the format.

        Returns:
            The book.
        """
        return cls._of(read_table(text, file), file)

    @classmethod
    def from_frame(cls, frame: Any, name: str = "frame") -> "Book":
        """Read the book in a data frame: the columns of a CSV file, with numbers, days and lists as such.

        Args:
            frame: A frame of pandas (2.2 or later), polars, pyarrow or another that exports Arrow's streams.
            name: The name of the frame in error messages, in which a row has its number, from 1 on.

        Returns:
            The book.

        `UnreadableFile` is raised if the frame has no column of a book, TypeError if it is no frame.

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
            ValueError: There is no row of that id.
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
        """Return this book as the market's day finds it; trades that the market cannot serve are set aside.

        Each trade is the plain one that its fixings leave (`seasoned`). What has ended has no trade, and no
        error, but a `history`. A trade is set aside with its error where the market does not have its
        underlying, or a fixing that it needs.

        Args:
            market: The market to be valued in.
        """
        return self.served(market)[0]

    def served(self, market: Market) -> tuple["Book", frozenset[str]]:
        """Return the `checked` book, and the names whose quotes replaced fixings of the market's day.

        Args:
            market: The market to be valued in.
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
        """Return the trades that the market can serve, and the errors of the others.

        The market cannot serve an unknown underlying, one that was left out of it for its own error, or a trade
        whose past it does not know. A trade that has ended is in neither.

        Args:
            market: The market to be valued in.
        """
        checked = self.checked(market)
        return checked.trades, checked.errors[len(self.errors) :]


def _text(raw: RawRow, name: str) -> str:
    """Return a value as a text: an integer with all of its digits, as a name has them."""
    value = raw.values.get(name, "")
    if isinstance(value, str):
        return value.strip()
    return str(value) if type(value) is int else show(value)


def _kind(raw: RawRow) -> str:
    return re.sub(r"[\s-]+", "_", _text(raw, "type").lower())


def _missing_columns(table: TradeRows, file: str) -> _Missing:
    """Return, by kind of trade, one error for each column that the kind needs and the header lacks."""
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
        message = f"{value} is not a kind of trade known here" if kind else "is missing"
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
    """Return the problem of a value that this kind of trade has no use for."""
    if name in COLUMNS:
        message = f"{show(value)} is given, but a trade of type {kind} has no {name}"
        return ValidationIssue((name,), show(value), message, "leave it empty")
    ours = OTHER_NAMES[name][0] if name in OTHER_NAMES else None
    if ours == "":
        remedy = "leave the trade out, or empty the column if its value is meant without it"
        return ValidationIssue((name,), show(value), "is a term that no trade here has", remedy)
    hint = f"this is {ours} here: " if ours else closest(name, COLUMNS)
    remedy = f"{hint}rename or empty the column"
    return ValidationIssue((name,), show(value), "is not a column known here", remedy)


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
    """Return a row with its trade as the market's day finds it, and its problems."""
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
