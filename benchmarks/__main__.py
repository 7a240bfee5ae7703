"""Every benchmark, each in a process of its own, and one table of how they ended.

Run `python -m benchmarks [--quick] [--only NAME ...] [--out DIR]`. `--quick` shrinks the problems. `--out`
keeps the table in that folder, as JSON and as text, named by date and machine. The exit status is not 0 if one
of them failed.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from .command import command_of, table_of, write_json
from .timing import environment

QUICK = {
    "pareto": "--steps 64 --paths 1024 --repeat 3",
    "floors": "--steps 64 --paths 1024 --slots 8 16 --repeat 3",
    "noise": "--rows 64 --columns 32768 --repeat 3",
    "heston_gradient": "--steps 64 --paths 8192 --repeat 3",
    "edits": "--repeat 20",
    "estimators": "--paths 20000 --slope-paths 16384 --repeat 1",
    "equal_accuracy": "--target 0.02 --repeat 2",
    "large_book": "--trades 200 --repeat 1",
    "main_job": "--trades 100",
    "import_time": "--repeat 2",
    "live_session": "--trades 1000 --repeat 2",
    "serve_load": "--rounds 200 --kills 1",
    "many_surfaces": "--surfaces 64 256 --peer-surfaces 8 --repeat 1",
    "many_scaling": "--most-devices 2 --surfaces 128 --a-device 64 --repeat 1",
    "quote_sensitivities": "--bumps 2 --repeat 20",
    "optimizers": "--starts 8 --repeat 2",
    "simulated_calibration": "--paths 4096 --steps 64 --megabytes 64 --repeat 2 --eager",
    "neural_sde": "--paths 1024 --training-steps 100 --test-sets 4 --repeat 2 --eager",
    "early_exercise": "--paths 8192 --repeat 1",
    "bermudan": "--repeat 2 --bumps 2",
    "fbsde_unseen": "--only call exchange --max-paths 65536",
    "deep_bsde": "--iterations 200 --seeds 1 --eager",
    "portfolio_fbsde": "--contracts 50 --paths 4096 --repeat 1 --fresh 4096 --fresh-each 1024",
    "picard_check": "--levels 4",
    "one_step_malliavin": "--dim 10 --iterations 20 --seeds 1 --eager",
    "malliavin_networks": "--dim 4 --iterations 20 --seeds 2",
    "malliavin_floor": "--dim 10 --iterations 20",
    "two_rates": "--seeds 2 --blocks 8",
    "exercise_rule": "--blocks 4",
    "quantlib_peer": "--contracts 1000 --every 8 --coarser 2 --repeat 1",
}
"""By benchmark: options that make it quick."""


@dataclass(frozen=True)
class Ended:
    """How one benchmark ended; headline: its first figure, in words."""

    benchmark: str
    status: str
    seconds: float
    headline: str = ""
    left_out: list[str] = field(default_factory=list)


def ended(name: str, options: Sequence[str], folder: Path) -> Ended:
    """Run one benchmark to its end."""
    file = folder / f"{name}.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    print(f"\n== python -m benchmarks.{name}", shlex.join(options), flush=True)
    start = time.perf_counter()
    code = subprocess.run([*command, "--out", str(file)], check=False).returncode
    seconds = time.perf_counter() - start
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    status = "ok" if code == 0 else f"failed, exit status {code}"
    return Ended(name, status, seconds, found.get("headline", ""), found.get("left_out", []))


def summary(rows: Sequence[Ended]) -> Table:
    table = table_of("benchmarks", "benchmark", "status", "headline", "left out", "seconds", left=4)
    for row in rows:
        left_out = "; ".join(text.partition(":")[0] for text in row.left_out)
        table.add_row(row.benchmark, row.status, row.headline, left_out, f"{row.seconds:.0f}")
    return table


def keep(folder: Path, head: dict, rows: Sequence[Ended], kind: str) -> None:
    """The table, as JSON and as text, in files named by date and machine."""
    machine = f"{os.cpu_count()}-cores-{jax.default_backend()}"
    file = folder / f"{date.today().isoformat()}-{kind}-{machine}.json"
    write_json(file, head | {"rows": [asdict(row) for row in rows]})
    with file.with_suffix(".txt").open("w", encoding="utf-8") as text:
        console = Console(width=140, highlight=False, markup=False, file=text)
        for name, said in head.items():
            console.print(f"{name}: {said}", soft_wrap=True)
        console.print(summary(rows))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--quick", action="store_true", help="smaller problems, fewer repeats")
    names = list(QUICK)
    found.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    found.add_argument("--out", type=Path, metavar="DIR", help="keep the table there")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    command = command_of("benchmarks", argv)
    head = environment() | {"backend": jax.default_backend(), "command": command}
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            ended(name, shlex.split(QUICK[name]) if options.quick else [], Path(folder))
            for name in options.only
        ]
    Console(width=140, highlight=False, markup=False).print(summary(rows))
    if options.out is not None:
        keep(options.out, head, rows, "quick" if options.quick else "all")
    return int(any(row.status != "ok" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
