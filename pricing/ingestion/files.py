"""Read text and JSON files."""

import json
import os
import stat
from pathlib import Path

from jaxtape.object_store import StoredPath, place_of

from .errors import show, unreadable
from .locator import Locator

MAX_BYTES = 2**28
_MAX_DIGITS = 400  # a double has at most 309; Python refuses integers of more than 4,300


def read_text(path: str | os.PathLike) -> str:
    """Return the text of a UTF-8 file, or of an object at a URL, without a byte-order mark.

    Only regular files are read, up to `MAX_BYTES`: a pipe or a device may never end.

    Raises:
        unreadable: No part is usable (an `UnreadableFile`).
        ConnectionError: The object store of a URL cannot be reached.
    """
    file = os.fspath(path)
    try:
        place = place_of(path)
        content = _bytes_of(place, file) if isinstance(place, Path) else _object(place, file)
    except ConnectionError:
        raise
    except FileNotFoundError:
        raise unreadable(file, "there is no such file", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise unreadable(
            file, f"cannot be read: {reason}", "check the path and its rights"
        ) from None
    return text_of(content, file)


def text_of(content: bytes, file: str) -> str:
    """Return the text of UTF-8 bytes without a byte-order mark; `file` names them in errors.

    Raises:
        unreadable: The bytes are empty or not UTF-8 (an `UnreadableFile`).
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"byte {error.object[error.start]:#04x} is not UTF-8 text"
        raise unreadable(file, message, "save the file as UTF-8", place=(line, None)) from None
    if not text.strip():
        raise unreadable(file, "is empty", "give a file with content")
    return text


def _bytes_of(path: Path, file: str) -> bytes:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise unreadable(file, "is a directory", "give the path of a file")
    if not stat.S_ISREG(mode):
        remedy = "write its output to a file, and give the path of the file"
        raise unreadable(file, "is a pipe, a socket or a device, not a file", remedy)
    with path.open("rb") as stream:
        return _not_too_large(stream.read(MAX_BYTES + 1), file)


def _object(place: StoredPath, file: str) -> bytes:
    if place.is_dir():
        raise unreadable(file, "is a directory", "give the path of a file")
    return _not_too_large(place.read_bytes(), file)


def _not_too_large(content: bytes, file: str) -> bytes:
    if len(content) > MAX_BYTES:
        message = f"has more than {MAX_BYTES:,} bytes"
        raise unreadable(file, message, "split it into files of at most that size")
    return content


def parse_json(text: str, file: str) -> object:
    """Return the value of JSON text.

    Raises:
        unreadable: The syntax is wrong, or a key is repeated (an `UnreadableFile`).
    """
    is_twice = False

    def unique(pairs):
        nonlocal is_twice
        found = dict(pairs)
        is_twice |= len(found) < len(pairs)
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_int=_integer)
        if not is_twice:
            return value
        key, place = Locator(text).second()
    except json.JSONDecodeError as error:
        message, place = f"is not JSON: {error.msg}", (error.lineno, error.colno)
    except RecursionError:
        message, place = "is nested too deeply to be read", (None, None)
    else:
        message = f"the key {show(key)} appears twice in one object"
        raise unreadable(file, message, "keep one of them", place=place)
    raise unreadable(file, message, "correct the syntax at that place", place=place)


def _integer(digits: str) -> int | float:
    """Return an integer; one that a double cannot hold becomes infinite, like a decimal number."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)
