"""The main job: `jaxtape risk`, cold, warm, on another book, and again in the same process; and other commands.

Run `python -m benchmarks.main_job [--trades 2112] [--repeat 1]
[--model heston] [--only RUN ...] [--out FILE]`.

A cold run starts with an empty cache. The warm run is a second process with the first one's cache. The other
book has other strikes, expiries and counts of each kind, and its market another spot, other vols and other
rates; it is valued with the cache of the first book. The last rows are a second and a third call in one
process, which need no tracing or compilation: the CPU seconds of the third are the computation. `calibrate` and
`solve` are the second processes of `jaxtape calibrate` on the market's DAX and of `jaxtape solve allen-cahn`,
whose computation is the training.

Wall seconds are by stage, as reported by the command; the import is the time before it. Seconds of tracing,
lowering, compiling and of reading the cache are JAX's own, summed over threads.
"""

import argparse
import collections
import contextlib
import csv
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jax

import pricing.samples

from .command import Run, parser_of, table_of

SAMPLES = Path(next(iter(pricing.samples.__path__)))
BOOK, MARKET = SAMPLES / "dax_book.csv", SAMPLES / "dax_2002-07-05.json"
EVENTS = {
    "trace": "/jax/core/compile/jaxpr_trace_duration",
    "lower": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "compile": "/jax/core/compile/backend_compile_duration",
    "cache": "/jax/compilation_cache/cache_retrieval_time_sec",
}
MISSES = "/jax/compilation_cache/cache_misses"
STAGES = {
    "read": r"^read ",
    "calibrate": r"^calibrated ",
    "value": r"^valued ",
    "write": r"^wrote ",
}
PLAIN = ("european", "digital", "barrier", "american")
RUNS = ("cold", "warm", "another book", "second call", "third call", "calibrate", "solve")
LEVELS = ("strike", "barrier", "lower", "upper", "protection", "initial_spot")


