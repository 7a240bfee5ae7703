"""Fits of Heston to the DAX surface of 5 July 2002 by each optimizer, from the standard start and random ones.

`python -m benchmarks.optimizers [--starts N] [--repeat N] [--out FILE]`. All use `calibrate`. Reported are
steps, time and loss, and the number of random starts, over wide ranges, that end at the lowest loss.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optax

import pricing.samples
from calibration import Calibration, calibrate, join_optimizers, levenberg_marquardt
from pricing import Heston, Market

from .command import Run, parser_of, table_of
from .timing import interleaved

_FEW = 8  # starts of L-BFGS: batched line searches wait for the slowest, and 100 take 5 minutes
SAMPLES = Path(next(iter(pricing.samples.__path__)))
OPTIMUM = 181.5147  # squared vol points
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Levenberg-Marquardt": (levenberg_marquardt(), {}),
    "with geodesic acceleration": (levenberg_marquardt(geodesic=True), {}),
    "Adam for 20 steps, then it": (
        join_optimizers([optax.adam(0.1), levenberg_marquardt()], [20]),
        {},
    ),
    "L-BFGS": (optax.lbfgs(), {"rtol": 1e-8}),
}
"""Name -> the optimizer and its settings in `calibrate`."""


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, starts=100, repeat=10)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("optimizers", parser(), argv)
    options = run.options
    market = Market.read(SAMPLES / "dax_2002-07-05.json")
    quotes, start = market.equities["DAX"].surface, Heston.starting_on(market, "DAX")

    starts = dict.fromkeys(WAYS, options.starts)
    starts["L-BFGS"] = min(options.starts, _FEW)

    def found(starts: dict[str, int]) -> dict[str, Any]:
        def by(name: str):
            optimizer, settings = WAYS[name]
            settings = {"throw": False, "num_starts": starts[name], **settings}
            return lambda: calibrate(quotes, start, optimizer=optimizer, **settings)

        return {name: by(name) for name in WAYS}

    one, times = interleaved(found(dict.fromkeys(WAYS, 1)), options.repeat)
    many, times_of_many = interleaved(found(starts), 1)
    rows = []
    for name in WAYS:
        single, several = one[name], many[name]
        rows.append(
            {
                "optimizer": name,
                "steps": int(single.stats["steps"]),
                "sum_squared_vol_points": _total(single),
                "seconds": times[name].best,
                "compile_seconds": times[name].compile,
                "starts": starts[name],
                "starts_at_optimum": int(several.stats["starts_at_optimum"]),
                "sum_of_the_best_start": _total(several),
                "seconds_of_starts": times_of_many[name].best,
            }
        )
    table = table_of(
        f"Heston to {quotes.vols.size} quotes; the optimum is {OPTIMUM}",
        *("optimizer", "steps", "sum", "time", "starts at it", "their time"),
    )
    for row in rows:
        table.add_row(
            row["optimizer"],
            str(row["steps"]),
            f"{row['sum_squared_vol_points']:.4f}",
            f"{1e3 * row['seconds']:.1f} ms",
            f"{row['starts_at_optimum']} of {row['starts']}",
            f"{row['seconds_of_starts']:.2f} s",
        )
    run.console.print(table)
    first = rows[0]
    headline = f"{first['starts_at_optimum']} of {options.starts} starts at the optimum by {first['optimizer']}"
    run.keep({"rows": rows}, headline)
    return 0


def _total(calibration: Calibration) -> float:
    return float(calibration.stats["sum_squared_vol_points"])


if __name__ == "__main__":
    sys.exit(main())
