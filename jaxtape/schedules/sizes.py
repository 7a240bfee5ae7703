"""Parse sizes such as 512MiB."""

import re

_UNITS = {"": 1, "b": 1, **{p + "b": 1000 ** (i + 1) for i, p in enumerate("kmgt")}}
_UNITS |= {p + "ib": 1024 ** (i + 1) for i, p in enumerate("kmgt")}


def bytes_of(text: str) -> int:
    """Return a number of bytes, given as 1GiB, 512MiB or 2e9.

    Raises:
        ValueError: If the text is not a size, or is below 1.
    """
    match = re.fullmatch(r"([\d.]+(?:e\d+)?)\s*([kmgt]?i?b?)", text.strip().lower())
    try:
        size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size: give one such as 512MiB or 1GiB")
    return size
