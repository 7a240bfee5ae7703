"""What the one step Malliavin scheme's networks must be able to say: errors by width and form of Gamma.

Run `python -m benchmarks.malliavin_networks [--dim 10] [--iterations 400] [--seeds 3]`. Hamilton-Jacobi-Bellman
as in `one_step_malliavin`; errors as there, the mean over seeds and its standard error.
"""

import argparse

from rich.console import Console
from rich.table import Table

from pricing.fbsde import problems

from .one_step_malliavin import Size, Test, by_jaxtape
from .training import over_seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"--dim": 10, "--iterations": 400, "--seeds": 3}.items():
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    test, problem = Test.of(options.dim), problems.hjb(options.dim)
    table = Table("gamma", "width", "value: error", "delta: error", "gamma: error")
    for gamma in ("diagonal", "full"):
        for width in (options.dim + 10, 128):
            size = Size(options.dim, width, options.iterations)
            seeds = range(options.seeds)
            errors = over_seeds([by_jaxtape(seed, test, size, problem, gamma) for seed in seeds])
            told = [f"{mean:+.2%} ± {error:.2%}" for mean, error in errors.values()]
            table.add_row(gamma, str(width), *told)
    Console().print(table)


if __name__ == "__main__":
    main()
