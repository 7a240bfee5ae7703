"""What the rule of a call on the best of many assets earns by plain simulation: a lower bound.

Run `python -m benchmarks.exercise_rule [--assets 20] [--blocks 150]`. The rule is that of the catalogue:
exercise where that pays more than the regression says holding is worth. Fresh paths from one date of exercise
to the next, 8,192 a block; no martingale is taken off, unlike in `bounds`.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pricing.fbsde import Problem, Solution, solve
from pricing.fbsde.catalogue import CATALOGUE

PATHS, RATE = 8192, 0.05


@eqx.filter_jit
def earned(problem: Problem, solution: Solution, key) -> jax.Array:
    """Discounted to today, of every path."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--assets", type=int, default=20, choices=(5, 10, 20))
    parser.add_argument("--blocks", type=int, default=150)
    options = parser.parse_args()
    entry, blocks = CATALOGUE[f"max-call-{options.assets}"], options.blocks
    problem = entry.problem()
    solution = solve(problem, entry.solver, key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(5), blocks)
    samples = np.concatenate([np.asarray(earned(problem, solution, key), float) for key in keys])
    error = samples.std(ddof=1) / samples.size**0.5
    print(
        f"{samples.size} paths: {samples.mean():.3f}, standard error {error:.3f}; published {entry.value}"
    )


if __name__ == "__main__":
    main()
