"""All Greeks of many baskets by Monte Carlo, in tiles that fit a budget: time and memory.

Run `python -m benchmarks.many_baskets [--baskets 20000] [--assets 10] [--paths 256] [--block 128] [--budget
1024] [--out FILE]`; the budget is in MiB. Calls on weighted sums of correlated assets have random weights and
strikes. Each has its value, a Delta for each asset, a Gamma for each pair, vega, theta, rho, vanna and volga,
with standard errors. The time includes compilation. The figures of a few are compared with those of each alone.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import jax
import numpy as np

from pricing import Basket, BlackScholes, MonteCarlo, greeks

from .command import Run, parser_of, table_of
from .peak_memory import Peak

ALONE = 3  # baskets that are valued alone too
FIGURES = "value", "delta", "gamma", "vega", "theta", "rho"


def baskets(count: int, assets: int) -> Basket:
    dice = np.random.default_rng(1)
    weights = dice.dirichlet(np.ones(assets), count)
    return Basket(dice.uniform(85.0, 115.0, count), np.ones(count), weights=weights)


def model(assets: int) -> BlackScholes:
    vols, matrix = np.linspace(0.15, 0.4, assets), 0.3 + 0.7 * np.eye(assets)
    return BlackScholes(np.full(assets, 100.0), 0.03, vols, asset_correlation=matrix)


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, baskets=20000, assets=10, paths=256, block=128, budget=1024)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("many_baskets", parser(), argv)
    options = run.options
    batch, assets = baskets(options.baskets, options.assets), model(options.assets)
    method, key = MonteCarlo(options.paths, block=options.block), jax.random.key(0)
    start = time.perf_counter()
    with Peak() as peak:
        found = greeks(batch, assets, method, key=key, budget=options.budget * 2**20)
        jax.block_until_ready(found.value)
    seconds = time.perf_counter() - start
    rows = [
        {"figure": "seconds", "found": seconds},
        {"figure": "baskets a second", "found": options.baskets / seconds},
    ]
    if peak.bytes is not None:
        rows.append({"figure": "peak memory, GB", "found": peak.bytes / 1e9})
    places = np.linspace(0, options.baskets - 1, ALONE).astype(int)
    each = batch.broadcast()
    alone = [
        greeks(jax.tree.map(lambda x, i=i: x[i], each), assets, method, key=key) for i in places
    ]
    for name in FIGURES:
        own = np.asarray([getattr(one, name) for one in alone])
        off = np.max(np.abs(np.asarray(getattr(found, name))[places] - own)) / np.max(np.abs(own))
        rows.append({"figure": f"{name}, in tiles beside alone", "found": float(off)})
        run.answer(f"{name}, in tiles beside alone", float(off))
    title = f"Greeks of {options.baskets} baskets on {options.assets} assets, {options.paths} paths"
    table = table_of(title, "figure", "found")
    for row in rows:
        table.add_row(row["figure"], f"{row['found']:.3g}")
    run.console.print(table)
    run.keep({"rows": rows}, f"{options.baskets / seconds:.0f} baskets a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
