"""The peak rates of a device for the kinds of work that are counted."""

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
        kinds: The kinds of work that share the limit.
        per_second: The total work of those kinds per second.
    """

    name: str
    kinds: tuple[str, ...]
    per_second: float

    def seconds(self, work: Mapping[str, int]) -> float:
        """Return the time that the work takes at this limit."""
        return sum(work.get(kind, 0) for kind in self.kinds) / self.per_second
