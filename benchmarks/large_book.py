"""Ten thousand mixed contracts with sensitivities to every quote: growth of time, and memory.

Run `python -m benchmarks.large_book [--trades 10000] [--budget MIB] [--repeat 3] [--devices 8] [--kinds KIND
...] [--out FILE]`. A fifth of the contracts (Asian options, barriers and double knock-outs on dates,
autocallables) are valued by Monte Carlo, the others by Fourier integrals and finite differences, under Heston,
fitted to the DAX surface of the sample market, with a curve of 200 pillars. Each contract has value, Delta,
Gamma, vega, theta and rho; the total has its derivative with respect to every quote, through the fit.

Books of a tenth and of all contracts are valued in turn, with their programs compiled before; the ratio is that
of the best times. Memory is the peak growth of the process, from just before the run (Linux). Then two
processes value a tenth of the book on one and on eight virtual devices, and their figures are compared;
`--devices 1` skips this.
"""

import argparse
import csv
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import pricing.samples
from calibration import calibrate, fit
from pricing import Book, Heston, Market, RiskResult, ZeroCurve, risk

from .command import Run, parser_of, whole
from .peak_memory import Peak
from .sample_book import on_dax_alone

SAMPLES = Path(next(iter(pricing.samples.__path__)))
PILLARS = 200
SHARES = {
    "european": 0.62,
    "digital": 0.12,
    "barrier": 0.06,
    "asian": 0.05,
    "dated barrier": 0.05,
    "double_knock_out": 0.05,
    "autocallable": 0.05,
}
BY_MONTE_CARLO = ("asian", "dated barrier", "double_knock_out", "autocallable")
LEVELS = ("strike", "barrier", "lower", "upper", "protection", "initial_spot")


def market() -> Market:
    """Return the DAX of the sample market, on a curve with many pillars."""
    found = Market.read(SAMPLES / "dax_2002-07-05.json")
    equity = found.equities["DAX"]
    curve = found.curves[equity.curve]
    times = np.linspace(1.0 / 12.0, float(curve.times[-1]), PILLARS)
    rates = -jnp.log(jax.vmap(curve.discount)(jnp.asarray(times))) / times
    named = f"['{equity.curve}'].zero_rates"
    labels = tuple(
        (path, tuple(f"ZERO/{t:.4f}" for t in times) if path.endswith(named) else ids)
        for path, ids in found.labels
    )
    return replace(
        found,
        curves={equity.curve: ZeroCurve(times, rates)},
        equities={"DAX": equity},
        correlations={},
        swaption_vols=None,
        labels=labels,
        fixings=(),
        fx={},
    )


def book(count: int, chosen: Sequence[str]) -> Book:
    """Return trades of the sample book, repeated, with levels moved by up to 3 %."""
    kinds: dict[str, list[dict]] = {}
    for row in on_dax_alone(Book.read(SAMPLES / "dax_book.csv")).rows:
        cells = {name: text for name, text in row.raw.values.items() if text not in ("", None)}
        kind = (
            "dated barrier" if cells.get("monitoring_dates") and row.type == "barrier" else row.type
        )
        kinds.setdefault(kind, []).append(cells)
    dice = np.random.default_rng(20021119)
    rows = []
    total = sum(SHARES[kind] for kind in chosen)
    for kind in chosen:
        for index in range(round(SHARES[kind] / total * count)):
            cells = dict(kinds[kind][index % len(kinds[kind])])
            scale = dice.uniform(0.97, 1.03)
            moved = {name: round(float(cells[name]) * scale, 2) for name in LEVELS if name in cells}
            rows.append(cells | moved | {"id": f"{kind}-{index}"})
    page = io.StringIO()
    writer = csv.DictWriter(page, dict.fromkeys(name for row in rows for name in row))
    writer.writeheader()
    writer.writerows(rows)
    return Book.from_text(page.getvalue())


