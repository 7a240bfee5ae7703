"""Deep BSDE compared with PyTorch: the same networks, iterations, batches and driver rule.

Run `python -m benchmarks.deep_bsde [--iterations 1500] [--batch 64] [--seeds 3] [--eager] [--out FILE]`.
Allen-Cahn in a hundred dimensions. PyTorch uses Adam with its own fused step; random numbers are drawn eagerly,
and the loss is eager or by `torch.compile`. "plain" is a loop over dates that evaluates the network at each, as
usually written; "batched" is our form, with all dates in one product, because X does not depend on Y and Z. All
run on all cores. Times are for a whole training, with compile times separate; programs take turns, and the best
of the seeds is reported; errors are those of the mean over seeds, including the run that compiles.
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
    """Return today's value after a training."""
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
