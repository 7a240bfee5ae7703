"""The cost of importing each package, compared with JAX, equinox and optax, which each needs anyway.

Run `python -m benchmarks.import_time [--repeat 7] [--out FILE]`. Every import runs in a fresh process, in turn
with the others, with modules compiled to bytecode beforehand, as for an installed package. A ratio is the
median of the rounds' ratios.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from .command import Run, parser_of, table_of

BASE = "jax, equinox, optax"
PACKAGES = "jaxtape", "pricing", "pricing.fbsde", "calibration"
AIM = 2.0


def seconds_of(modules: str, environment: dict[str, str]) -> tuple[float, float]:
    """Return the wall and processor seconds of a fresh process that imports the modules."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", f"import {modules}"]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parent.parent)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


def measured(repeat: int, bytecode: str) -> dict[str, list[tuple[float, float]]]:
    """Return wall and processor seconds of each import by round, after a process that compiles bytecode."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    seconds_of(", ".join((BASE, *PACKAGES)), environment)
    rounds = [
        {modules: seconds_of(modules, environment) for modules in (BASE, *PACKAGES)}
        for _ in range(repeat)
    ]
    return {modules: [each[modules] for each in rounds] for modules in rounds[0]}


def row_of(modules: str, times: list, base: list) -> dict[str, str | float]:
    """Return the medians of an import and of its ratios to the base."""
    wall, processor = (statistics.median(each) for each in zip(*times, strict=True))
    of_wall, of_processor = (
        statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        for ours, theirs in zip(zip(*times, strict=True), zip(*base, strict=True), strict=True)
    )
    return {
        "import": modules,
        "wall_seconds": wall,
        "processor_seconds": processor,
        "wall_ratio": of_wall,
        "processor_ratio": of_processor,
    }


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, repeat=7)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("import_time", parser(), argv)
    with tempfile.TemporaryDirectory() as bytecode:
        times = measured(run.options.repeat, bytecode)
    rows = [row_of(modules, found, times[BASE]) for modules, found in times.items()]
    table = table_of("imports in fresh processes", *rows[0])
    for row in rows:
        table.add_row(*(x if isinstance(x, str) else f"{x:.2f}" for x in row.values()))
    run.console.print(table)
    worst = max(rows[1:], key=lambda row: row["processor_ratio"])
    headline = (
        f"{worst['import']}, the longest, takes {worst['processor_ratio']:.2f} of the processor's seconds of "
        f"import {BASE} ({worst['wall_ratio']:.2f} of the wall's); at most {AIM:g} is the aim"
    )
    run.console.print(headline)
    run.keep({"aim": AIM, "rows": rows}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
