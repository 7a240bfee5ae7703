"""Equations for which nothing was tuned: `solve(problem)`, its standard errors and its actual errors.

Run `python -m benchmarks.fbsde_unseen [--only CASE ...] [--max-paths 262144] [--repeat 1] [--seed 0]
[--precision float64] [--out FILE]`.

Each problem (`fbsde_unseen_problems`) is solved without naming a solver. References are closed forms,
quadrature and grids (`fbsde_references`); some are numbers, good to 1e-4 or better. "Off" is relative to the
largest entry of the reference. Prices are compared in money (x_i Delta_i, x_i x_j Gamma_ij): the scale of Delta
is at least the value over the number of spots, that of Gamma Delta over that number. A figure is right within
.2 % (value), 1 % (Delta), 5 % (Gamma); refused if its own error estimates say that it is less accurate;
silently off otherwise (OFF). z is the error of the worst entry, in standard errors. The first of the
repeated solutions compiles; times are those of the last, in seconds and in seconds of all threads.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pricing.fbsde import Tolerance, solve

from .command import Run, parser_of, table_of
from .fbsde_unseen_problems import CASES, Case

DEFAULT_TOLERANCE = Tolerance()
TIMES = "seconds", "processor_seconds"


def judged(name: str, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Compare the figures of a case with its reference."""
    with jax.enable_x64(True):
        reference = case.reference()
    problem, key, seconds, processor_seconds = case.problem(), jax.random.key(options.seed), [], []
    for _ in range(options.repeat):
        start, processor = time.perf_counter(), time.process_time()
        try:
            solution = solve(problem, key=key, max_paths=options.max_paths, throw=False)
        except RuntimeError as error:
            return {"case": name, "refused": str(error), "verdicts": ["refused"] * 3}
        seconds.append(time.perf_counter() - start)
        processor_seconds.append(time.process_time() - processor)
    found = solution.stats["certificate"]
    count = len(reference.delta)  # of the known coordinates: spots
    at = slice(count)
    known_of = (lambda x: x[at, at]) if np.ndim(reference.gamma) == 2 else lambda x: jnp.diag(x)[at]
    gamma = jax.tree.map(known_of, found.gamma)
    delta = jax.tree.map(lambda x: x[at], found.delta)
    spots = problem.x0[at] if case.amounts is None and problem.step is not None else case.amounts
    money = np.ones(count) * (1.0 if spots is None else np.asarray(spots, float))
    units = 1.0, money, known_of(np.outer(money, money))
    pairs = [
        (figure.mean * unit, figure.std_error * unit, np.asarray(true) * unit)
        for figure, unit, true in zip((found.value, delta, gamma), units, reference, strict=True)
    ]
    sizes, among = [abs(reference.value)], np.inf if spots is None else count
    for *_, derivative in pairs[1:]:
        sizes.append(max(float(np.max(np.abs(derivative))), sizes[-1] / among))
    off = [float(np.max(np.abs(m - r))) / s for (m, _, r), s in zip(pairs, sizes, strict=True)]
    z = [float(np.max(np.abs(m - r) / e)) for m, e, r in pairs]
    stated = [float(error) for error in solution.stats["errors"]]
    verdicts = [
        "right" if o <= asked else "refused" if own > asked else "OFF"
        for o, asked, own in zip(off, DEFAULT_TOLERANCE, stated, strict=True)
    ]
    solver = solution.stats["solver"]
    functions = [type(basis).__name__ for basis in getattr(solver, "bases", ())]
    times = dict(zip(TIMES, (seconds, processor_seconds), strict=True))
    row = {"case": name, "off": off, "z": z, "stated": stated, "verdicts": verdicts}
    return row | times | {"solver": type(solver).__name__, "functions": functions}


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, max_paths=2**18, repeat=1)
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--precision", choices=("float32", "float64"), default="float64")
    found.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("fbsde_unseen", parser(), argv, parser().parse_args(argv).precision)
    rows = []
    names = "value off", "Delta off", "Gamma off", "z", "s", "s of all threads", "verdicts"
    table = table_of("solve(problem), nothing named", "problem", *names)
    for name in run.options.only:
        row = judged(name, CASES[name], run.options)
        rows.append(row)
        for figure, off in zip(("value", "Delta", "Gamma"), row.get("off", ()), strict=False):
            run.answer(f"{name}, {figure}", off)
        run.console.print(f"{name}: {', '.join(row['verdicts'])}")
        off = [f"{100 * x:.2f} %" for x in row.get("off", ())] or ["", "", ""]
        z = " ".join(f"{x:.1f}" for x in row.get("z", ()))
        times = (f"{row[of][-1]:.0f}" if of in row else "" for of in TIMES)
        table.add_row(name, *off, z, *times, ", ".join(row["verdicts"]))
    run.console.print(table)
    all_right = sum(set(row["verdicts"]) == {"right"} for row in rows)
    silent = sum("OFF" in row["verdicts"] for row in rows)
    run.keep({"rows": rows}, f"{all_right} of {len(rows)} right, {silent} silently off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
