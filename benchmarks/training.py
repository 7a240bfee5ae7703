"""Compare ways to train the same networks, in turn: errors, seconds, compile times and memory."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .command import Run, installed, table_of
from .peak_memory import Peak
from .timing import Timing, interleaved

Errors = dict[str, float]  # the relative error of each figure
Training = Callable[[int], Errors]  # from a seed


@dataclass(frozen=True)
class Row:
    """A way: its times, of which `first` compiles, and each figure's mean error with its standard error.

    `bytes` is the peak growth of the process in one more training; None if unavailable.
    """

    way: str
    time: Timing
    errors: dict[str, tuple[float, float]]
    bytes: int | None


def take_turns(trainings: dict[str, Training], seeds: int) -> list[Row]:
    """Run each training once for each seed, once before, with a separate seed, to compile it.

    It runs once more at the end, for its memory.
    """
    errors: dict[str, list[Errors]] = {way: [] for way in trainings}

    def next_of(way: str) -> Callable[[], None]:
        return lambda: errors[way].append(trainings[way](len(errors[way])))

    with _fresh_cache():
        _, times = interleaved({way: next_of(way) for way in trainings}, seeds)
        peaks = {way: _peak(training) for way, training in trainings.items()}
    return [Row(way, times[way], over_seeds(found), peaks[way]) for way, found in errors.items()]


def _peak(training: Training) -> int | None:
    with Peak() as peak:
        training(0)
    return peak.bytes


def _fresh_cache() -> contextlib.AbstractContextManager:
    """Give `torch.compile` an empty cache, without the programs of other processes."""
    if not installed("torch"):
        return contextlib.nullcontext()
    from torch._inductor.utils import fresh_cache

    return fresh_cache()


def tell(run: Run, rows: list[Row], total: int, title: str) -> None:
    """Print and keep the rows, ours first; `total` is the number of iterations of a training."""
    ours = rows[0].time.best
    headings = "way", "seconds", "ms an iteration", "times ours", "to compile", "memory"
    table = table_of(title, *headings, *(f"{figure}: error" for figure in rows[0].errors))
    for row in rows:
        best = row.time.best
        told = [f"{mean:+.3%} ± {error:.3%}" for mean, error in row.errors.values()]
        numbers = f"{best:.1f}", f"{1e3 * best / total:.2f}", f"{best / ours:.2f}"
        memory = "" if row.bytes is None else f"{row.bytes / 1e6:.0f} MB"
        table.add_row(row.way, *numbers, f"{row.time.compile:.1f} s", memory, *told)
    run.console.print(table)
    kept = [
        {
            "way": row.way,
            "seconds": row.time.best,
            "ms": 1e3 * row.time.best / total,
            "ratio": row.time.best / ours,
            "compile": row.time.compile,
            "errors": row.errors,
            "peak_bytes": row.bytes,
        }
        for row in rows
    ]
    run.beside("", {row.way: row.time for row in rows}, {row.way: row.bytes for row in rows})
    for figure, (error, std_error) in rows[0].errors.items():
        run.answer(f"{figure}, ours, mean of the seeds", error, std_error=std_error)
    peers = [row["ratio"] for row in kept[1:]]
    run.keep({"rows": kept}, f"at least {min(peers):.1f} x as fast as PyTorch" if peers else "")


def over_seeds(found: list[Errors]) -> dict[str, tuple[float, float]]:
    """Return the mean of each figure, and its standard error."""
    columns = {figure: np.array([errors[figure] for errors in found]) for figure in found[0]}
    share = len(found) ** -0.5
    return {
        figure: (float(column.mean()), float(share * column.std(ddof=1)))
        for figure, column in columns.items()
    }
