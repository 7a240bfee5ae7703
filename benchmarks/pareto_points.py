"""The rows of the Pareto figure, and their summary by case."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

OURS = "jaxtape"
AIMS = {"given": 2.0, "drawn": 1.4}  # our speed relative to equinox's at equal slots
MEMORY_AIM = 0.7


@dataclass(frozen=True)
class Point:
    """One row: a way to compute the gradient, its times, its temporaries and the error of its gradient.

    `error` is the largest relative difference from jaxtape's gradient for the same normals; `threads` is
    PyTorch's number, None for JAX, which uses every core.
    """

    system: str
    label: str
    slots: int | None
    seconds: float
    median: float
    runs: int
    temp_bytes: int
    compile_seconds: float
    threads: int | None
    gradient: tuple[float, ...]
    error: float

    @property
    def name(self) -> str:
        return f"{self.system}, {self.label}"


@dataclass(frozen=True)
class Case:
    """The rows of one problem, and the reasons why others are missing."""

    title: str
    steps: int
    paths: int
    noise: str
    state_bytes: int
    points: list[Point]
    left_out: list[str]

    @property
    def ours(self) -> list[Point]:
        return [point for point in self.points if point.system == OURS]

    @property
    def peers(self) -> list[Point]:
        return [point for point in self.points if point.system != OURS]


def quickest_within(points: Iterable[Point], temp_bytes: int) -> Point | None:
    """Return the fastest of those that need no more bytes."""
    fit = [point for point in points if point.temp_bytes <= temp_bytes]
    return min(fit, key=lambda point: point.seconds, default=None)


def undominated(case: Case) -> list[str]:
    """Describe the peer rows that none of our rows dominates in bytes and time, each with our nearest row."""
    lines = []
    for peer in case.peers:
        nearest = quickest_within(case.ours, peer.temp_bytes)
        if nearest is None:
            lines.append(f"{peer.name}: no row of ours in as few bytes")
        elif nearest.seconds > peer.seconds:
            times, bytes_ = _ratios(nearest, peer)
            lines.append(
                f"{peer.name}: {nearest.label} takes {times:.2f} x its time, {bytes_:.2f} x its bytes"
            )
    return lines


def beside_equinox(case: Case) -> list[tuple[int, float, float]]:
    """Return slots, equinox's time over ours, and our bytes over equinox's, at equal numbers of slots."""
    theirs = {p.slots: p for p in case.peers if p.system == "equinox" and p.slots}
    pairs = [(p.slots, p, theirs[p.slots]) for p in case.ours if p.slots in theirs]
    return [
        (slots, b.seconds / a.seconds, a.temp_bytes / b.temp_bytes)
        for slots, a, b in pairs
        if slots
    ]


def summary(case: Case) -> dict:
    """Return the two aims, and whether they were met."""
    open_rows, pairs = undominated(case), beside_equinox(case)
    aim = AIMS[case.noise]
    return {
        "peer rows": len(case.peers),
        "peer rows that no row of ours dominates": open_rows,
        "at equal slots: slots, equinox's time over ours, our bytes over equinox's": pairs,
        f"at least {aim} x as fast as equinox": all(speed >= aim for _, speed, _ in pairs),
        f"at most {MEMORY_AIM} of its bytes": all(memory <= MEMORY_AIM for *_, memory in pairs),
        "largest error": max((point.error for point in case.points), default=math.nan),
    }


def _ratios(a: Point, b: Point) -> tuple[float, float]:
    return a.seconds / b.seconds, a.temp_bytes / b.temp_bytes
