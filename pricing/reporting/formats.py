"""Format numbers, dates and names for the report and its tables."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

_FORMULA_STARTS = tuple("=+-@\t\r'")  # the first characters of formulas in spreadsheets


def number(value: float | int, decimals: int = 0) -> str:
    """Format a number with thousands separators and a true minus sign; never a negative zero."""
    if not math.isfinite(value):
        return "\N{EN DASH}"
    text = f"{value:,.{decimals}f}"
    if text.startswith("-") and not text.strip("-0.,"):
        text = text[1:]
    return text.replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: 1 trade, 2,096 trades."""
    return f"{number(count)} {noun}{'s' * (count != 1)}"


def decimals_for(values: Iterable[float | int]) -> int:
    """Return the number of decimals that shows about four digits of the largest number."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0.0:
        return 0
    return min(8, max(0, 3 - math.floor(math.log10(largest))))


def significant(value: float | int, digits: int = 4) -> str:
    """Format a number with `digits` significant digits."""
    if value == 0.0 or not math.isfinite(value):
        return number(value)
    return number(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def by_size(value: float) -> tuple[bool, float]:
    """Return a key that sorts by absolute value, largest first, and non-finite numbers last."""
    return not math.isfinite(value), -abs(value)


def plain(value: float | int) -> str:
    """Format a number with the decimals that it needs, at most eight: 4,400 or 0.25."""
    return number(value, 8).rstrip("0").rstrip(".")


def cell(text: str) -> str:
    """Return text as a CSV cell; an apostrophe keeps spreadsheets from reading it as a formula.

    A text that begins with an apostrophe gets another one, so that removing the first restores the text.
    """
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with numbers in full precision and text formatted by `cell`."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: cell(x) if isinstance(x, str) else x for k, x in row.items()})


def day(value: date) -> str:
    """Format a day as 18 Jul 2002."""
    return f"{value.day} {value:%b %Y}"
