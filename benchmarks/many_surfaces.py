"""Many surfaces: seconds per surface as their number grows, compared with QuantLib on the same cores.

Run `python -m benchmarks.many_surfaces [--surfaces 256 1024 4096] [--peer-surfaces 32] [--repeat 2] [--checked
512] [--out FILE]`. A surface has the DAX's expiries and strikes, and vols of a Heston model with random
parameters about the DAX's, with noise of a fifth of a vol point; an option more than 3.5 standard deviations
out of the money has no quote. QuantLib fits the first few surfaces, from the same start, in one warmed-up
process per core; a process takes one surface after another. Both results are judged by our residuals. A surface
that is not fitted is reported with its reason. Each row is for all the surfaces, in calls of that many; the
first row compiles the program of the search and, in a later call, programs that a few hard surfaces may need.

Then: the number of fits with vols off by more than 1e-7 with 48 and with 64 nodes (compared with 256), which
need a correction; and the cost of reading the surfaces from Parquet and checking them.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calibration import Calibrations, ImpliedVolError, Job, calibrate_many, read_jobs
from pricing import Heston, Market, VolSurface

from .beside import Comparison, Spread
from .command import Run, parser_of, table_of, whole
from .large_book import SAMPLES

SPREAD = 0.3  # in the logarithm of a parameter
NOISE = 0.002  # in a vol
FARTHEST = 3.5  # deviations: an option farther out of the money has no quote
OPTIMUM = (0.1, 1.9, 0.07, 1.0, -0.75)  # about the DAX's v0, kappa, theta, xi, rho
SEED = 20020705


def sample() -> Market:
    """Return the sample market with only the DAX."""
    found = Market.read(SAMPLES / "dax_2002-07-05.json")
    dax = {"DAX": found.equities["DAX"]}
    return replace(found, equities=dax, correlations={}, swaption_vols=None)


def start_of(market: Market) -> Heston:
    return Heston.starting_on(market, "DAX")


def vols_of(market: Market, count: int) -> np.ndarray:
    """Return the vols of the first `count` surfaces, [surfaces, expiries, strikes]; NaN means no quote."""
    dice, noise = (np.random.default_rng([SEED, stream]) for stream in range(2))
    moves = np.exp(SPREAD * dice.normal(size=(count, 5)))
    rows = (
        jnp.asarray(np.array(OPTIMUM) * moves)
        .at[:, 4]
        .set(np.tanh(np.arctanh(OPTIMUM[4]) * moves[:, 4]))
    )
    surface, start = market.equities["DAX"].surface, start_of(market)

    k = np.log(np.array([start.forward(t) for t in surface.expiries])[:, None] / surface.strikes)

    def of_row(row: Any):
        model = Heston(start.spot, start.rate, *row, start.dividend_yield)
        vols = ImpliedVolError(num_nodes=128).residuals(model, surface) + surface.vols
        deviations = jnp.abs(k) / (vols * jnp.sqrt(surface.expiries)[:, None])
        return jnp.where(deviations < FARTHEST, vols, jnp.nan)

    vols = eqx.filter_jit(lambda rows: jax.lax.map(of_row, rows))(rows)
    return np.asarray(vols) + noise.normal(0.0, NOISE, vols.shape)


def jobs_of(market: Market, vols: np.ndarray) -> list[Job]:
    surface, start = market.equities["DAX"].surface, start_of(market)
    surfaces = (VolSurface(surface.expiries, surface.strikes, of_one) for of_one in vols)
    return [Job(f"S{index}", one, start) for index, one in enumerate(surfaces)]


def fitted_by_quantlib(vols: np.ndarray) -> np.ndarray:
    """Return v0, kappa, theta, xi and rho of each surface, by QuantLib's Levenberg-Marquardt."""
    from .quantlib_objects import HestonMarket

    jax.config.update("jax_enable_x64", True)
    market, found = sample(), []
    names = list(Heston.free_parameters)
    for of_one in vols:
        at = lambda m: m.equities["DAX"].surface.vols
        moved = eqx.tree_at(at, market, jnp.asarray(of_one))
        fitted = HestonMarket(moved, "DAX", start_of(moved)).calibration()()
        found.append([float(fitted[name]) for name in names])
    return np.array(found)


