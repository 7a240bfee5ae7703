"""Deep BSDE beside PyTorch: the same networks, iterations, batches and driver rule.

Run `python -m benchmarks.deep_bsde [--iterations 1500] [--batch 64] [--seeds 3] [--eager] [--out FILE]`.
Allen-Cahn in a hundred dimensions. PyTorch: Adam by its own fused step; random numbers are drawn eagerly, the
loss is eager or by `torch.compile`. "plain": a loop over dates that asks the network at each, as it is usually
written; "batched": our form, all dates in one product, for X does not depend on Y and Z. On all cores. Times
are of a whole training, compile times apart; programs take turns, the best of the seeds is told; errors are of
the mean over seeds, and over the run that compiles.
"""

import argparse
import sys
from collections.abc import Sequence

import jax

from pricing.fbsde import DeepBSDE, Problem, problems, solve

from .command import Run, parser_of, with_eager
from .training import Errors, take_turns, tell

DIM, RATE = 100, 5e-3
ANSWER = 0.0527813


def by_jaxtape(problem: Problem, seed: int, iterations: int, batch: int) -> float:
    """Today's value after a training."""
    solution = solve(problem, DeepBSDE(iterations, batch, RATE), key=jax.random.key(seed))
    return float(solution.value(0.0, problem.x0))


def off(value: float) -> Errors:
    return {"value": value / ANSWER - 1.0}


def parser() -> argparse.ArgumentParser:
    return with_eager(parser_of(__doc__, iterations=1500, batch=64, seeds=3))


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("deep_bsde", parser(), argv, precision="float32")
    iterations, batch = run.options.iterations, run.options.batch
    problem = problems.allen_cahn(DIM)
    trainings = {"jaxtape": lambda seed: off(by_jaxtape(problem, seed, iterations, batch))}
    if run.has("torch"):
        from . import deep_bsde_torch

        for way, loss in deep_bsde_torch.losses(run.compiles()).items():
            trainings[way] = lambda seed, loss=loss: off(
                deep_bsde_torch.trained(seed, iterations, batch, loss)
            )
    rows = take_turns(trainings, run.options.seeds)
    tell(
        run,
        rows,
        iterations,
        f"Allen-Cahn, {DIM} dimensions, {iterations} iterations of {batch} paths",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
