"""Books, barriers and a calibration compared with QuantLib: differences, times and ratios.

Run `python -m benchmarks.quantlib_peer [--contracts 10000] [--every 1] [--judged 8] [--coarser 1] [--repeat 3]
[--parts black-scholes heston] [--out FILE]`. `--contracts` is their number under Black-Scholes; under Heston,
every `--every`-th trade of the sample book is used. `--judged` barriers are compared with fine grids, which
`--coarser` coarsens by a factor. Light jobs run several times `repeat`. All run in one process, in turn, warmed
up. QuantLib runs on one core; JAX uses every core available (`taskset -c 0` leaves it one).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.table import Table

from pricing import Book, Market

from .command import Run, parser_of, table_of
from .sample_book import on_dax_alone
from .timing import Row

MEASURES = ("value", "delta", "gamma", "vega")
PARTS = ["black-scholes", "heston"]  # and the calibration, which is light
SAMPLES = Path(__file__).parents[1] / "pricing" / "samples"


def times_table(rows: list[Row]) -> Table:
    columns = ("task", "ours", "QuantLib", "our time", "compile", "its time", "ratio", "aim")
    title = "seconds, best / median; ratio: QuantLib's best over ours"
    table = table_of(title, *columns, left=3)
    for row in rows:
        aim = f">= {row.aim:g}" if row.aim else ""
        table.add_row(
            *(row.task, row.ours, row.theirs, row.our_time.text, f"{row.our_time.compile:.1f} s"),
            *(row.their_time.text, f"{row.ratio:.1f}", aim),
        )
    return table


def differences_table(rows: list[Row]) -> Table:
    title = "largest difference from QuantLib: absolute (relative)"
    table = table_of(title, "task", "QuantLib", *MEASURES, left=2)
    for row in rows:
        if row.differences:
            cells = (f"{a:.1e} ({r:.1e})" for a, r in map(row.differences.__getitem__, MEASURES))
            table.add_row(row.task, row.theirs, *cells)
    return table


def sample() -> tuple[Market, Book]:
    """Return the trades of the sample book on the DAX, and the sample market with only the DAX."""
    whole = Market.read(SAMPLES / "dax_2002-07-05.json")
    dax = {"DAX": whole.equities["DAX"]}
    parts = {
        "curves": {"EUR": whole.curves["EUR"]},
        "curve_currencies": (),
        "fixings": (),
        "fx": {},
    }
    market = replace(whole, equities=dax, correlations={}, swaption_vols=None, **parts)
    return market, on_dax_alone(Book.read(SAMPLES / "dax_book.csv"))


def measured(options) -> tuple[list[Row], dict[str, str]]:
    """Return the rows of all tasks, and additional facts."""
    from .quantlib_black_scholes import black_scholes_rows
    from .quantlib_heston import Sides, calibration_row, heston_rows, sweep_facts

    market, book = sample()
    rows, facts = [], {}
    if "black-scholes" in options.parts:
        rows += black_scholes_rows(options.contracts, 5 * options.repeat)
    row, facts, model = calibration_row(market, 3 * options.repeat)
    if "heston" in options.parts:
        sides = Sides.of(market, model)
        sizes = options.every, options.judged, options.coarser
        heston, more = heston_rows(book, sides, options.repeat, *sizes)
        facts |= more | sweep_facts(book, sides, 1 + options.repeat, options.every)
        rows += heston
    return [*rows, row], facts


def parser() -> argparse.ArgumentParser:
    sizes = {"contracts": 10_000, "every": 1, "judged": 8, "coarser": 1}
    found = parser_of(__doc__, **sizes, repeat=3)
    found.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("quantlib_peer", parser(), argv, width=160)
    rows, facts = measured(run.options) if run.has("QuantLib") else ([], {})
    if rows:
        run.console.print(times_table(rows), differences_table(rows))
    for name, text in facts.items():
        run.console.print(f"{name}: {text}", soft_wrap=True)
    for row in rows:
        run.beside(f"{row.task}: {row.ours}", {"jaxtape": row.our_time, row.theirs: row.their_time})
        for figure, (_, relative) in (row.differences or {}).items():
            run.answer(f"{row.task}: {figure}, largest difference from {row.theirs}", relative)
    ratios = [f"{row.task} {row.ratio:.1f}" for row in rows if row.aim]
    figures = [{**asdict(row), "ratio": row.ratio} for row in rows]
    headline = f"times as fast: {', '.join(ratios)}" if ratios else ""
    run.keep({"rows": figures, "facts": facts}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
