"""Input errors as values: the mistake, its place, and the remedy."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass

from jaxtape.cli.escaping import escaped

_MAX_FIELD = 200
_ENCODER = json.JSONEncoder(default=str)


@dataclass(frozen=True)
class InputError:
    """One mistake in one file.

    Attributes:
        file: The name of the file.
        line: The line, from 1; None if unknown.
        column: The cell in CSV or the character in JSON, from 1; None if unknown.
        field: The name of a CSV column, or a dotted JSON path.
        value: The offending value as text.
        message: A description of the mistake.
        remedy: The way to correct it.
    """

    file: str
    line: int | None
    column: int | None
    field: str
    value: str
    message: str
    remedy: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        kind = "field" if self.file.lower().endswith(".json") else "column"
        field = f"{kind} {show(self.field, _MAX_FIELD)}: " if self.field else ""
        return escaped(f"{place}: {field}{self.message}; {self.remedy}")


class UnreadableFile(Exception):
    """A file without any usable part; `error` is the `InputError` with the reason."""

    def __init__(self, error: InputError):
        super().__init__(str(error))
        self.error = error


def unreadable(
    file: str,
    message: str,
    remedy: str,
    *,
    place: tuple[int | None, int | None] = (None, None),
    field: str = "",
    value: str = "",
) -> UnreadableFile:
    """Return the exception for a file without any usable part."""
    return UnreadableFile(InputError(file, *place, field, value, message, remedy))


def show(value: object, width: int = 40) -> str:
    """Return a value as it is in its file, shortened to `width` characters, on one line."""
    if isinstance(value, str):
        text = repr(value[:width]) if len(value) > width else repr(value)
    else:  # in pieces, so that a long or deep list is not written out in full
        text = "".join(itertools.islice(_ENCODER.iterencode(value), width + 1))
    return text if len(text) <= width else text[: width - 1] + "…"


def listed(names: Iterable[object], most: int = 20) -> str:
    """Return names separated by commas, or "none"; for many, the first ones and the number of others."""
    texts = [str(name) for name in names]
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return ", ".join([*texts[:most], *more]) or "none"
