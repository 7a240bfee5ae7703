"""The most that a device does in a second, for kinds of work that are counted."""

from collections.abc import Mapping
from typing import NamedTuple

BYTES = "bytes"
FLOATS = "floating-point operations"
DOUBLES = "double-precision operations"
INTEGERS = "integer operations"
FUNCTIONS = "special functions"


class Limit(NamedTuple):
    """A limit of a device.

    Attributes:
        name: The name, such as "memory".
        kinds: The kinds of work that share it.
        per_second: The work of those kinds together that it does in a second.
    """

    name: str
    kinds: tuple[str, ...]
    per_second: float

    def seconds(self, work: Mapping[str, int]) -> float:
        """Return the time that work takes at this limit."""
        return sum(work.get(kind, 0) for kind in self.kinds) / self.per_second
