"""Run benchmarks, each in its own process, and keep their figures, for `jaxtape bench`."""

import importlib
import io
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

from jaxtape.cli.main import output_file, write

from .command import backend, table_of
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
    "single_precision": "--every 100 --kinds european digital basket swap --model black-scholes",
    "first_price": "--repeat 2",
    "simulated_price": "--paths 8192 --steps 64 --block 8192 --repeat 2",
    "import_time": "--repeat 2",
    "evenings": "--trades 60 --evenings 5",
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
    "many_baskets": "--baskets 64 --assets 3",
    "book_gammas": "--contracts 50 --paths 65536 --training 4096",
    "xva": "--trades 12 --dates 12 --paths 4096 --outer 128 --inner 16 --repeat 1",
    "picard_check": "--levels 4",
    "many_dimensions": "--dims 100 --iterations 200 --levels 3",
    "one_step_malliavin": "--dim 10 --iterations 20 --seeds 1 --eager",
    "malliavin_networks": "--dim 4 --iterations 20 --seeds 2",
    "malliavin_floor": "--dim 10 --iterations 20",
    "two_rates": "--seeds 2 --blocks 8",
    "exercise_rule": "--blocks 4",
    "quantlib_peer": "--contracts 1000 --every 8 --coarser 2 --repeat 1",
}
"""The options of a quick run, by benchmark."""

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"


@dataclass(frozen=True)
class Ended:
    """The outcome of one benchmark; `headline` describes its first figure."""

    benchmark: str
    status: str
    seconds: float
    headline: str = ""
    left_out: list[str] = field(default_factory=list)


def options_of(name: str, quick: bool, repeat: int | None) -> list[str]:
    """Return the options of a benchmark; one without rounds has no `--repeat`."""
    options = shlex.split(QUICK[name]) if quick else []
    if repeat is not None:
        usual = vars(importlib.import_module(f"benchmarks.{name}").parser().parse_args([]))
        rounds = [option for option in ("repeat", "seeds") if option in usual]
        options += [word for each in rounds for word in (f"--{each}", str(repeat))]
    return options


def ended(name: str, options: Sequence[str], file: Path) -> Ended:
    """Run one benchmark to its end; write its figures to `file`, which is unchanged if there are none."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    print(f"\n== python -m benchmarks.{name}", shlex.join(options), flush=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        aside = Path(folder) / file.name
        words = [*command, "--out", str(aside)]
        code = subprocess.run(words, check=False, cwd=ROOT.parent).returncode
        seconds = time.perf_counter() - start
        found = json.loads(aside.read_text(encoding="utf-8")) if aside.exists() else {}
        if found:
            write(output_file(file), {file.name: aside.read_text(encoding="utf-8")})
    status = "ok" if code == 0 else f"failed, exit status {code}"
    return Ended(name, status, seconds, found.get("headline", ""), found.get("left_out", []))


def summary(rows: Sequence[Ended]) -> Table:
    table = table_of("benchmarks", "benchmark", "status", "headline", "left out", "seconds", left=4)
    for row in rows:
        left_out = "; ".join(text.partition(":")[0] for text in row.left_out)
        table.add_row(row.benchmark, row.status, row.headline, left_out, f"{row.seconds:.0f}")
    return table


def run(names: Sequence[str], quick: bool, repeat: int | None, out: Path | None) -> list[Ended]:
    """Run benchmarks one after another, and print a table of their outcomes.

    `out` is a folder for the figures of each, and for the table as JSON and as text, named by date and machine.
    """
    words = ["jaxtape", "bench", *names, *["--quick"] * quick]
    words += [] if repeat is None else ["--repeat", str(repeat)]
    head = environment() | {"backend": backend(), "command": shlex.join(words)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if out is None else out.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        files = {name: folder / _file_of(name.replace("_", "-")) for name in names}
        table = folder / _file_of("quick" if quick else "all")
        for file in (*files.values(), table, table.with_suffix(".txt")):
            output_file(file)  # refuses at once to replace a user's file
        rows = [ended(name, options_of(name, quick, repeat), files[name]) for name in names]
        if out is not None:
            _keep_table(table, head, rows)
    Console(width=140, highlight=False, markup=False).print(summary(rows))
    return rows


def _file_of(name: str) -> str:
    machine = f"{os.cpu_count()}-cores-{jax.default_backend()}"
    return f"{date.today().isoformat()}-{name}-{machine}.json"


def _keep_table(file: Path, head: dict, rows: Sequence[Ended]) -> None:
    figures = json.dumps(head | {"rows": [asdict(row) for row in rows]}, indent=1)
    write(output_file(file), {file.name: f"{figures}\n"})
    text = io.StringIO()
    console = Console(width=140, highlight=False, markup=False, file=text)
    for name, said in head.items():
        console.print(f"{name}: {said}", soft_wrap=True)
    console.print(summary(rows))
    words = file.with_suffix(".txt")
    write(output_file(words), {words.name: text.getvalue()})
