"""Field types for pydantic records whose errors carry a message and a remedy.

Each function makes a validator for `Annotated[type, validator]`. With the validation context `{"text": True}`,
values are cells of a CSV file: numbers are text, and a list is `a|b|...`.
"""

import difflib
import itertools
import math
import re
from collections.abc import Iterable
from datetime import date
from types import SimpleNamespace
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from jaxtape.cli.escaping import control_character

from .errors import show

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
LARGEST, LEAST_POSITIVE = 1e15, 1e-15
"""Within these bounds, squares, quotients and products with a quantity neither overflow nor underflow."""
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2199, 12, 31)
"""The range of dates, so that an adjusted date, or one a hundred years later, is still in the calendar."""
_MAX_NAME = 1000
_MAX_DECIMAL = 10.0  # rates and vols have bounds up to this
_MAX_HINT, _MAX_KNOWN = 100, 2000
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def problem(message: str, remedy: str, *path: str | int) -> PydanticCustomError:
    """Return the error to raise in a validator; `path` leads from the validated value to the wrong one."""
    context = {"message": message, "remedy": remedy, "path": path}
    return PydanticCustomError("input", "{message}", context)


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint with the known word closest to an unknown one, or ""."""
    if len(word) > _MAX_HINT:  # the search time is quadratic in the length
        return ""
    folded = {name.casefold(): name for name in itertools.islice(known, _MAX_KNOWN)}
    match = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=cutoff)
    return f"did you mean {folded[match[0]]!r}? " if match else ""


def number(
    what: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    likely: float = math.inf,
) -> BeforeValidator:
    """Validate a finite number of size up to `LARGEST`; remedies name it `what` ("give a strike > 0").

    A number above `likely` is taken for a percentage. The text `4.500` may mean 4,500 in some locales: it is
    refused if both readings are within the bounds.
    """
    limits = {">": above, ">=": least, "<=": most}
    bounds = [f"{sign} {limit:g}" for sign, limit in limits.items() if math.isfinite(limit)]
    article = "an" if what[0] in "aeiou" else "a"
    remedy = f"give {article} {what} {' and '.join(bounds) or 'that is a finite number'}"
    wanted = {"> 0": "a positive number"}

    def validate(value: object, info) -> float:
        is_text = bool(info.context and info.context.get("text"))
        shown, value = _parse(value, is_text, remedy)
        if not math.isfinite(value):
            raise problem(f"{shown} is not a finite number", remedy)
        if value <= above or value < least:
            raise problem(
                f"{shown} is not {wanted.get(bounds[0], f'a number {bounds[0]}')}", remedy
            )
        if value > most:
            hint = ", as a decimal: 1 % is 0.01" if most <= _MAX_DECIMAL else ""
            raise problem(f"{shown} is larger than {most:g}", f"{remedy}{hint}")
        if value > likely:
            hint = f"give a decimal: {shown} % is {value / 100:g}"
            raise problem(f"{shown} is {value:.0%}, too large for a {what}", hint)
        if is_text and _AMBIGUOUS.fullmatch(shown) and 1000.0 * value <= most:
            hint = f"write {shown}0, or {1000.0 * value:.0f}"
            raise problem(f"{shown} may be {value:g} or {1000.0 * value:,.0f}", hint)
        if abs(value) > LARGEST:
            raise problem(f"{shown} is beyond {LARGEST:g} in size", f"{remedy}, in larger units")
        if above == 0.0 and value < LEAST_POSITIVE:
            raise problem(f"{shown} is below {LEAST_POSITIVE:g}", f"{remedy}, in smaller units")
        return value

    return BeforeValidator(validate)


def wrong_number(what: str, value: float | int, **bounds: float) -> tuple[str, str] | None:
    """Return the message and remedy of `number` for a wrong number; None for a valid one."""
    try:
        number(what, **bounds).func(value, SimpleNamespace(context=None))  # pyright: ignore
    except PydanticCustomError as error:
        said = error.context or {}
        return said["message"], said["remedy"]
    return None


def _parse(value: object, text: bool, remedy: str) -> tuple[str, float]:
    """Return a number, and its text for messages.

    Raises:
        problem: The value is not a number.
    """
    if text and isinstance(value, str):
        if _NUMBER.fullmatch(value) or value.lstrip("+-").lower() in ("nan", "inf", "infinity"):
            return value, float(value)
        remedy += ", with a decimal point and without a thousands separator"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return show(value), float(value)
        except OverflowError:
            return show(value), math.inf
    raise problem(f"{show(value)} is not a number", remedy)


def _days(value: object) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and value in range(36526):
        return int(value)
    remedy = "give whole calendar days from the as-of date, from 0 to 36525"
    raise problem(f"{show(value)} is not a number of days", remedy)


def _iso_date(value: object) -> date:
    if type(value) is date:
        return value
    remedy = "give an ISO 8601 date, YYYY-MM-DD, such as 2003-03-15"
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise problem(f"{show(value)} is not a date of the form YYYY-MM-DD", remedy)
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise problem(f"{show(value)} is not a day of the calendar", remedy) from None
    if not FIRST_DAY <= day <= LAST_DAY:
        raise problem(
            f"{day} is not between {FIRST_DAY} and {LAST_DAY}", "give a date of these years"
        )
    return day


def name_of(value: object) -> str:
    """Return a name: stripped text without control characters.

    Raises:
        problem: The value is not a name.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise problem(f"{show(value)} is not a name", "give a text that is not empty")
    value = value.strip()
    if found := control_character(value):
        remedy = "give a name without control characters, line breaks or halves of surrogate pairs"
        raise problem(f"{show(value)} holds the character {found}", remedy)
    if len(value) > _MAX_NAME:
        message = f"{show(value)} has {len(value):,} characters"
        raise problem(message, f"give a name of at most {_MAX_NAME:,}")
    return value


