"""Limits of paths, time and memory for `solve` without a named solver."""

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SolveLimits:
    """Limits of a solution.

    Attributes:
        max_paths: Maximum number of paths of a certificate.
        max_seconds: The time in which all is expected to end; None for any.
        budget: The memory of trainings and certificates, in bytes; None for any.
        started: The start of the time.

    Raises:
        ValueError: One of them is not above zero.
    """

    max_paths: int
    max_seconds: float | int | None = None
    budget: float | int | None = None
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self):
        for name, number in self._given().items():
            if not number > 0:
                raise ValueError(f"{name}={number}: give a number above zero.")

    def _given(self) -> dict[str, float | int]:
        limits = {name: getattr(self, name) for name in ("max_paths", "max_seconds", "budget")}
        return {name: number for name, number in limits.items() if number is not None}

    @property
    def summary(self) -> str:
        """The limits that are given, in words."""
        return ", ".join(f"{name}={number:g}" for name, number in self._given().items())

    @property
    def seconds_left(self) -> float:
        """The time that is left, infinite where there is no limit."""
        if self.max_seconds is None:
            return math.inf
        return self.started + self.max_seconds - time.perf_counter()

    def certificate_paths(self, wanted: float, least: int, affordable: float) -> int:
        """Return a power of two of paths: those wanted or affordable, the fewer, but at least `least`."""
        count = 2 ** math.ceil(math.log2(wanted + 1.0))
        while count > max(least, affordable):
            count //= 2
        return min(max(count, least), self.max_paths)
