"""Read text and JSON files, and find the line on which a JSON value stands."""

import json
import os
import re
from pathlib import Path

import yaml

from .errors import InputError, UnreadableFile, show

Place = tuple[int | None, int | None]
_FOREIGN_TO_YAML = re.compile(
    r"(\\u[dD][89a-fA-F]..|[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])|\\."
)
"""What JSON allows and YAML does not, or takes for a line break: surrogates, control characters."""


def unreadable(file: str, message: str, remedy: str, *, place: Place = (None, None), field=""):
    """The exception for a file of which nothing can be used."""
    return UnreadableFile(InputError(file, *place, field, "", message, remedy))


def read_text(path: str | os.PathLike) -> str:
    """The text of a UTF-8 file, a byte-order mark dropped; raises `UnreadableFile`."""
    file = os.fspath(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise unreadable(file, "there is no such file", "check the path") from None
    except IsADirectoryError:
        raise unreadable(file, "is a directory", "give the path of a file") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"byte {error.object[error.start]:#04x} is not UTF-8 text"
        raise unreadable(file, message, "save the file as UTF-8", place=(line, None)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise unreadable(
            file, f"cannot be read: {reason}", "check the path and its rights"
        ) from None
    if not text.strip():
        raise unreadable(file, "is empty", "give a file with content")
    return text


def parse_json(text: str, file: str) -> object:
    """The value of a JSON text; raises `UnreadableFile` for bad syntax or a key given twice."""

    def unique(pairs):
        found = dict(pairs)
        if len(found) < len(pairs):
            key = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
            message = f"the key {show(key)} stands twice in one object"
            raise unreadable(file, message, "keep one of them", place=_second(text, key))
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        message, place = f"is not JSON: {error.msg}", (error.lineno, error.colno)
    except RecursionError:
        message, place = "is nested too deeply to be read", (None, None)
    except ValueError as error:
        message, place = f"is not JSON: {error}", (None, None)
    raise unreadable(file, message, "correct the syntax at that place", place=place)


class Locator:
    """Finds the place of a value in a JSON text; the text is scanned at the first question."""

    def __init__(self, text: str):
        self._text = text
        self._root = None

    def place(self, path: tuple[str | int, ...]) -> Place:
        """Line and column, from 1, of the value at `path`, or of its nearest ancestor present."""
        if self._root is None:
            self._root = _compose(self._text)
        node = self._root
        for part in path:
            child = _child(node, part)
            if child is None:
                break
            node = child
        if node is None:
            return None, None
        return node.start_mark.line + 1, node.start_mark.column + 1


def _compose(text: str) -> yaml.Node | None:
    """The YAML nodes of a JSON text, with marks; None where YAML cannot read it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = text.replace("\t", " ")  # outside strings, where JSON has no tabs
    text = _FOREIGN_TO_YAML.sub(lambda match: "?" * len(match[0]) if match[1] else match[0], text)
    try:
        return yaml.compose(text, Loader=loader)
    except (yaml.YAMLError, RecursionError):
        return None


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None


def _second(text: str, name: str) -> Place:
    """The place where a key stands for the second time in one object of the text."""
    waiting = [_compose(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            marks = [key.start_mark for key, _ in node.value if key.value == name]
            if len(marks) > 1:
                return marks[1].line + 1, marks[1].column + 1
            waiting.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
    return None, None
