"""Escape control characters, bidirectional controls and surrogates in printed text."""

import re

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters, line and paragraph separators
    "\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\ud800-\udfff]"  # unpaired surrogates, which UTF-8 cannot encode
)


def control_character(text: str) -> str | None:
    """Return the code of the first such character of a text, such as `U+001B`, or None."""
    found = _CONTROL.search(text)
    return f"U+{ord(found[0]):04X}" if found else None


def escaped(text: str) -> str:
    r"""Return the text with such characters written as in Python, `\x1b`: one line, which can be encoded."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
