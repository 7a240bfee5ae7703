"""Value, Delta and Gamma of every contract in a book of Bermudan puts, compared with exact references.

Run `python -m benchmarks.book_gammas [--contracts 2000] [--paths 262144] [--training 8192] [--seeds 1]
[--correlation 0] [--out FILE]`. Puts on weighted geometric means of ten assets, exercisable on four dates of a
year: weights, strikes, spots and quantities are random, vols are 15 to 40 %, and two spots are 1 and 10,000. A
weighted geometric mean is lognormal, so each contract is a one-dimensional problem, solved by quadrature on a
grid of its logarithm. One `ProjectionPursuit` solves all contracts, and one `certify` gives their figures.
Errors are the largest over a contract's entries, relative to its largest entry, in money: x_i Delta_i and x_i
x_j Gamma_ij. A contract is flagged if three standard errors of its Gamma are above 5 %. Coverage is the share
of entries within 1.96 standard errors, over all contracts and seeds. The first seed includes compilation. For
comparison, an adjoint sweep of the same number of European puts by the closed form gives value and first
derivatives.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pricing import Basket, Bermudan, BlackScholes, European, price
from pricing.fbsde import Problem, ProjectionPursuit, certify, from_product, solve

from .command import Run, parser_of, table_of
from .fbsde_references import Reference, bermudan_puts_on_geometric_means
from .peak_memory import Peak

DIM, RATE, FLAGGED = 10, 0.05, 0.05
DATES = np.arange(1, 5) / 4.0
FIGURES = "value", "delta", "gamma"

Figure = dict[str, Any]


class Book(NamedTuple):
    """The contracts as one problem, their exact figures in money, and the quantity of each."""

    problem: Problem
    spots: np.ndarray
    exact: Reference
    quantities: np.ndarray


def book(count: int, correlation: float) -> Book:
    dice = np.random.default_rng(5)
    spots, vols = dice.uniform(80.0, 120.0, DIM), np.linspace(0.15, 0.40, DIM)
    spots[:2] = 1.0, 10000.0
    weights = dice.dirichlet(np.ones(DIM), count)
    strikes = np.exp(weights @ np.log(spots)) * dice.uniform(0.85, 1.15, count)
    matrix = correlation + (1.0 - correlation) * np.eye(DIM)
    model = BlackScholes(spots, RATE, vols, np.zeros(DIM), asset_correlation=matrix)
    means = Basket(strikes, np.ones(count), "put", weights=weights, average="geometric")
    puts = Bermudan(means, np.broadcast_to(DATES, (count, len(DATES))))
    covariance = matrix * vols[:, None] * vols
    exact = bermudan_puts_on_geometric_means(spots, covariance, RATE, weights, strikes, DATES)
    return Book(from_product(puts, model, len(DATES)), spots, exact, dice.normal(size=count))


class Found(NamedTuple):
    """Figures and standard errors of a certificate in money, value, Delta and Gamma."""

    means: list[np.ndarray]
    std_errors: list[np.ndarray]

    @classmethod
    def of(cls, certificate: Any, spots: np.ndarray) -> "Found":
        units = np.ones(()), spots, spots[:, None] * spots
        figures = [getattr(certificate, name) for name in FIGURES]
        in_money = lambda name: [
            np.asarray(getattr(one, name), float) * unit
            for one, unit in zip(figures, units, strict=True)
        ]
        return cls(in_money("mean"), in_money("std_error"))


def largest(entries: np.ndarray) -> np.ndarray:
    return np.max(np.abs(entries).reshape(len(entries), -1), axis=1)


def errors_of(name: str, mean: np.ndarray, error: np.ndarray, exact: np.ndarray) -> list[Figure]:
    size = largest(exact)
    off, stated = largest(mean - exact) / size, largest(error) / size
    kinds = {
        "median": np.median,
        "95th percentile": lambda x: np.percentile(x, 95),
        "worst": np.max,
    }
    rows = [(f"{name} off, {kind}", float(take(off))) for kind, take in kinds.items()]
    rows.append((f"standard error of {name}, median", float(np.median(stated))))
    if name == "gamma":
        rows += [
            (f"contracts whose gamma is within {FLAGGED:.0%}", float(np.mean(off <= FLAGGED))),
            (
                "contracts off by more that are not flagged",
                float(np.mean((off > FLAGGED) & (3.0 * stated <= FLAGGED))),
            ),
        ]
    return [{"figure": figure, "found": found} for figure, found in rows]


def europeans_a_second(count: int) -> float:
    """Return contracts per second with one adjoint sweep each: value, Delta, vega, rho by closed forms."""
    strikes = np.linspace(85.0, 115.0, count)

    @jax.jit
    def swept(strikes):
        def value(numbers, strike):
            spot, rate, vol = numbers
            return price(European(strike, 1.0, "put"), BlackScholes(spot, rate, vol)).value

        numbers = tuple(map(jnp.asarray, (100.0, RATE, 0.2)))
        return jax.vmap(jax.value_and_grad(value), (None, 0))(numbers, strikes)

    jax.block_until_ready(swept(strikes))
    start, sweeps = time.perf_counter(), 100
    for _ in range(sweeps):
        jax.block_until_ready(swept(strikes))
    return count * sweeps / (time.perf_counter() - start)


def measured(run: Run) -> list[Figure]:
    options = run.options
    of = book(options.contracts, options.correlation)
    solver = ProjectionPursuit(options.training, block=min(options.training, 256))
    rows, seconds, within, first, processor = [], [], [], None, 0.0
    with Peak() as peak:
        for seed in range(options.seeds):
            start, processor = time.perf_counter(), time.process_time()
            train, fresh = jax.random.split(jax.random.key(seed))
            solution = solve(of.problem, solver, key=train)
            certificate = certify(solution, key=fresh, num_paths=options.paths)
            jax.block_until_ready(certificate)
            seconds.append(time.perf_counter() - start)
            processor = time.process_time() - processor  # over all threads
            found = Found.of(certificate, of.spots)
            first = found if first is None else first
            trios = zip(found.means, found.std_errors, of.exact, strict=True)
            within.append([np.mean(np.abs(m - e) <= 1.96 * s) for m, s, e in trios])
            run.console.print(f"seed {seed}: {seconds[-1]:.1f} s", highlight=False)
        total = certify(solution, key=fresh, num_paths=options.paths, quantities=of.quantities)
        jax.block_until_ready(total)
    assert first is not None
    for name, mean, error, exact in zip(FIGURES, *first, of.exact, strict=True):
        rows += errors_of(name, mean, error, exact)
    for name, share in zip(FIGURES, np.mean(within, axis=0), strict=True):
        rows.append({"figure": f"coverage of {name}, nominal 95 %", "found": float(share)})
    of_total = Found.of(total, of.spots)
    for name, mean, exact in zip(FIGURES, of_total.means, of.exact, strict=True):
        true = np.tensordot(of.quantities, exact, 1)
        off = float(np.max(np.abs(mean - true)) / np.max(np.abs(true)))
        rows.append({"figure": f"{name} of the portfolio off", "found": off})
    rows.append({"figure": "seconds of the first seed", "found": seconds[0]})
    rows.append({"figure": "seconds of the last seed", "found": seconds[-1]})
    rows.append({"figure": "processor seconds of the last seed", "found": processor})
    rows.append({"figure": "contracts a second", "found": options.contracts / seconds[-1]})
    europeans = europeans_a_second(options.contracts)
    rows.append({"figure": "European puts a second, adjoint sweeps", "found": europeans})
    if peak.bytes is not None:
        rows.append({"figure": "peak memory, GB", "found": peak.bytes / 1e9})
    return rows


def parser() -> argparse.ArgumentParser:
    sizes = {"contracts": 2000, "paths": 2**18, "training": 8192, "seeds": 1}
    found = parser_of(__doc__, **sizes)
    found.add_argument("--correlation", type=float, default=0.0, help="of any two assets")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("book_gammas", parser(), argv, precision="float32")
    rows = measured(run)
    title = f"{run.options.contracts} Bermudan puts on {DIM} assets, {run.options.paths} paths"
    table = table_of(title, "figure", "found")
    for row in rows:
        table.add_row(row["figure"], f"{row['found']:.3g}")
    run.console.print(table)
    by_name = {row["figure"]: row["found"] for row in rows}
    run.keep({"rows": rows}, f"Gamma is {by_name['gamma off, median']:.2%} off in the median")
    return 0


if __name__ == "__main__":
    sys.exit(main())
