"""Books, barriers and a calibration beside QuantLib: differences, times and ratios.

Run `python -m benchmarks.quantlib_peer [--quick] [--out FILE]`. One process; the ways run in turn, warmed up.
QuantLib runs on one core; JAX takes every core it is given (`taskset -c 0` gives it one).
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from pricing import Book, Market

from .quantlib_black_scholes import black_scholes_rows
from .quantlib_heston import calibration_row, heston_rows, sweep_facts
from .quantlib_objects import MEASURES
from .timing import Row, environment

SAMPLES = Path(__file__).parents[1] / "pricing" / "samples"


def times_table(rows: list[Row]) -> Table:
    table = Table(title="seconds, best / median; ratio: QuantLib's best over ours")
    for column in ("task", "ours", "QuantLib", "our time", "compile", "its time", "ratio", "aim"):
        table.add_column(
            column, justify="left" if column in ("task", "ours", "QuantLib") else "right"
        )
    for row in rows:
        aim = f">= {row.aim:g}" if row.aim else ""
        table.add_row(
            *(row.task, row.ours, row.theirs, row.our_time.text, f"{row.our_time.compile:.1f} s"),
            *(row.their_time.text, f"{row.ratio:.1f}", aim),
        )
    return table


def differences_table(rows: list[Row]) -> Table:
    table = Table(title="largest difference from QuantLib: absolute (relative)")
    for column in ("task", "QuantLib", *MEASURES):
        table.add_column(column, justify="left" if column in ("task", "QuantLib") else "right")
    for row in rows:
        if row.differences:
            cells = (f"{a:.1e} ({r:.1e})" for a, r in map(row.differences.get, MEASURES))
            table.add_row(row.task, row.theirs, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer contracts, fewer repeats")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    console, quick = Console(width=160, highlight=False), options.quick
    head = environment() | {"command": "python -m benchmarks.quantlib_peer" + " --quick" * quick}
    for name, text in head.items():
        console.print(f"{name}: {text}", soft_wrap=True)

    market, book = Market.read(SAMPLES / "dax_2002-07-05.json"), Book.read(SAMPLES / "dax_book.csv")
    rows = black_scholes_rows(1_000 if quick else 10_000, 3 if quick else 15)
    row, facts, model = calibration_row(market, 3 if quick else 9)
    heston, more = heston_rows(book, market, model, 1 if quick else 3, quick)
    rows += [*heston, row]
    facts |= more | sweep_facts(book, market, model, 1 if quick else 4)
    console.print(times_table(rows), differences_table(rows))
    for name, text in facts.items():
        console.print(f"{name}: {text}", soft_wrap=True)
    if options.out:
        figures = [{**asdict(row), "ratio": row.ratio} for row in rows]
        text = json.dumps(head | {"rows": figures, "facts": facts}, indent=1)
        options.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
