"""Thousands of Bermudan contracts in one backward regression, beside one contract alone.

Run `python -m benchmarks.portfolio_fbsde [--contracts 2000] [--paths 16384] [--repeat 3] [--out FILE]`. Puts on
baskets of ten correlated assets, exercised on four dates of a year; strikes and weights are drawn. All share
paths, functions and one Gram matrix a date. Both solves take turns, compiled before, the best of the repeats is
told; a program that is compiled for one contract serves every other. Agreement: twenty contracts of the batch
beside their own solves from the same paths, as shares of the value, of the norm of Delta and of that of Gamma:
the worst is told. From other paths they differ by the noise of both solves, whatever the number of contracts.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from pricing import Basket, Bermudan, BlackScholes
from pricing.fbsde import GradientRegression, Hermite, Mean, Solution, problem_of, solve

from .timing import environment, interleaved

DIM, STEPS, COMPARED = 10, 4, 20
MODEL = BlackScholes(
    DIM * [100.0],
    0.05,
    np.linspace(0.15, 0.35, DIM),
    np.zeros(DIM),
    correlation=0.3 + 0.7 * np.eye(DIM),
)
FIGURES = "value", "delta", "gamma"


def book(count: int) -> Bermudan:
    dice = np.random.default_rng(5)
    weights, strikes = dice.dirichlet(np.ones(DIM), count), dice.uniform(85.0, 115.0, count)
    dates = np.broadcast_to(np.arange(1, 5) / 4.0, (count, 4))
    return Bermudan(Basket(strikes, np.ones(count), "put", weights=weights), dates)


@eqx.filter_jit
def figures(solution: Solution) -> dict[str, jax.Array]:
    return {name: getattr(solution, name)(0.0, MODEL.spot) for name in FIGURES}


def apart(found: dict[str, jax.Array], index: int, alone: dict[str, jax.Array]) -> list[float]:
    """Of one contract: the difference in each figure, as a share of its norm."""
    rows = [(found[name][index], alone[name]) for name in FIGURES]
    return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contracts", type=int, default=2000)
    parser.add_argument("--paths", type=int, default=16384)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    count = options.contracts
    solver = GradientRegression(options.paths, (Hermite(2, logs=True), Mean(4, above=2, logs=True)))
    puts = book(count)
    chosen = np.unique(np.linspace(0, count - 1, COMPARED).astype(int))

    def solved(product: Bermudan, key: int) -> Solution:
        return solve(problem_of(product, MODEL, STEPS), solver, key=jax.random.key(key))

    def one(index: int) -> Bermudan:
        return jax.tree.map(lambda leaf: leaf[index], puts.broadcast())

    whole = solved(puts, 0)
    first = one(0)
    solves = {"all": lambda: solved(puts, 0), "one": lambda: solved(first, 0)}
    _, times = interleaved(solves, options.repeat)
    found = figures(whole)
    differences = {
        paths: np.max([apart(found, i, figures(solved(one(i), key))) for i in chosen], axis=0)
        for paths, key in (("the same paths", 0), ("other paths", 1))
    }

    portfolio = whole.portfolio(np.ones(count))
    greeks = jax.jit(lambda x: (portfolio.delta(0.0, x), portfolio.gamma(0.0, x)))
    totals, total_times = interleaved({"total": lambda: greeks(MODEL.spot)}, 10 * options.repeat)
    sums = [
        float(np.linalg.norm(a - found[name].sum(axis=0)) / np.linalg.norm(a))
        for a, name in zip(totals["total"], FIGURES[1:], strict=True)
    ]

    share = times["all"].best / count / times["one"].best
    rows: list[dict[str, Any]] = [
        {"figure": f"seconds of {count} contracts", "found": times["all"].best},
        {"figure": "seconds of one alone", "found": times["one"].best},
        {"figure": "a contract of many, times one alone", "found": share, "aim": 0.02},
        {
            "figure": "seconds of the portfolio's Delta and Gamma",
            "found": total_times["total"].best,
        },
    ]
    for paths, worst in differences.items():
        aim = {"aim": 0.01} if paths == "the same paths" else {}
        rows += [
            {"figure": f"{name}, many beside alone, {paths}", "found": float(w)} | aim
            for name, w in zip(FIGURES, worst, strict=True)
        ]
    rows += [
        {"figure": f"{name} of the portfolio beside the sum", "found": error}
        for name, error in zip(FIGURES[1:], sums, strict=True)
    ]
    table = Table(title=f"{count} Bermudan puts on {DIM} assets, {options.paths} paths")
    for heading in ("figure", "found", "at most"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for row in rows:
        aim = f"{row['aim']:g}" if "aim" in row else ""
        table.add_row(row["figure"], f"{row['found']:.3g}", aim)
    Console().print(table)
    if options.out is not None:
        sizes = {"contracts": count, "paths": options.paths}
        head = environment() | {"command": "python -m benchmarks.portfolio_fbsde", **sizes}
        head["backend"] = f"{jax.default_backend()}, float32"
        options.out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
