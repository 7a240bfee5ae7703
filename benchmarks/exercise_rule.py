"""The value of the exercise policy of a call on the best of many assets, by plain simulation: a lower bound.

Run `python -m benchmarks.exercise_rule [--assets 20] [--blocks 150] [--fit-paths N] [--out FILE]`. The policy
is that of the catalogue: exercise when that pays more than the regression's continuation value. Fresh paths run
from one exercise date to the next, 8,192 per block; unlike in `bounds`, no martingale is subtracted.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pricing.fbsde import CATALOGUE, Problem, Solution, solve

from .command import Run, parser_of, whole

PATHS, RATE = 8192, 0.05


@eqx.filter_jit
def earned(problem: Problem, solution: Solution, key) -> jax.Array:
    """Return the discounted payoff of every path."""
    x = jnp.broadcast_to(problem.x0, (PATHS, problem.dim))
    held, paid, before = jnp.ones(PATHS, bool), jnp.zeros(PATHS), 0
    for date in (*problem.exercise_dates[:-1], problem.num_steps):
        key, drawn = jax.random.split(key)
        t, span = problem.times[before], problem.times[date] - problem.times[before]
        dw = jnp.sqrt(span) * jax.random.normal(drawn, x.shape)
        x = jax.vmap(lambda x, dw, t=t, span=span: problem.advance(t, x, dw, span))(x, dw)
        now = jax.vmap(problem.terminal)(x)
        takes = held
        if date < problem.num_steps:
            worth = jax.vmap(lambda x, date=date: solution.approximation.value(date, x))(x)
            takes = held & (now > worth) & (now > 0.0)
        paid = jnp.where(takes, jnp.exp(-RATE * problem.times[date]) * now, paid)
        held, before = held & ~takes, date
    return paid


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, blocks=150)
    found.add_argument("--assets", type=int, default=20, choices=(2, 5, 10, 20))
    found.add_argument(
        "--fit-paths", type=whole, help="paths of the regression; by default the catalogue's"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("exercise_rule", parser(), argv, precision="float32")
    options, entry = run.options, CATALOGUE[f"max-call-{run.options.assets}"]
    problem, solver = entry.problem(), entry.solver
    if options.fit_paths:
        solver = replace(solver, num_paths=options.fit_paths)
    solution = solve(problem, solver, key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(5), options.blocks)
    samples = np.concatenate([np.asarray(earned(problem, solution, key), float) for key in keys])
    mean, error = float(samples.mean()), float(samples.std(ddof=1) / samples.size**0.5)
    published = entry.value
    assert published is not None  # a problem of the catalogue
    summary = f"{mean:.3f}, standard error {error:.3f}; published {published}"
    run.console.print(f"{samples.size} paths: {summary}")
    run.answer("what the rule earns", mean / published - 1.0, published, mean, error)
    run.keep({"mean": mean, "error": error, "published": published}, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
