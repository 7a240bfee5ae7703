"""Thousands of Bermudan contracts in one backward regression, compared with a single contract.

Run `python -m benchmarks.portfolio_fbsde [--contracts 2000] [--paths 16384] [--repeat 3] [--fresh 16384]
[--fresh-each 4096] [--out FILE]`. Puts on baskets of ten correlated assets, exercisable on four dates of a
year, with random strikes and weights. All share paths, basis functions and one Gram matrix per date. Both
solves take turns (compiled before; the best of the repeats). A program compiled for one contract serves every
other. Agreement: twenty contracts of the batch are compared with their own solves on the same paths, relative
to the value and to the norms of Delta and Gamma; the worst is reported. On other paths they differ by the noise
of both solves, whatever the number of contracts. Figures of a long-short portfolio, and of each contract, are
certified on fresh paths. Standard errors are the largest over the entries, relative to the largest entry; for
contracts, the median and the worst are reported.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from pricing import Basket, Bermudan, BlackScholes
from pricing.fbsde import (
    GradientRegression,
    Hermite,
    MeanPolynomials,
    Solution,
    certify,
    from_product,
    solve,
)

from .command import Run, parser_of, table_of
from .timing import interleaved

DIM, STEPS, COMPARED = 10, 4, 20
FIGURES = "value", "delta", "gamma"

Figure = dict[str, Any]


def model() -> BlackScholes:
    vols, correlation = np.linspace(0.15, 0.35, DIM), 0.3 + 0.7 * np.eye(DIM)
    return BlackScholes(DIM * [100.0], 0.05, vols, np.zeros(DIM), asset_correlation=correlation)


def book(count: int) -> Bermudan:
    dice = np.random.default_rng(5)
    weights, strikes = dice.dirichlet(np.ones(DIM), count), dice.uniform(85.0, 115.0, count)
    dates = np.broadcast_to(np.arange(1, 5) / 4.0, (count, 4))
    return Bermudan(Basket(strikes, np.ones(count), "put", weights=weights), dates)


@eqx.filter_jit
def figures(solution: Solution, spot: jax.Array) -> dict[str, jax.Array]:
    return {name: getattr(solution, name)(0.0, spot) for name in FIGURES}


def apart(found: dict[str, jax.Array], index: int, alone: dict[str, jax.Array]) -> list[float]:
    """Return the difference in each figure of one contract, relative to its norm."""
    rows = [(found[name][index], alone[name]) for name in FIGURES]
    return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in rows]


class Solves:
    """The backward regression of all `count` contracts and of a single one, on the paths of a seed."""

    def __init__(self, count: int, paths: int):
        self.puts, self.model = book(count), model()
        basis = (Hermite(2, logs=True), MeanPolynomials(4, above=2, logs=True))
        self.solver = GradientRegression(paths, basis, block=min(paths, 4096))

    def whole(self, seed: int = 0) -> Solution:
        return self._solved(self.puts, seed)

    def one(self, index: int, seed: int = 0) -> Solution:
        return self._solved(jax.tree.map(lambda leaf: leaf[index], self.puts.broadcast()), seed)

    def figures(self, solution: Solution) -> dict[str, jax.Array]:
        return figures(solution, self.model.spot)

    def _solved(self, product: Bermudan, seed: int) -> Solution:
        problem = from_product(product, self.model, STEPS)
        return solve(problem, self.solver, key=jax.random.key(seed))


def agreement(solves: Solves, found: dict[str, jax.Array], chosen: np.ndarray) -> list[Figure]:
    """Return the largest differences of chosen contracts from their own solves, on the same and other paths."""
    rows = []
    for paths, seed in (("the same paths", 0), ("other paths", 1)):
        alone = [(i, solves.figures(solves.one(i, seed))) for i in chosen]
        worst = np.max([apart(found, i, one) for i, one in alone], axis=0)
        aim = {"aim": 0.01} if seed == 0 else {}
        rows += [
            {"figure": f"{name}, many beside alone, {paths}", "found": float(w)} | aim
            for name, w in zip(FIGURES, worst, strict=True)
        ]
    return rows


def totals(
    solves: Solves, whole: Solution, found: dict[str, jax.Array], repeat: int
) -> tuple[float, list[Figure]]:
    """Return the seconds of the portfolio's Delta and Gamma, and their errors against sums over contracts."""
    portfolio = whole.portfolio(np.ones(solves.puts.batch_shape))
    greeks = jax.jit(lambda x: (portfolio.delta(0.0, x), portfolio.gamma(0.0, x)))
    results, times = interleaved({"total": lambda: greeks(solves.model.spot)}, repeat)
    rows = []
    for total, name in zip(results["total"], FIGURES[1:], strict=True):
        error = np.linalg.norm(total - found[name].sum(axis=0)) / np.linalg.norm(total)
        rows.append({"figure": f"{name} of the portfolio beside the sum", "found": float(error)})
    return times["total"].best, rows


