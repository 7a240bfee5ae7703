"""Smooth equations in up to 10,000 dimensions: value, seconds and memory, compared with known values.

Run `python -m benchmarks.many_dimensions [--dims 100 1000] [--iterations 1000] [--levels 4] [--out FILE]`.

Hamilton-Jacobi-Bellman (E, Han, Jentzen (2017), section 4.3) by `DeepBSDE` with layers of 32, batches of 64 and
256 pilot paths; the reference is the Cole-Hopf transform, a Laplace transform of |x|^2 (in a hundred dimensions
the published 4.5901). Allen and Cahn's equation (section 4.2) by `multilevel_picard`; published for a hundred
dimensions. In higher dimensions, |x|^2 is nearly deterministic, u is below .01 and u^3 below 1e-6, so that u is
e^T E g(X_T), also a Laplace transform, up to a relative T u^2, 3e-5 in 1,000 dimensions.

Seconds include compilation. Memory is the peak growth of the process.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pricing.fbsde import Architecture, DeepBSDE, multilevel_picard, problems, solve

from .command import Run, parser_of, table_of, whole
from .peak_memory import Peak

ALLEN_CAHN_100 = 0.0527813


def mean_of_inverse(dim: int, scale: float, variance: float) -> float:
    """Return E[1 / (1 + scale |X|^2)] for X with independent normals of a variance, by a Laplace transform."""
    logs = np.linspace(-25.0, 5.0, 601)  # of s; the error of the trapezoidal rule is below rounding
    nodes = np.exp(logs)
    transform = (1.0 + 2.0 * scale * variance * nodes) ** (-0.5 * dim)
    return float((logs[1] - logs[0]) * np.sum(nodes * np.exp(-nodes) * transform))


def hjb(dim: int, options: argparse.Namespace) -> tuple[float, float | None, float]:
    """Return the figure, its standard error, and the known value."""
    problem = problems.hjb(dim)
    narrow = Architecture(width=32)
    solver = DeepBSDE(options.iterations, num_pilot_paths=256, architecture=narrow)
    found = solve(problem, solver, key=jax.random.key(0))
    return float(found.value(0.0, problem.x0)), None, -np.log(2.0 * mean_of_inverse(dim, 1.0, 2.0))


def allen_cahn(dim: int, options: argparse.Namespace) -> tuple[float, float | None, float]:
    """Return the figure, its standard error, and the known value."""
    found = multilevel_picard(
        problems.allen_cahn(dim), key=jax.random.key(1), levels=options.levels, repeats=16
    )
    known = ALLEN_CAHN_100 if dim == 100 else 0.5 * np.exp(0.3) * mean_of_inverse(dim, 0.2, 0.6)
    return float(found.mean), float(found.std_error), known


def measured(solved: Callable, dim: int, options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    with Peak() as peak:
        value, error, known = solved(dim, options)
    figures = {"known": known, "value": value, "std_error": error, "off": value / known - 1.0}
    measures = {"seconds": time.perf_counter() - start, "bytes": peak.bytes}
    return {"problem": solved.__name__, "dim": dim} | figures | measures


def parser() -> argparse.ArgumentParser:
    options = parser_of(__doc__, iterations=1000, levels=4)
    options.add_argument("--dims", type=whole, nargs="+", default=[100, 1000, 10000], metavar="N")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("many_dimensions", parser(), argv, precision="float32")
    rows = []
    for dim in run.options.dims:
        for solved in (allen_cahn, hjb):
            rows.append(measured(solved, dim, run.options))
    table = table_of("smooth equations in many dimensions", *rows[0])
    for row in rows:
        table.add_row(*(f"{x:.6g}" if isinstance(x, float) else str(x) for x in row.values()))
        figure = f"{row['problem']} in {row['dim']} dimensions"
        run.answer(figure, row["off"], row["known"], row["value"], row["std_error"])
    run.console.print(table)
    run.keep({"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
