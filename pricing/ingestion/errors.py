"""Errors of input as values: what is wrong, where, and what to do about it."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class InputError:
    """One mistake in one file.

    `line` and `column` count from 1 (the column is a cell in CSV, a character in JSON); they are
    None where the mistake has no place. `field` is a CSV column's name or a dotted JSON path.
    `value` is the offending value as text.
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
        field = f"{kind} {self.field!r}: " if self.field else ""
        return f"{place}: {field}{self.message}; {self.remedy}"


class UnreadableFile(Exception):
    """A file of which nothing can be used; `error` is the `InputError` that says why."""

    def __init__(self, error: InputError):
        super().__init__(str(error))
        self.error = error


def show(value: object, width: int = 40) -> str:
    """A value as it stands in its file, shortened to `width` characters, on one line."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= width else text[: width - 1] + "…"
