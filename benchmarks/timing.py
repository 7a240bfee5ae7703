"""Time competing ways in turn, and describe the machine."""

import importlib.metadata
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "torch", "QuantLib")
_MATTERS = 1e-3  # of a column's largest figure; below it, relative differences are meaningless


@dataclass(frozen=True)
class Timing:
    """Seconds of the first call, which compiles; the best and the median of the later calls; each of those."""

    first: float
    best: float
    median: float
    runs: int
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, first: float, *later: float) -> "Timing":
        return cls(first, min(later), statistics.median(later), len(later), later)

    @property
    def by_turn(self) -> dict[int, float]:
        return dict(enumerate(self.seconds))

    @property
    def compile(self) -> float:
        """Return the seconds of the first call less those of a warm one."""
        return max(self.first - self.best, 0.0)

    @property
    def text(self) -> str:
        return f"{_seconds(self.best)} / {_seconds(self.median)}"


@dataclass(frozen=True)
class Row:
    """One task: the two times, their ratio (best to best), the aim, and the differences of the results."""

    task: str
    ours: str
    theirs: str
    our_time: Timing
    their_time: Timing
    aim: float | None = None
    differences: dict[str, tuple[float, float]] | None = None

    @property
    def ratio(self) -> float:
        return self.their_time.best / self.our_time.best


def interleaved(
    ways: dict[str, Callable[[], Any]], repeat: int
) -> tuple[dict[str, Any], dict[str, Timing]]:
    """Return each way's first result and times; ways run in turn, `repeat` times, so load slows all alike."""
    results, seconds = {}, {name: [] for name in ways}
    for _ in range(repeat + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            result = jax.block_until_ready(way())
            seconds[name].append(time.perf_counter() - start)
            results.setdefault(name, result)
    return results, {name: Timing.of(*each) for name, each in seconds.items()}


class Timed:
    """A function, its last result, and the wall and processor seconds, over all cores, of its runs."""

    threads: int | None = None  # of PyTorch; JAX uses every core

    def __init__(self, function: Callable[[], Any]):
        self.function, self.out = function, None
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self.turns: list[int] = []

    @property
    def by_turn(self) -> dict[int, float]:
        """Return the seconds of the runs made by `take_turns`, by turn."""
        return dict(zip(self.turns, self.seconds, strict=True))

    def run(self, turn: int = 0) -> None:
        """Run it, and record the seconds and the turn."""
        start, used = time.perf_counter(), time.process_time()
        self.out = jax.block_until_ready(self.function())
        self.processor.append(time.process_time() - used)
        self.seconds.append(time.perf_counter() - start)
        self.turns.append(turn)

    def forget(self) -> None:
        """Forget the seconds so far."""
        self.seconds.clear()
        self.turns.clear()
        self.processor.clear()


class Compiled(Timed):
    """A JAX program for these arguments: seconds to compile it, bytes of temporaries, its times.

    jit: what compiles it: `jt.stored_jit` for kernels, whose sweeps then share one on a GPU.
    """

    def __init__(self, function: Callable, *args, jit: Callable = jax.jit):
        start = time.perf_counter()
        compiled = jit(function).lower(*args).compile()
        super().__init__(lambda: compiled(*args))
        self.compile_seconds = time.perf_counter() - start
        self.temp_bytes = memory_of(compiled).temp_size_in_bytes


def memory_of(compiled: Any) -> Any:
    """Return the bytes of a program that `jax.jit` or `jt.stored_jit` has lowered and compiled."""
    return getattr(compiled, "compiled", compiled).memory_analysis()


def take_turns(ways: Iterable[Timed], repeat: int, budget: float = math.inf) -> None:
    """Run each way once to warm it up, and then `repeat` times, in turn, so that load slows all alike.

    A way that would take more than `budget` seconds takes part in fewer rounds, but at least two. It keeps the
    seconds of its rounds.
    """
    counts, repeat = {}, max(2, repeat)
    for way in ways:
        way.run()
        counts[way] = max(2, int(min(repeat, budget / way.seconds[-1])))
        way.forget()
    for turn in range(repeat):
        for way, count in counts.items():
            if (turn + 1) * count // repeat > turn * count // repeat:
                way.run(turn)


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the largest absolute and relative difference by figure.

    Relative differences are taken over the contracts for which theirs is at least a thousandth of the column's
    largest.
    """

    def of_one(a, b):
        a, b = np.asarray(a), np.asarray(b)
        gap, size = np.abs(a - b), np.abs(b)
        counts = size >= _MATTERS * size.max()
        return float(gap.max()), float(np.max(gap[counts] / size[counts]))

    return {name: of_one(ours[name], theirs[name]) for name in theirs}


def environment() -> dict[str, Any]:
    """Return the machine and the versions."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "load": f"{os.getloadavg()[0]:.1f} tasks wanted the cores in the minute before",
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES if _is_installed(name)},
        },
    }


def _is_installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1.0 else f"{1e3 * value:.3g} ms"