def _listed(value: object, what: str) -> list:
    """Return the cells of a list; in text they are separated by bars.

    Raises:
        problem: The value is not a list, or is empty.
    """
    if isinstance(value, str):
        value = [cell.strip() for cell in value.split("|")]
    if not isinstance(value, list | tuple):
        raise problem(f"{show(value)} is not a list", f"give {what}s as a list")
    if not value:
        raise problem("the list is empty", f"give at least one {what}")
    return list(value)


def _iso_dates(value: object) -> tuple[date, ...]:
    found = tuple(map(_iso_date, _listed(value, "date")))
    check_increasing(found, "sort the dates in increasing order")
    return found


def check_increasing(values: Iterable[Any], remedy: str, *path: str) -> None:
    """Check that a list increases strictly; `path`, if given, leads to it.

    Raises:
        problem: The list does not increase.
    """
    for index, (before, after) in enumerate(itertools.pairwise(values), start=1):
        place = (*path, index) if path else ()
        if after == before:
            raise problem(f"{after} appears twice", "keep one of them", *place)
        if after < before:
            raise problem(f"{after} comes after {before}", remedy, *place)


def numbers(what: str, **bounds: float) -> BeforeValidator:
    """Validate a list of numbers, each like `number`."""
    one = number(what, **bounds).func

    def validate(value: object, info) -> tuple[float, ...]:
        return tuple(one(cell, info) for cell in _listed(value, what))  # pyright: ignore

    return BeforeValidator(validate)


def whole_number(what: str, least: int, most: int) -> BeforeValidator:
    """Validate a whole number within bounds; remedies name it `what`."""

    def validate(value: object) -> int:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found = next((n for n in range(least, most + 1) if is_number and n == value), None)
        if found is not None:
            return found
        remedy = f"give a whole {what}, from {least} to {most}"
        raise problem(f"{show(value)} is not such a {what}", remedy)

    return BeforeValidator(validate)


days = BeforeValidator(_days)
iso_date = BeforeValidator(_iso_date)
iso_dates = BeforeValidator(_iso_dates)
name = BeforeValidator(name_of)


def choice(*options: str) -> BeforeValidator:
    """Validate one of several words, ignoring case, blanks, hyphens and underscores ("Down and out")."""
    by_letters = {_letters(option): option for option in options}
    listed = ", ".join(options)

    def validate(value: object) -> str:
        match = by_letters.get(_letters(value)) if isinstance(value, str) else None
        if match is None:
            raise problem(f"{show(value)} is not one of {listed}", f"give one of {listed}")
        return match

    return BeforeValidator(validate)


def _letters(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word).lower()
