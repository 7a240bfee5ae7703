"""Ten thousand mixed contracts and every quote's sensitivity: how time grows, what memory it takes.

Run `python -m benchmarks.large_book [--trades 10000] [--budget 1GiB] [--repeat 3] [--out FILE]`. A fifth of the
contracts (Asian options, barriers and double knock-outs on dates, autocallables) are valued by Monte Carlo, the
others by Fourier integrals and finite differences, under Heston, fitted to the DAX surface of the sample
market, whose curve is given 200 pillars here. Each contract has value, Delta, Gamma, vega, theta and rho; the
total has its derivative to every quote, through the fit.

Books of a tenth and of all contracts are valued in turn, their programs compiled before; the ratio of the times
is that of the best. Memory is what the process grows by at its peak, from just before the run (Linux). Then two
processes value a tenth of the book on one and on eight virtual devices, and their figures are compared.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from rich.console import Console

import pricing.samples
from calibration.commands.console import bytes_of
from calibration.commands.fitting import calibrated, fit_each
from pricing.book import Book
from pricing.market import Market, ZeroCurve
from pricing.risk import RiskResult, risk

from .timing import environment

SAMPLES = Path(next(iter(pricing.samples.__path__)))
PILLARS = 200
DEVICES = 8
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
    """The DAX of the sample market, on a curve of many pillars."""
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
    )


def book(count: int) -> Book:
    """Trades of the sample book, each kind over and over, their levels moved by up to 3 % of themselves."""
    kinds: dict[str, list[dict]] = {}
    for row in Book.read(SAMPLES / "dax_book.csv").rows:
        cells = {name: text for name, text in row.raw.values.items() if text not in ("", None)}
        kind = (
            "dated barrier" if cells.get("monitoring_dates") and row.type == "barrier" else row.type
        )
        if cells["underlying"] == "DAX":
            kinds.setdefault(kind, []).append(cells)
    dice = np.random.default_rng(20021119)
    rows = []
    for kind, share in SHARES.items():
        for index in range(round(share * count)):
            cells = dict(kinds[kind][index % len(kinds[kind])])
            scale = dice.uniform(0.97, 1.03)
            moved = {name: round(float(cells[name]) * scale, 2) for name in LEVELS if name in cells}
            rows.append(cells | moved | {"id": f"{kind}-{index}"})
    page = io.StringIO()
    writer = csv.DictWriter(page, dict.fromkeys(name for row in rows for name in row))
    writer.writeheader()
    writer.writerows(rows)
    return Book.from_text(page.getvalue())


class Peak:
    """Bytes that the process grows by, at its peak, while the block runs."""

    def __enter__(self) -> "Peak":
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: Any) -> None:
        self.bytes = _status("VmHWM") - self._before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def valued(count: int, budget: int, mesh: Mesh | None, fit: Any) -> tuple[RiskResult, float, int]:
    """Figures, seconds and peak bytes."""
    trades, quotes = book(count), market()
    start = time.perf_counter()
    with Peak() as peak:
        result = risk(trades, quotes, fit, mesh=mesh, budget=budget)
    return result, time.perf_counter() - start, peak.bytes


def columns_of(result: RiskResult) -> dict[str, np.ndarray]:
    """Each measure of all trades, and the sensitivities of the total."""
    rows = [trade.figures for trade in result.trades if trade.figures]
    found = {name: np.array([row.get(name, 0.0) for row in rows]) for name in rows[0]}
    return found | {"sensitivities": np.array(list(result.sensitivities.values()))}


def on_devices(count: int, devices: int, budget: int) -> dict[str, np.ndarray]:
    """The columns found by a process with so many virtual devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "columns.npz"
        arguments = ["--trades", str(count), "--budget", f"{budget}B", "--columns", str(file)]
        command = [sys.executable, "-m", "benchmarks.large_book", *arguments]
        subprocess.run(command, check=True, env=os.environ | {"XLA_FLAGS": flags})
        with np.load(file) as found:
            return dict(found)


def gap_of(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, relative to the figure or to a thousandth of its column's largest."""
    size = np.abs(one)
    return float(np.max(np.abs(one - other) / np.maximum(size, 1e-3 * size.max())))


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trades", type=int, default=10_000)
    parser.add_argument("--budget", type=bytes_of, default=2**30, metavar="SIZE")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--columns", type=Path, help="value the book once, write all figures here")
    return parser.parse_args()


def main() -> None:
    options = options_of()
    jax.config.update("jax_enable_x64", True)
    quotes = market()
    fit = fit_each({"DAX": calibrated(quotes, "DAX", progress=False)})
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("trades",)) if len(devices) > 1 else None
    if options.columns:
        result, *_ = valued(options.trades, options.budget, mesh, fit)
        np.savez(options.columns, **columns_of(result))
        return

    console = Console(width=120, highlight=False)
    head = environment() | {"command": f"python -m benchmarks.large_book --trades {options.trades}"}
    for name, text in head.items():
        console.print(f"{name}: {text}", soft_wrap=True)
    few, many = options.trades // 10, options.trades
    valued(few, options.budget, mesh, fit)  # compiles
    seconds: dict[int, list[float]] = {few: [], many: []}
    peaks: dict[int, int] = {few: 0, many: 0}
    for _ in range(options.repeat):
        for count in (few, many):
            result, elapsed, peak = valued(count, options.budget, mesh, fit)
            seconds[count].append(elapsed)
            peaks[count] = max(peak, peaks[count])
    one, eight = (on_devices(few, number, options.budget) for number in (1, DEVICES))
    found = {
        "trades": many,
        "by_monte_carlo": sum(trade.method == "MonteCarlo" for trade in result.trades),
        "failed": len(result.failed),
        "sensitivities": len(result.sensitivities),
        "seconds": {count: min(times) for count, times in seconds.items()},
        "ratio": min(seconds[many]) / min(seconds[few]),
        "budget_bytes": options.budget,
        "peak_bytes": peaks,
        "gaps_of_1_and_8_devices": {name: gap_of(one[name], eight[name]) for name in one},
        "parts": result.stats,
    }
    for name, number in found.items():
        console.print(f"{name}: {number}")
    if options.out:
        options.out.write_text(f"{json.dumps(head | found, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
