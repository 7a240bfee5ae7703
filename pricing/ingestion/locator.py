"""Find the lines and columns of values in a JSON text."""

import bisect
import functools
import json
import re
from collections.abc import Iterator

Place = tuple[int | None, int | None]
_BETWEEN = re.compile(r"[ \t\r\n,:]*")
_SKIM = json.JSONDecoder(parse_int=len, parse_float=len)  # the values of numbers are not needed


class Locator:
    """The places of values in valid JSON text; only the containers on the path to a value are scanned."""

    def __init__(self, text: str):
        self._text = text
        self._children = functools.cache(lambda start: {k: at for k, _, at in self._members(start)})

    def place(self, path: tuple[str | int, ...]) -> Place:
        """Return line and column, from 1, of the value at `path`, or of its nearest ancestor present."""
        start = self._next(0)
        for part in path:
            try:
                start = self._children(start)[part]
            except (KeyError, RecursionError):  # nested almost too deeply
                break
        return self._line_and_column(start)

    def second(self) -> tuple[str, Place]:
        """Return a key that occurs twice in one object, and the place of its second occurrence.

        Raises:
            ValueError: No key occurs twice.
        """
        waiting = [self._next(0)]
        while waiting:
            keys: set[str | int] = set()
            for key, start, value in self._members(waiting.pop()):
                if key in keys:
                    return str(key), self._line_and_column(start)
                keys.add(key)
                waiting.append(value)
        raise ValueError("no key appears twice")

    def _members(self, start: int) -> Iterator[tuple[str | int, int, int]]:
        """Yield each key or index of the value at `start`, the start of the key, and the start of its value."""
        text, opening, index = self._text, self._text[start], 0
        if opening not in "{[":
            return
        at = self._next(start + 1)
        while text[at] not in "}]":
            key, value = index, at
            if opening == "{":
                key, end = _SKIM.raw_decode(text, at)
                value = self._next(end)
            yield key, at, value
            at = self._next(_SKIM.raw_decode(text, value)[1])
            index += 1

    def _next(self, start: int) -> int:
        """Return the first position from `start` that is neither blank nor a separator."""
        found = _BETWEEN.match(self._text, start)
        assert found is not None  # the match may be empty
        return found.end()

    @functools.cached_property
    def _line_ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self._text)]

    def _line_and_column(self, start: int) -> Place:
        line = bisect.bisect_left(self._line_ends, start)
        before = self._line_ends[line - 1] if line else -1
        return line + 1, start - before