def cut(source: Path, file: Path, count: int, moved: bool) -> None:
    """Write `count` trades of a book, over all its kinds; `moved` moves levels by up to 3 % and omits some."""
    with source.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        rows, names = list(reader), list(reader.fieldnames or ())
    dice = random.Random(20261123)
    rows = [rows[index * len(rows) // count] for index in range(min(count, len(rows)))]
    if moved:
        rows = [row for row in rows if dice.random() < 0.95]
        for row in rows:
            scale = 0.97 + 0.06 * dice.random()
            row |= {name: f"{float(row[name]) * scale:.2f}" for name in LEVELS if row.get(name)}
            row["quantity"] = str(1 + int(100 * dice.random()))
            if row["type"] in PLAIN and not row["monitoring_dates"]:
                days = timedelta(1 + int(5 * dice.random()))
                row["expiry"] = str(date.fromisoformat(row["expiry"]) + days)
    page = io.StringIO()
    writer = csv.DictWriter(page, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    file.write_text(page.getvalue(), encoding="utf-8")


def moved_market(file: Path) -> None:
    """Write the sample market with another spot, other vols and other rates."""
    market = json.loads(MARKET.read_text(encoding="utf-8"))

    def scaled(numbers: Any, factor: float) -> Any:
        many = isinstance(numbers, list)
        return [scaled(each, factor) for each in numbers] if many else numbers * factor

    for equity in market["equities"].values():
        equity["spot"] *= 0.98
        vols = equity["implied_vols"]
        vols["vols_by_expiry"] = scaled(vols["vols_by_expiry"], 1.05)
    for curve in market["curves"].values():
        curve["zero_rates"] = scaled(curve["zero_rates"], 1.02)
    file.write_text(json.dumps(market), encoding="utf-8")


def child(options) -> int:
    """Run the command in this process, several times, and print the time of each call, as JSON."""
    seconds: collections.Counter = collections.Counter()
    names = {event: name for name, event in EVENTS.items()}

    def on_duration(event: str, length: float, **_: Any) -> None:
        if event in names:
            seconds[names[event]] += length

    def on_event(event: str, **_: Any) -> None:
        seconds["programs"] += event == MISSES

    jax.monitoring.register_event_duration_secs_listener(on_duration)
    jax.monitoring.register_event_listener(on_event)
    (command,) = entry_points(group="console_scripts", name="jaxtape")
    main = command.load()
    began, found = options.began, []
    for _ in range(options.calls):
        seconds.clear()
        start, used, told = time.time(), time.process_time(), io.StringIO()
        sys.argv = ["jaxtape", *json.loads(options.command)]
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as ended:
                status = ended.code or 0
        row = {
            "wall": time.time() - (began or start),
            "cpu": time.process_time() - used * (not began),
        }
        row |= {"import": start - began if began else 0.0, "status": status}
        for name, pattern in STAGES.items():
            lines = re.findall(rf"{pattern}.*\(([\d.]+) s\)$", told.getvalue(), re.M)
            row[name] = sum(map(float, lines))
        parts = re.search(r"fit ([\d.]+) s, sweep ([\d.]+) s, pullback ([\d.]+) s", told.getvalue())
        row |= (
            dict(zip(("fit", "sweep", "pullback"), map(float, parts.groups()), strict=True))
            if parts
            else {}
        )
        found.append(row | {name: seconds[name] for name in (*EVENTS, "programs")})
        began = None
    print(json.dumps(found))
    return 0


class Job:
    """Commands in separate processes that share a cache."""

    def __init__(self, folder: Path, model: str):
        self.cache, self.model, self.out = folder / "cache", model, folder / "out"

    def risk(self, book: Path, market: Path, calls: int = 1) -> list[dict[str, Any]]:
        """Return the times of `calls` calls in one process."""
        files = "--trades", str(book), "--market", str(market), "--model", self.model
        return self.run("risk", *files, "--out", str(self.out), calls=calls)

    def calibrate(self) -> dict[str, Any]:
        """Return the times of a second process that calibrates the DAX."""
        files = "--market", str(MARKET), "--underlying", "DAX", "--out", str(self.out)
        return [self.run("calibrate", *files)[0] for _ in range(2)][-1]

    def solve(self) -> dict[str, Any]:
        """Return the times of a second process that solves an equation, and the part of the training."""
        file, seeds = self.out.with_suffix(".json"), 5
        arguments = "solve", "allen-cahn", "--seeds", str(seeds), "--out", str(file)
        row = [self.run(*arguments)[0] for _ in range(2)][-1]
        return row | {"train": seeds * json.loads(file.read_text())[0]["seconds"]}

    def run(self, *arguments: str, calls: int = 1) -> list[dict[str, Any]]:
        """Return the times of `calls` calls of a command in one process."""
        command = [sys.executable, "-m", "benchmarks.main_job", "--command", json.dumps(arguments)]
        command += ["--calls", str(calls), "--began", str(time.time())]
        environment = os.environ | {"JAXTAPE_CACHE": str(self.cache)}
        ran = subprocess.run(
            command, check=True, env=environment, stdout=subprocess.PIPE, text=True
        )
        return json.loads(ran.stdout.splitlines()[-1])


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, trades=2112, repeat=1)
    found.add_argument("--model", default="heston", help="of equities: heston or black-scholes")
    found.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), metavar="RUN")
    # for its own processes
    found.add_argument("--command", help=argparse.SUPPRESS)
    found.add_argument("--calls", type=int, default=1, help=argparse.SUPPRESS)
    found.add_argument("--began", type=float, help=argparse.SUPPRESS)
    return found


def measured(folder: Path, options) -> list[dict[str, Any]]:
    """Return a row for each requested run; for the warm ones, the best."""
    book, other, market = folder / "book.csv", folder / "other.csv", folder / "market.json"
    cut(BOOK, book, options.trades, moved=False)
    cut(BOOK, other, options.trades, moved=True)
    moved_market(market)
    job, rows = Job(folder, options.model), {}
    if set(RUNS[:5]) & set(options.only):
        rows["cold"] = job.risk(book, MARKET)[0]
    if "warm" in options.only:
        warm = (job.risk(book, MARKET)[0] for _ in range(options.repeat))
        rows["warm"] = min(warm, key=lambda row: row["wall"])
    if "another book" in options.only:
        rows["another book"] = job.risk(other, market)[0]
    if {"second call", "third call"} & set(options.only):
        _, rows["second call"], rows["third call"] = job.risk(book, MARKET, calls=3)
    rows |= {name: getattr(job, name)() for name in RUNS[5:] if name in options.only}
    return [{"run": name, **row} for name, row in rows.items() if name in options.only]


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.command:
        return child(options)
    run = Run("main_job", parser(), argv, width=160)
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(Path(folder), run.options)
    columns = (
        "wall",
        "cpu",
        "import",
        "read",
        "calibrate",
        "value",
        "fit",
        "sweep",
        "pullback",
        "train",
        "write",
    )
    columns += (*EVENTS, "programs")
    table = table_of("seconds; programs: those compiled", "run", *columns)
    for row in rows:
        numbers = (f"{row.get(name, 0.0):.1f}" for name in columns[:-1])
        table.add_row(row["run"], *numbers, str(row["programs"]))
    run.console.print(table)
    headline = ", ".join(f"{row['run']} {row['wall']:.1f} s" for row in rows)
    run.keep({"rows": rows}, headline)
    return int(any(row["status"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
