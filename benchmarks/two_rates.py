"""The value of the best of a hundred assets at two rates, by three ways that only share the equation.

Run `python -m benchmarks.two_rates [--seeds 3] [--assets 100] [--blocks 32] [--rule-blocks 4] [--fit-paths N]
[--out FILE]`. The published value, 21.299 (E, Han, Jentzen, 2017), is the mean of a multilevel Picard scheme.
Here v is the value if one always borrows at R = .06, while lending earns l = .04: a quadrature over the
distribution of the maximum. Its hedge holds H = sum_i x_i dv/dx_i.

- Picard: v + E[int e^{-R t} (R - l) (v - H)^+ dt], for assets that grow at R. The next iterate differs by a
  share of order (R - l) T = .01 of the second term.
- Rule: u is the maximum that a borrowing policy can earn if assets grow at the current rate; so the policy
  "borrow if H > v", on a grid of dates, earns less than u. It is compared with always borrowing, on the same
  paths.
- `GradientRegression`, as in the catalogue.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr

from pricing.fbsde import CATALOGUE, problems, solve

from .command import Run, parser_of, table_of, whole

ASSETS, BORROW, LEND, VOL, MATURITY, SPOT = 100, 0.06, 0.04, 0.2, 0.5, 100.0
LOW, HIGH, PUBLISHED = 120.0, 150.0, 21.299
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
BLOCK = 2048


def borrowed(t, x):
    """Return v(t, x): e^{-R tau} (the integral of P(max > K) over LOW..HIGH, less that above HIGH)."""
    left = MATURITY - t
    std = VOL * jnp.sqrt(left)
    mean = jnp.log(x) + (BORROW - 0.5 * VOL**2) * left

    def above(strikes):
        return -jnp.expm1(jnp.sum(log_ndtr((jnp.log(strikes)[:, None] - mean[None]) / std), axis=1))

    nodes, weights = jnp.asarray(NODES), jnp.asarray(WEIGHTS)
    half = 0.5 * (HIGH - LOW)
    between = half * weights @ above(LOW + half * (1.0 + nodes))
    first = jnp.log(HIGH)
    half = 0.5 * (jnp.maximum(jnp.max(mean) + 7.0 * std, first + 0.01) - first)
    strikes = jnp.exp(first + half * (1.0 + nodes))
    beyond = half * weights @ (strikes * above(strikes))
    return jnp.exp(-BORROW * left) * (between - beyond)


@jax.jit
def value_and_held(t, x):
    """Return v and H at [paths] times and [paths, dim] states."""

    def at(point):
        t, x = point
        return jax.jvp(lambda size: borrowed(t, size * x), (1.0,), (1.0,))

    return jax.lax.map(at, (t, x), batch_size=128)


@partial(jax.jit, static_argnames="dim")
def by_picard(key, dim: int):
    """Return the gain from lending, from one time on each path."""
    times, noise = jax.random.split(key)
    t = MATURITY * (jnp.arange(BLOCK) + jax.random.uniform(times, (BLOCK,))) / BLOCK
    growth = (BORROW - 0.5 * VOL**2) * t + VOL * jnp.sqrt(t) * jax.random.normal(
        noise, (dim, BLOCK)
    )
    value, held = value_and_held(t, SPOT * jnp.exp(growth).T)
    return MATURITY * jnp.exp(-BORROW * t) * (BORROW - LEND) * jnp.maximum(value - held, 0.0)


@partial(jax.jit, static_argnames=("dim", "dates"))
def by_rule(key, dim: int, dates: int = 20):
    """Return the gain of the policy over always borrowing."""
    dt = MATURITY / dates
    noise = jax.random.normal(key, (dates, BLOCK, dim)) * jnp.sqrt(dt)

    def onward(state, of_date):
        logs, interest = state
        date, dw = of_date
        value, held = value_and_held(jnp.full(BLOCK, date * dt), jnp.exp(logs))
        rate = jnp.where(held > value, BORROW, LEND)
        logs = logs + (rate[:, None] - 0.5 * VOL**2) * dt + VOL * dw
        return (logs, interest + rate * dt), None

    start = jnp.full((BLOCK, dim), jnp.log(SPOT)), jnp.zeros(BLOCK)
    (logs, interest), _ = jax.lax.scan(onward, start, (jnp.arange(dates), noise))
    drift = (BORROW - 0.5 * VOL**2) * MATURITY
    always = jnp.log(SPOT) + drift + VOL * jnp.sum(noise, axis=0)
    earned = jnp.exp(-interest) * paid(logs)
    return earned - jnp.exp(-BORROW * MATURITY) * paid(always)


def paid(logs):
    best = jnp.exp(jnp.max(logs, axis=1))
    return jnp.maximum(best - LOW, 0.0) - 2.0 * jnp.maximum(best - HIGH, 0.0)


def by_regression(seed: int, dim: int, fit_paths: int | None) -> float:
    problem, solver = problems.different_rates(dim), CATALOGUE["different-rates"].solver
    if fit_paths:
        solver = replace(solver, num_paths=fit_paths)
    solution = solve(problem, solver, key=jax.random.key(seed))
    return float(solution.value(0.0, problem.x0))


def mean_and_error(samples) -> tuple[float, float]:
    samples = np.concatenate([np.atleast_1d(s) for s in samples])
    return float(samples.mean()), float(samples.std(ddof=1) / samples.size**0.5)


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, seeds=3, assets=ASSETS, blocks=32, rule_blocks=4)
    found.add_argument(
        "--fit-paths", type=whole, help="paths of the regression; by default the catalogue's"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("two_rates", parser(), argv, "float32", said="float32 and float64")
    options, dim = run.options, run.options.assets
    if options.seeds < 2:
        run.error("a standard error needs two seeds at least: --seeds 2")
    seeds = range(options.seeds)
    regressed = mean_and_error([by_regression(seed, dim, options.fit_paths) for seed in seeds])
    jax.config.update("jax_enable_x64", True)
    keys = jax.random.split(jax.random.key(0), max(options.blocks, options.rule_blocks))
    base = float(value_and_held(jnp.zeros(1), jnp.full((1, dim), SPOT))[0][0])
    lending = mean_and_error(by_picard(key, dim) for key in keys[: options.blocks])
    rule = mean_and_error(by_rule(key, dim) for key in keys[: options.rule_blocks])
    rows = [
        {"way": "always borrowing", "value": base, "error": 0.0},
        {"way": "Picard", "value": base + lending[0], "error": lending[1]},
        {"way": "rule, a lower bound", "value": base + rule[0], "error": rule[1]},
        {"way": "GradientRegression", "value": regressed[0], "error": regressed[1]},
    ]
    if dim == ASSETS:
        for row in rows[1:]:
            found = row["value"]
            run.answer(row["way"], found / PUBLISHED - 1.0, PUBLISHED, found, row["error"])
        rows.append({"way": "published", "value": PUBLISHED, "error": None})
    table = table_of(f"The best of {dim} assets at two rates", "way", "value", "standard error")
    for row in rows:
        error = "" if row["error"] is None else f"{row['error']:.4f}"
        table.add_row(row["way"], f"{row['value']:.4f}", error)
    run.console.print(table)
    by_way = {row["way"]: row["value"] for row in rows}
    gap = by_way["GradientRegression"] / by_way["Picard"] - 1.0
    run.keep({"rows": rows}, f"regression {gap:+.2%} from Picard")
    return 0


if __name__ == "__main__":
    sys.exit(main())
