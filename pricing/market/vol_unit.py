"""The display unit of vol differences: vol points, or basis points for normal vols."""

from typing import Any, NamedTuple


class VolUnit(NamedTuple):
    """A unit for vol differences.

    Attributes:
        key: Its name in files, such as "vol_points".
        words: Its name for readers.
        per_one: The number of units in a vol of 1.00.
    """

    key: str
    words: str
    per_one: float


VOL_POINTS = VolUnit("vol_points", "vol points", 100.0)
BASIS_POINTS = VolUnit("bp", "bp", 1e4)


def vol_unit(quotes: Any) -> VolUnit:
    """Return the unit of residuals of quotes: basis points if the vols are normal."""
    return BASIS_POINTS if getattr(quotes, "kind", None) == "normal" else VOL_POINTS
