"""The networks that the one-step Malliavin scheme needs: errors by width and by form of Gamma.

Run `python -m benchmarks.malliavin_networks [--dim 10] [--iterations 400] [--paths 16384] [--batch 256]
[--seeds 3] [--forms diagonal full] [--widths DIM+10 128] [--out FILE]`. Hamilton-Jacobi-Bellman as in
`one_step_malliavin`; errors as there, the mean over seeds and its standard error.
"""

import argparse
import sys
from collections.abc import Sequence

from pricing.fbsde import problems

from .command import Run, parser_of, table_of, whole
from .malliavin_sizes import BATCH, PATHS, Size
from .one_step_malliavin import Test, by_jaxtape
from .training import over_seeds

FORMS = ["diagonal", "full"]


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, dim=10, iterations=400, paths=PATHS, batch=BATCH, seeds=3)
    found.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS, help="forms of Gamma")
    found.add_argument("--widths", type=whole, nargs="+", help="widths of hidden layers")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("malliavin_networks", parser(), argv, precision="float32")
    if run.options.seeds < 2:
        run.error("a standard error needs two seeds at least: --seeds 2")
    dim, training = run.options.dim, (run.options.iterations, run.options.paths, run.options.batch)
    test, problem, rows = Test.of(dim), problems.hjb(dim), []
    table = table_of("errors", "gamma", "width", "value", "delta", "gamma")
    for gamma in run.options.forms:
        for width in run.options.widths or (dim + 10, 128):
            size, seeds = Size(dim, width, *training), range(run.options.seeds)
            errors = over_seeds([by_jaxtape(seed, test, size, problem, gamma) for seed in seeds])
            told = [f"{mean:+.2%} ± {error:.2%}" for mean, error in errors.values()]
            table.add_row(gamma, str(width), *told)
            rows.append({"gamma": gamma, "width": width, "errors": errors})
    run.console.print(table)
    best = min(rows, key=lambda row: row["errors"]["gamma"][0])
    mean, _ = best["errors"]["gamma"]
    run.keep({"rows": rows}, f"least error of Gamma: {mean:.1%}, {best['gamma']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
