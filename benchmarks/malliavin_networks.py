"""What the one step Malliavin scheme's networks must be able to say: errors by width and form of Gamma.

Run `python -m benchmarks.malliavin_networks [--dim 10] [--iterations 400] [--seeds 3]`. Hamilton-Jacobi-Bellman
as in `one_step_malliavin`; errors as there, the mean over seeds and its standard error.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from pricing.fbsde import Architecture, OneStepMalliavin, problems, solve

from .one_step_malliavin import Test, figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"--dim": 10, "--iterations": 400, "--seeds": 3}.items():
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    test, problem = Test.of(options.dim), problems.hjb(options.dim)
    table = Table("gamma", "width", "value", "delta", "gamma's error")
    for gamma in ("diagonal", "full"):
        for width in (options.dim + 10, 128):
            network = Architecture(width, activation=jax.nn.tanh)
            solver = OneStepMalliavin(
                gamma=gamma, num_iterations=options.iterations, architecture=network
            )
            errors = []
            for seed in range(options.seeds):
                solution = solve(problem, solver, key=jax.random.key(seed))
                found = figures(solution, problem.x0, jnp.asarray(test.states))
                errors.append(list(test.errors(*map(np.asarray, found)).values()))
            mean, error = np.mean(errors, 0), np.std(errors, 0, ddof=1) * options.seeds**-0.5
            told = [f"{m:+.2%} ± {e:.2%}" for m, e in zip(mean, error, strict=True)]
            table.add_row(gamma, str(width), *told)
    Console().print(table)


if __name__ == "__main__":
    main()
