"""Multilevel Picard iteration compared with published values of equations whose drivers depend on y.

Run `python -m benchmarks.picard_check [--levels 5] [--samples 4] [--repeats 16] [--dim 100] [--out FILE]`. Each
number of levels up to the last is reported; when the next one differs only by noise, the iterates have
converged. Seconds are those of the second call, after compilation. Published values: E, Han, Jentzen (2017),
for a hundred dimensions.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

from pricing.fbsde import multilevel_picard, problems

from .command import Run, parser_of, table_of

PUBLISHED = {"allen_cahn": 0.0527813, "default_risk": 57.300}


def measured(name: str, dim: int, levels: int, samples: int, repeats: int) -> dict[str, Any]:
    """Return the estimate and the seconds of one equation and number of levels."""
    problem = getattr(problems, name)(dim)
    for seed in range(2):
        start = time.perf_counter()
        settings = {"levels": levels, "samples": samples, "repeats": repeats}
        found = multilevel_picard(problem, key=jax.random.key(seed), **settings)
        value, error = float(found.mean), float(found.std_error)
        seconds = time.perf_counter() - start
    figures = {"value": value, "std_error": error, "seconds": seconds}
    return {"problem": name, "levels": levels, "published": PUBLISHED[name]} | figures


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, levels=5, samples=4, repeats=16, dim=100)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("picard_check", parser(), argv, precision="float32")
    options = run.options
    rows = [
        measured(name, options.dim, levels, options.samples, options.repeats)
        for name in PUBLISHED
        for levels in range(2, options.levels + 1)
    ]
    table = table_of("multilevel Picard iterations", *rows[0])
    for row in rows:
        table.add_row(*(f"{x:.6g}" if isinstance(x, float) else str(x) for x in row.values()))
    run.console.print(table)
    for row in rows:
        known, found = row["published"], row["value"]
        figure = f"{row['problem']}, {row['levels']} levels"
        run.answer(figure, found / known - 1.0, known, found, row["std_error"])
    run.keep({"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
