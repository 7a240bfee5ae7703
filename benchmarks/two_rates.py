"""What the best of a hundred assets is worth at two rates: three ways that share nothing but the equation.

Run `python -m benchmarks.two_rates [--seeds 3] [--out FILE]`. The published value, 21.299 (E, Han, Jentzen,
2017), is the mean of a multilevel Picard scheme. Here v is the value if one always borrowed at R = .06, where
lending earns l = .04: a quadrature over the distribution of the maximum; its hedge holds H = sum_i x_i dv/dx_i.

- Picard: v + E[int e^{-R t} (R - l) (v - H)^+ dt], for assets that grow at R. The next iterate differs by a
  share of order (R - l) T = .01 of the second term.
- Rule: u is the most that a rule of borrowing can earn if assets grow at the day's rate; so the rule "borrow
  where H > v", on a grid of dates, earns less than u. Beside always borrowing, on the same paths.
- `GradientRegression`, as in the catalogue.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from rich.console import Console
from rich.table import Table

from pricing.fbsde import problems, solve
from pricing.fbsde.catalogue import CATALOGUE

from .timing import environment

DIM, BORROW, LEND, VOL, MATURITY, SPOT = 100, 0.06, 0.04, 0.2, 0.5, 100.0
LOW, HIGH, PUBLISHED = 120.0, 150.0, 21.299
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
BLOCK = 2048


def borrowed(t, x):
    """v(t, x): e^{-R tau} (the integral of P(max > K) over LOW..HIGH, less that above HIGH)."""
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
    """v and H at [paths] times and [paths, dim] states."""

    def at(point):
        t, x = point
        return jax.jvp(lambda size: borrowed(t, size * x), (1.0,), (1.0,))

    return jax.lax.map(at, (t, x), batch_size=128)


@jax.jit
def by_picard(key):
    """What lending adds, from one time on each path."""
    times, noise = jax.random.split(key)
    t = MATURITY * (jnp.arange(BLOCK) + jax.random.uniform(times, (BLOCK,))) / BLOCK
    growth = (BORROW - 0.5 * VOL**2) * t + VOL * jnp.sqrt(t) * jax.random.normal(
        noise, (DIM, BLOCK)
    )
    value, held = value_and_held(t, SPOT * jnp.exp(growth).T)
    return MATURITY * jnp.exp(-BORROW * t) * (BORROW - LEND) * jnp.maximum(value - held, 0.0)


@partial(jax.jit, static_argnames="dates")
def by_rule(key, dates: int = 20):
    """What the rule earns more than always borrowing."""
    dt = MATURITY / dates
    noise = jax.random.normal(key, (dates, BLOCK, DIM)) * jnp.sqrt(dt)

    def onward(state, of_date):
        logs, interest = state
        date, dw = of_date
        value, held = value_and_held(jnp.full(BLOCK, date * dt), jnp.exp(logs))
        rate = jnp.where(held > value, BORROW, LEND)
        logs = logs + (rate[:, None] - 0.5 * VOL**2) * dt + VOL * dw
        return (logs, interest + rate * dt), None

    start = jnp.full((BLOCK, DIM), jnp.log(SPOT)), jnp.zeros(BLOCK)
    (logs, interest), _ = jax.lax.scan(onward, start, (jnp.arange(dates), noise))
    drift = (BORROW - 0.5 * VOL**2) * MATURITY
    always = jnp.log(SPOT) + drift + VOL * jnp.sum(noise, axis=0)
    earned = jnp.exp(-interest) * paid(logs)
    return earned - jnp.exp(-BORROW * MATURITY) * paid(always)


def paid(logs):
    best = jnp.exp(jnp.max(logs, axis=1))
    return jnp.maximum(best - LOW, 0.0) - 2.0 * jnp.maximum(best - HIGH, 0.0)


def by_regression(seed: int) -> float:
    entry = CATALOGUE["different-rates"]
    problem = problems.different_rates(DIM)
    solution = solve(problem, entry.solver, key=jax.random.key(seed))
    return float(solution.value(0.0, problem.x0))


def mean_and_error(samples) -> tuple[float, float]:
    samples = np.concatenate([np.atleast_1d(s) for s in samples])
    return float(samples.mean()), float(samples.std(ddof=1) / samples.size**0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    regressed = mean_and_error([by_regression(seed) for seed in range(options.seeds)])
    jax.config.update("jax_enable_x64", True)
    keys = jax.random.split(jax.random.key(0), 32)
    base = float(value_and_held(jnp.zeros(1), jnp.full((1, DIM), SPOT))[0][0])
    lending, rule = (
        mean_and_error(map(way, keys[:count])) for way, count in ((by_picard, 32), (by_rule, 4))
    )
    rows = [
        {"way": "always borrowing", "value": base, "error": 0.0},
        {"way": "Picard", "value": base + lending[0], "error": lending[1]},
        {"way": "rule, a lower bound", "value": base + rule[0], "error": rule[1]},
        {"way": "GradientRegression", "value": regressed[0], "error": regressed[1]},
        {"way": "published", "value": PUBLISHED, "error": None},
    ]
    table = Table(title=f"The best of {DIM} assets at two rates")
    for heading in ("way", "value", "standard error"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows:
        error = "" if row["error"] is None else f"{row['error']:.4f}"
        table.add_row(row["way"], f"{row['value']:.4f}", error)
    Console().print(table)
    if options.out is not None:
        head = environment() | {"command": "python -m benchmarks.two_rates", "seeds": options.seeds}
        options.out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