def certified(whole: Solution, count: int, paths: int, of_each: int) -> list[Figure]:
    """Return the standard errors of a portfolio's figures and of each contract's, and the seconds they take."""
    rows, dice = [], np.random.default_rng(7)
    ways = {"the portfolio": (paths, dice.normal(size=count)), "each contract": (of_each, None)}
    for name, (number, quantities) in ways.items():
        for _ in range(2):  # compiled before
            start = time.perf_counter()
            found = certify(whole, key=jax.random.key(1), num_paths=number, quantities=quantities)
            jax.block_until_ready(found)
            seconds = time.perf_counter() - start
        rows.append({"figure": f"seconds to certify {name}, {number} paths", "found": seconds})
        for figure in FIGURES:
            estimate = getattr(found, figure)
            leading = np.shape(estimate.mean)[:1] if quantities is None else (1,)
            errors, sizes = (
                np.max(np.abs(np.reshape(a, (*leading, -1))), axis=1)
                for a in (estimate.std_error, estimate.mean)
            )
            kinds = (
                {"": np.median}
                if quantities is not None
                else {"median": np.median, "worst": np.max}
            )
            rows += [
                {
                    "figure": f"standard error of {figure}, {name} {kind}".rstrip(),
                    "found": float(take(errors / sizes)),
                }
                for kind, take in kinds.items()
            ]
    return rows


def measured(count: int, paths: int, repeat: int, fresh: int, fresh_each: int) -> list[Figure]:
    """Return every figure of the table, with its maximum if there is an aim."""
    solves = Solves(count, paths)
    whole = solves.whole()
    _, times = interleaved({"all": solves.whole, "one": lambda: solves.one(0)}, repeat)
    found = solves.figures(whole)
    chosen = np.unique(np.linspace(0, count - 1, COMPARED).astype(int))
    seconds, sums = totals(solves, whole, found, 10 * repeat)
    every, one = times["all"].best, times["one"].best
    return [
        {"figure": f"seconds of {count} contracts", "found": every},
        {"figure": "seconds of one alone", "found": one},
        {
            "figure": "a contract of many, times one alone",
            "found": every / count / one,
            "aim": 0.02,
        },
        {"figure": "seconds of the portfolio's Delta and Gamma", "found": seconds},
        *agreement(solves, found, chosen),
        *sums,
        *certified(whole, count, fresh, fresh_each),
    ]


def parser() -> argparse.ArgumentParser:
    sizes = {"contracts": 2000, "paths": 16384, "repeat": 3}
    return parser_of(__doc__, **sizes, fresh=16384, fresh_each=4096)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("portfolio_fbsde", parser(), argv, precision="float32")
    count, paths = run.options.contracts, run.options.paths
    fresh = run.options.fresh, run.options.fresh_each
    rows = measured(count, paths, run.options.repeat, *fresh)
    title = f"{count} Bermudan puts on {DIM} assets, {paths} paths"
    table = table_of(title, "figure", "found", "at most")
    for row in rows:
        aim = f"{row['aim']:g}" if "aim" in row else ""
        table.add_row(row["figure"], f"{row['found']:.3g}", aim)
    run.console.print(table)
    share = rows[2]["found"]
    run.keep({"rows": rows}, f"a contract of {count} takes {share:.2g} of one alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
