"""Limits of paths, time and memory for `solve` without a named solver."""

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SolveLimits:
    """Limits for `solve`.

    Attributes:
        max_paths: The maximum number of paths of a certificate.
        max_seconds: The time budget in seconds; None for no limit.
        budget: The memory budget of trainings and certificates in bytes; None for no limit.
        started: The start time.

    Raises:
        ValueError: A limit is not above zero.
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
        """The given limits, in words."""
        return ", ".join(f"{name}={number:g}" for name, number in self._given().items())

    @property
    def seconds_left(self) -> float:
        """The remaining time, infinite without a limit."""
        if self.max_seconds is None:
            return math.inf
        return self.started + self.max_seconds - time.perf_counter()

    def certificate_paths(self, wanted: float, least: int, affordable: float) -> int:
        """Return the number of paths, a power of two: the smaller of wanted and affordable, or `least`."""
        count = 2 ** math.ceil(math.log2(wanted + 1.0))
        while count > max(least, affordable):
            count //= 2
        return min(max(count, least), self.max_paths)
