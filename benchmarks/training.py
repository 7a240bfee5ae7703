"""Ways to train the same networks, in turn: how wrong each is, its seconds, and those to compile it."""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from torch._inductor.utils import fresh_cache

from .timing import Timing, environment, interleaved

Errors = dict[str, float]  # of each figure, as a share of what it should be
Training = Callable[[int], Errors]  # of a seed


@dataclass(frozen=True)
class Row:
    """A way: its times, of which `first` compiles; of each figure the errors' mean, and the mean's error."""

    way: str
    time: Timing
    errors: dict[str, tuple[float, float]]


def take_turns(trainings: dict[str, Training], seeds: int) -> list[Row]:
    """Each training once for each seed and once before, with a seed of its own, which compiles it."""
    errors: dict[str, list[Errors]] = {way: [] for way in trainings}

    def next_of(way: str) -> Callable[[], None]:
        return lambda: errors[way].append(trainings[way](len(errors[way])))

    with fresh_cache():  # what another process compiled counts for nothing
        _, times = interleaved({way: next_of(way) for way in trainings}, seeds)
    return [Row(way, times[way], over_seeds(found)) for way, found in errors.items()]


def arguments(description: str, iterations: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--iterations", type=int, default=iterations)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser


def tell(rows: list[Row], total: int, title: str, out: Path | None, head: dict[str, Any]) -> None:
    """The first row is ours. total: iterations of one training; head: what else is kept of the run."""
    ours = rows[0].time.best
    table = Table(title=title)
    headings = "way", "seconds", "ms an iteration", "times ours", "to compile"
    for heading in (*headings, *(f"{figure}: error" for figure in rows[0].errors)):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows:
        best = row.time.best
        told = [f"{mean:+.3%} ± {error:.3%}" for mean, error in row.errors.values()]
        numbers = f"{best:.1f}", f"{1e3 * best / total:.2f}", f"{best / ours:.2f}"
        table.add_row(row.way, *numbers, f"{row.time.compile:.1f} s", *told)
    Console().print(table)
    if out is not None:
        head = environment() | {"backend": f"{jax.default_backend()}, float32"} | head
        kept = [
            {
                "way": row.way,
                "seconds": row.time.best,
                "ms": 1e3 * row.time.best / total,
                "ratio": row.time.best / ours,
                "compile": row.time.compile,
                "errors": row.errors,
            }
            for row in rows
        ]
        out.write_text(json.dumps(head | {"rows": kept}, indent=1) + "\n")


def over_seeds(found: list[Errors]) -> dict[str, tuple[float, float]]:
    """Of each figure the mean, and its standard error."""
    columns = {figure: np.array([errors[figure] for errors in found]) for figure in found[0]}
    share = len(found) ** -0.5
    return {
        figure: (float(column.mean()), float(share * column.std(ddof=1)))
        for figure, column in columns.items()
    }