class Valuer:
    """A valuer of books with any number of trades of these kinds, within a budget, on all devices."""

    def __init__(self, options):
        self.options, self.market = options, market()
        start = Heston.starting_on(self.market, "DAX")
        self.fit = fit(calibrate(self.market.equities["DAX"].surface, start).model)
        devices = jax.devices()
        self.mesh = Mesh(np.array(devices), ("trades",)) if len(devices) > 1 else None

    def __call__(self, count: int) -> tuple[RiskResult, float, int | None]:
        """Return figures, seconds and peak bytes."""
        trades = book(count, self.options.kinds)
        start = time.perf_counter()
        with Peak() as peak:
            budget = self.options.budget * 2**20
            result = risk(trades, self.market, self.fit, mesh=self.mesh, budget=budget)
        return result, time.perf_counter() - start, peak.bytes


def columns_of(result: RiskResult) -> dict[str, np.ndarray]:
    """Return each measure of all trades, and the sensitivities of the total."""
    rows = [vars(trade.figures) for trade in result.trades if trade.figures]
    numbers = {name: [jax.tree.leaves(row[name]) or [0.0] for row in rows] for name in rows[0]}
    errors = [trade.std_errors.value for trade in result.trades if trade.figures]
    found = {name: np.array(column) for name, column in numbers.items()}
    return (
        found
        | {"std_error": np.array(errors)}
        | {"sensitivities": np.array(list(result.sensitivities.values()))}
    )


def on_devices(count: int, devices: int, options) -> dict[str, np.ndarray]:
    """Return the columns from a process with `devices` virtual devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "columns.npz"
        arguments = ["--trades", str(count), "--budget", str(options.budget)]
        arguments += ["--columns", str(file), "--kinds", *options.kinds]
        command = [sys.executable, "-m", "benchmarks.large_book", *arguments]
        subprocess.run(command, check=True, env=os.environ | {"XLA_FLAGS": flags})
        with np.load(file) as found:
            return dict(found)


def gap_of(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference, relative to the figure or to a thousandth of its column's largest."""
    size = np.abs(one)
    return float(np.max(np.abs(one - other) / np.maximum(size, 1e-3 * size.max())))


def measured(valuer: Valuer, few: int, many: int, repeat: int) -> dict[str, Any]:
    """Return seconds and peaks of both books, and the figures of the larger one."""
    valuer(few)  # compiles
    seconds: dict[int, list[float]] = {few: [], many: []}
    peaks: dict[int, list[int | None]] = {few: [], many: []}
    for _ in range(repeat):
        for count in (few, many):
            result, elapsed, peak = valuer(count)
            seconds[count].append(elapsed)
            peaks[count].append(peak)
    return {
        "trades": many,
        "by_monte_carlo": sum(trade.method == "MonteCarlo" for trade in result.trades),
        "failed": len(result.failed),
        "sensitivities": len(result.sensitivities),
        "seconds": {count: min(times) for count, times in seconds.items()},
        "ratio": min(seconds[many]) / min(seconds[few]),
        "budget_bytes": valuer.options.budget * 2**20,
        "peak_bytes": {n: None if None in sizes else max(sizes) for n, sizes in peaks.items()},
        "parts": result.stats,
    }


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, trades=10_000, repeat=3, budget=1024)
    found.add_argument(
        "--kinds", nargs="+", choices=list(SHARES), default=list(SHARES), metavar="KIND"
    )
    found.add_argument(
        "--devices", type=whole, default=8, dest="compared", help="to compare with one"
    )
    # for its own processes: value the book once, write all figures here
    found.add_argument("--columns", type=Path, help=argparse.SUPPRESS)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("large_book", parser(), argv, width=120)
    options, valuer = run.options, Valuer(run.options)
    if options.columns:
        np.savez(options.columns, **columns_of(valuer(options.trades)[0]))
        return 0
    few = max(1, options.trades // 10)
    found = measured(valuer, few, options.trades, options.repeat)
    if options.compared > 1:
        one, several = (on_devices(few, number, options) for number in (1, options.compared))
        gaps = {name: gap_of(one[name], several[name]) for name in one}
        found[f"gaps_of_1_and_{options.compared}_devices"] = gaps
    for name, number in found.items():
        run.console.print(f"{name}: {number}")
    seconds = found["seconds"][options.trades]
    headline = (
        f"{options.trades:,} trades in {seconds:.1f} s, {found['ratio']:.1f} x a tenth of them"
    )
    run.keep(found, headline)
    return int(found["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