def quantlib(vols: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the parameters of each surface, and the seconds for all of them on every core."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        list(pool.map(fitted_by_quantlib, [vols[:1]] * cores))
        start = time.perf_counter()
        found = list(pool.map(fitted_by_quantlib, np.array_split(vols, cores)))
        return np.concatenate(found), time.perf_counter() - start


def squares(market: Market, vols: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the sum of squared vol points of each surface under its parameters."""
    surface, start = market.equities["DAX"].surface, start_of(market)

    def of_one(row: Any):
        model = Heston(start.spot, start.rate, *row, start.dividend_yield)
        return ImpliedVolError(num_nodes=128).residuals(model, surface) + surface.vols

    found = eqx.filter_jit(lambda rows: jax.lax.map(of_one, rows))(jnp.asarray(rows))
    return 1e4 * np.nansum((np.asarray(found) - vols) ** 2, axis=(1, 2))


def coarse(market: Market, rows: np.ndarray, vols: np.ndarray, num_nodes: int) -> int:
    """Count the fits with a quoted vol off by more than 1e-7 in an integral with `num_nodes` nodes."""
    surface, start = market.equities["DAX"].surface, start_of(market)

    def off_by(row: Any, quoted: Any):
        model = Heston(start.spot, start.rate, *row, start.dividend_yield)
        few, many = (
            ImpliedVolError(num_nodes=n).residuals(model, surface) for n in (num_nodes, 256)
        )
        return jnp.nanmax(jnp.where(jnp.isnan(quoted), 0.0, jnp.abs(few - many)))

    both = jnp.asarray(rows), jnp.asarray(vols)
    found = eqx.filter_jit(lambda both: jax.lax.map(lambda pair: off_by(*pair), both))(both)
    return int(np.sum(np.asarray(found) > 1e-7))


def reading(market: Market, vols: np.ndarray) -> float:
    """Return the seconds per surface of reading a table in Parquet and checking its quotes."""
    import pyarrow
    import pyarrow.parquet

    surface, (count, *shape) = market.equities["DAX"].surface, vols.shape
    expiries, strikes = (
        np.broadcast_to(x, vols.shape).ravel()
        for x in (np.asarray(surface.expiries)[:, None], np.asarray(surface.strikes))
    )
    numbers = {"spot": np.full(vols.size, 4468.17), "rate": np.full(vols.size, 0.03)}
    names = np.repeat([f"S{index}" for index in range(count)], np.prod(shape))
    quotes = {"surface": names, **numbers, "expiry": expiries, "strike": strikes}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "quotes.parquet")
        pyarrow.parquet.write_table(pyarrow.table({**quotes, "vol": vols.ravel()}), file)
        start = time.perf_counter()
        refused = [job.refusal(fewest=5) for job in read_jobs(file, Heston)]
        return (time.perf_counter() - start) / len(refused)


def timed(jobs: Sequence[Job], size: int, repeat: int) -> tuple[Calibrations, dict[str, float]]:
    """Return the results of all jobs in calls of `size`, and seconds: of the first call, of all, of all again.

    "seconds" is the best time of all jobs when nothing is left to compile.
    """
    calls = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    rounds: list[list[float]] = [[] for _ in range(repeat + 1)]
    for seconds in rounds:
        found = []
        for several in calls:
            start = time.perf_counter()
            found.append(calibrate_many(several))
            seconds.append(time.perf_counter() - start)
    first, *again = rounds
    alone = min(seconds[0] for seconds in again)
    least = min(map(sum, again))
    compiled = {"first_compile": first[0] - alone, "compile": sum(first) - least}
    return Calibrations.joined(found), {"seconds": least, **compiled}


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, repeat=2, peer_surfaces=32, checked=512)
    found.add_argument("--surfaces", nargs="+", type=whole, default=[256, 1024, 4096], metavar="N")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("many_surfaces", parser(), argv)
    options, market = run.options, sample()
    vols = vols_of(market, max(options.surfaces))
    jobs, rows = jobs_of(market, vols), []
    names = "surfaces a call", "ms a surface", "compiled in the first call, s", "in all", "failed"
    table = table_of("calibrate_many, Heston", *names, left=0)
    for size in options.surfaces:
        found, seconds = timed(jobs, size, options.repeat)
        rows.append({"surfaces": size, **seconds, "reasons": found.failed})
        per_surface = rows[-1]["per_surface"] = seconds["seconds"] / len(jobs)
        cells = (
            f"{1e3 * per_surface:.2f}",
            *(f"{seconds[x]:.2f}" for x in ("first_compile", "compile")),
        )
        table.add_row(str(size), *cells, str(len(found.failed)))
    run.console.print(table)
    figures: dict[str, Any] = {"rows": rows}
    fits = np.stack(list(found.parameters.values()), axis=1)
    fitted = np.all(np.isfinite(fits), axis=1)
    few = fits[fitted][: options.checked], vols[: len(fits)][fitted][: options.checked]
    figures["coarse"] = off = {n: coarse(market, *few, n) for n in (48, 64)}
    figures["reading"] = reading(market, vols[: options.checked])
    run.console.print(f"off by more than 1e-7, of {len(few[0])}, by nodes: {off}")
    run.console.print(f"reading and checking: {1e3 * figures['reading']:.2f} ms a surface")
    headline = f"{1e3 * rows[-1]['per_surface']:.2f} ms a surface"
    if run.has("QuantLib"):
        few = vols[: min(options.peer_surfaces, len(vols))]
        theirs, seconds = quantlib(few)
        ours = calibrate_many(jobs_of(market, few))
        mine = np.stack(list(ours.parameters.values()), axis=1)
        gaps = squares(market, few, mine) / squares(market, few, theirs) - 1.0
        ratio = seconds / len(few) / rows[0]["per_surface"]
        worst = float(np.nanmax(gaps))
        figures |= {
            "quantlib": seconds / len(few),
            "ratio": ratio,
            "worst_excess": worst,
        }
        once = Spread(ratio, rounds=1)
        run.comparisons.append(Comparison("a surface, all cores", "jaxtape", "QuantLib", once))
        run.answer("sum of squares over QuantLib's, the worst surface", worst)
        text = f"QuantLib on {os.cpu_count()} cores: {1e3 * seconds / len(few):.1f} ms a surface"
        run.console.print(f"{text}, {ratio:.0f} times ours of {rows[0]['surfaces']}")
        run.console.print(f"our sum of squares over its, less 1: at most {worst:.1e}")
        headline += f", {ratio:.0f} x QuantLib"
    run.keep(figures, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
