"""The sample book in single and in double precision: actual differences, and reported rounding errors.

Run `python -m benchmarks.single_precision [--every 1] [--kinds KIND ...] [--model heston] [--out FILE]`.

The book is calibrated and valued in double precision, then with devices in single precision and the rounding
error of every figure (`jaxtape.use_single_on_devices`, `risk(rounding_errors=True)`), as on a TPU. Both use the
same seed. Differences are fractions of a trade's scale: its notional, else its amount, strike or spot. Those of
Delta are multiplied by the spot. A rounding error is true if the difference is at most that, up to 1e-9 of the
scale, by which the two fits may differ. `--every N` takes one in N of the 2,000 plain options.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import jaxtape as jt
import pricing.samples
from calibration import calibrate_market
from pricing import Book, Market, RiskResult, risk

from . import sample_book
from .command import Run, parser_of, table_of

SAMPLES = Path(next(iter(pricing.samples.__path__)))
MOST, SAME = 1e-4, 1e-9  # fractions of a trade's scale


@dataclass(frozen=True)
class Compared:
    """A figure of a trade, as fractions of its scale: its difference, and the reported rounding error."""

    id: str
    kind: str
    figure: str
    difference: float
    reported: float

    @property
    def is_true(self) -> bool:
        """Whether the difference is at most the reported rounding error."""
        return self.difference <= self.reported + SAME


def compared(book: Book, market: Market, double: RiskResult, single: RiskResult) -> list[Compared]:
    """Return the comparisons of the value and the Deltas of every trade that has figures."""
    found = []
    for row, exact, rounded in zip(book.rows, double.trades, single.trades, strict=True):
        if exact.figures is None:
            continue
        assert rounded.figures is not None and rounded.rounding_errors is not None, rounded.status
        scale = scale_of(row.raw.values, market)
        sizes = {"value": 1.0} | {f"delta:{n}": level_of(n, market) for n in exact.figures.delta}
        columns = [
            {"value": x.value} | {f"delta:{name}": slope for name, slope in x.delta.items()}
            for x in (exact.figures, rounded.figures, rounded.rounding_errors)
        ]
        for name, size in sizes.items():
            in_double, in_single, reported = (size * column[name] / scale for column in columns)
            figure, difference = name.partition(":")[0], abs(in_single - in_double)
            found.append(Compared(row.id, row.type, figure, difference, reported))
    return found


def level_of(name: str, market: Market) -> float:
    """Return the spot of an underlying; 1 for a curve, whose Delta is with respect to zero rates."""
    return float(market.spot(name)) if name in (*market.equities, *market.fx) else 1.0


def scale_of(values: Any, market: Market) -> float:
    """Return the scale of one contract of a trade, in its currency, from the cells of its row."""
    given = (float(values[name]) for name in ("notional", "amount", "strike") if values.get(name))
    first = values["underlying"].partition("|")[0]
    return next(given, level_of(first, market))


def summary(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the largest differences by kind of trade and figure."""
    groups: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for row in rows:
        groups[row.kind, row.figure].append(row)
    return [
        {
            "kind": kind,
            "figure": figure,
            "trades": len({row.id for row in group}),
            "median": float(np.median([row.difference for row in group])),
            "largest": max(row.difference for row in group),
            "largest_reported": max(row.reported for row in group),
            "too_far": [row.id for row in group if row.difference > MOST],
            "untrue": [row.id for row in group if not row.is_true],
        }
        for (kind, figure), group in groups.items()
    ]


def chosen(book: Book, every: int, kinds: Sequence[str]) -> Book:
    """Return every `every`-th plain option and all other trades, restricted to some kinds."""
    plain = sum(sample_book.OPTIONS.values())
    rows = (row for place, row in enumerate(book.rows) if place >= plain or place % every == 0)
    return replace(book, rows=tuple(row for row in rows if not kinds or row.type in kinds))


def valued(book: Book, market: Market, model: Any, is_single: bool) -> tuple[RiskResult, float]:
    """Return the risk of a book, calibrated and valued in one precision, and the seconds."""
    start = time.perf_counter()
    jt.use_single_on_devices(is_single)
    try:
        models = calibrate_market(market, book, model=model)
        assert not models.failed, models.failed
        found = risk(book, models.market, models.fit, rounding_errors=is_single)
    finally:
        jt.use_single_on_devices(False)
    return found, time.perf_counter() - start


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, every=1)
    found.add_argument("--kinds", nargs="+", default=[], metavar="KIND")
    found.add_argument("--model", default="heston", choices=("heston", "black-scholes"))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("single_precision", parser(), argv, said="float64 beside float32")
    options = run.options
    market = Market.read(SAMPLES / "dax_2002-07-05.json")
    book = chosen(Book.read(SAMPLES / "dax_book.csv"), options.every, options.kinds)
    book = book.checked(market)
    double, seconds = valued(book, market, options.model, False)
    single, seconds_of_single = valued(book, market, options.model, True)
    rows = summary(compared(book, market, double, single))
    columns = (
        "trades",
        "median",
        "largest",
        "reported, largest",
        f"above {MOST:g}",
        "beyond reported",
    )
    table = table_of(
        "Differences, as fractions of a trade's scale", "kind", "figure", *columns, left=2
    )
    for row in rows:
        sizes = (f"{row[name]:.1e}" for name in ("median", "largest", "largest_reported"))
        counts = (str(len(row[name])) for name in ("too_far", "untrue"))
        table.add_row(row["kind"], row["figure"], str(row["trades"]), *sizes, *counts)
    run.console.print(table)
    worst = max(rows, key=lambda row: row["largest"])
    too_far, untrue = (sorted({x for row in rows for x in row[n]}) for n in ("too_far", "untrue"))
    headline = (
        f"largest: {worst['largest']:.1e} of the scale ({worst['figure']}, {worst['kind']}); "
        f"{len(too_far)} trades above {MOST:g}, {len(untrue)} beyond the reported error"
    )
    run.console.print(headline)
    kept = {"rows": rows, "seconds": {"double": seconds, "single": seconds_of_single}}
    run.keep({**kept, "notes": single.notes, "failed": len(double.failed)}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
