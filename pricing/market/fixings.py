"""Past fixings: spots of equities, rates of curves."""

import csv
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from ..ingestion.errors import InputError, show, unreadable
from ..ingestion.field_types import choice, iso_date, name, number
from ..ingestion.files import read_text
from ..ingestion.validation import ValidationIssue, validate

Place = tuple[str, date]
_COLUMNS = ("name", "date", "value")
_CONFIRMED = "confirmed"


def _cells(line: str) -> list[str]:
    try:
        cells = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        cells = line.split(",")
    return [cell.strip() for cell in cells]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: Annotated[str, name]
    date: Annotated[date, iso_date]
    value: Annotated[float, number("value")]
    confirmed: Annotated[str, choice("no", "yes")] = "no"


_PERIODS = ("1D", *(f"{months}M" for months in range(1, 13)))
"""The tenors of rate fixings: a trade reads that of its own frequency."""


class Fixings(Mapping[Place, float]):
    r"""The past levels of equities and curves: (name, day) -> level.

    Args:
        levels: The levels as a mapping, or as pairs of (name, day) and level.
        errors: The rows of a file that were left out.
        file: The name of the file.
        confirmed: The places of levels that a market accepts although they are far from its own quotes.

    Attributes:
        errors: The rows of a file that were left out, with the reasons.
        file: The name of the file.
        confirmed: The places of levels that are taken as they are.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import Fixings
        >>> fixings = Fixings.from_text("name,date,value\nDAX,2002-07-04,4412.3")
        >>> fixings["DAX", date(2002, 7, 4)]
        4412.3
    """

    def __init__(
        self,
        levels: Any = (),
        errors: tuple[InputError, ...] = (),
        file: str = "",
        confirmed: Collection[Place] = (),
    ):
        self._levels: dict[Place, float] = dict(levels)
        self.errors, self.file, self.confirmed = errors, file, frozenset(confirmed)
        self._days: dict[str, list[date]] = {}
        for known, day in sorted(self._levels):
            self._days.setdefault(known, []).append(day)

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Fixings":
        """Return the fixings in a CSV file with columns name, date, value and confirmed (docs/trades.md).

        A bad row is left out and reported in `errors`. A file without rows raises `UnreadableFile`.

        Args:
            path: The path of the file.
        """
        return cls.from_text(read_text(path), os.fspath(path))

    @classmethod
    def from_text(cls, text: str, file: str = "fixings.csv") -> "Fixings":
        """Return the fixings in text.

        Args:
            text: The content of a CSV file.
            file: The name for error messages.

        Raises:
            unreadable: The header lacks a column (an `UnreadableFile`).
        """
        head, *lines = re.split("\r\n|\n|\r", text)
        header = [name.lower() for name in _cells(head)]
        if lacking := [column for column in _COLUMNS if column not in header]:
            message = f"the header has no column {lacking[0]}"
            raise unreadable(file, message, f"begin with the line {','.join(_COLUMNS)}")
        if twice := [column for column in (*_COLUMNS, _CONFIRMED) if header.count(column) > 1]:
            raise unreadable(file, f"the column {twice[0]!r} appears twice", "keep one of them")
        levels: dict[Place, float] = {}
        confirmed: set[Place] = set()
        errors: list[InputError] = []
        for line, content in enumerate(lines, start=2):
            cells = _cells(content)
            given = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
            if not given:
                continue
            if any(cells[len(header) :]):
                message = f"the row has {len(cells)} cells, the header {len(header)}"
                remedy = "give one cell for each column, and a decimal point"
                errors.append(InputError(file, line, None, "", show(content), message, remedy))
                continue
            row, problems = validate(_Row, given, text=True)
            if row is not None and levels.setdefault((row.name, row.date), row.value) != row.value:
                known = levels[row.name, row.date]
                message = f"{row.name} was {known:g} on {row.date} in an earlier row"
                problems = (ValidationIssue(("value",), show(row.value), message, "keep one"),)
            if row is not None and row.confirmed == "yes":
                confirmed.add((row.name, row.date))
            for problem in problems:
                column = str(problem.path[0]) if problem.path else ""
                cell = header.index(column) + 1 if column in header else None
                said = column, problem.value, problem.message, problem.remedy
                errors.append(InputError(file, line, cell, *said))
        return cls(levels, tuple(errors), file, confirmed)

    def days(self, name: str) -> tuple[date, ...]:
        """Return the days with a level for a name, in order.

        Args:
            name: The name of an equity or a curve.
        """
        return tuple(self._days.get(name, ()))

    def __getitem__(self, place: Place) -> float:
        return self._levels[place]

    def __iter__(self) -> Iterator[Place]:
        return iter(self._levels)

    def __len__(self) -> int:
        return len(self._levels)

    def __repr__(self) -> str:
        return "Fixings(...)"


def is_rate_name(name: str, curves: Collection[str]) -> bool:
    """Return True if a name is that of a curve's rate, such as "EUR 6M" or "EUR 1D".

    Args:
        name: The name of a fixing.
        curves: The names of curves.
    """
    curve, _, period = name.rpartition(" ")
    return curve in curves and period in _PERIODS


def misspelt_names(
    fixings: Fixings, assets: Iterable[str], curves: Iterable[str]
) -> tuple[InputError, ...]:
    """Return the errors of names that match the market's only up to case and blanks: no trade finds them.

    Args:
        fixings: The levels.
        assets: The names of equities and FX pairs.
        curves: The names of curves.
    """
    curves = [*curves]
    known = [*assets, *(f"{curve} {period}" for curve in curves for period in _PERIODS)]
    alike = {_spelling(name): name for name in known}
    exact = {*known, *curves}
    return tuple(
        InputError(
            *(fixings.file, None, None, "name", show(name)),
            *(f"the market has no {name}", f"did you mean {alike[_spelling(name)]!r}?"),
        )
        for name in dict.fromkeys(name for name, _ in fixings)
        if name not in exact and _spelling(name) in alike
    )


def _spelling(name: str) -> str:
    return "".join(name.split()).casefold()
