"""The one-step Malliavin scheme against PyTorch: the same networks, paths, batches, iterations and warm starts.

Run `python -m benchmarks.one_step_malliavin [--dim 100] [--width N] [--iterations 100] [--paths 16384]
[--batch 256] [--seeds 3] [--eager] [--out FILE]`.

Hamilton-Jacobi-Bellman, E, Han, Jentzen (2017), section 4.3; Gamma's network gives its diagonal; hidden layers
are dim + 10 wide, or N. PyTorch runs in two versions, each eager and with `torch.compile` of the loss, of the
residuals of all paths and of their values a step later. "plain" is a first version, with derivatives of the
driver by autograd, `torch.optim.Adam` and `torch.linalg.lstsq`. "tuned" has hand-written derivatives, Adam's
fused step, and a Gram matrix factored once per date. PyTorch does no descent on today's single state, whose
networks ours trains without using them. All run on all cores. Times are for a whole training, with compile
times separate; programs take turns, and the best of the seeds is reported. Errors are those of today's value,
and for Delta and Gamma root mean squares over states at half the maturity.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pricing.fbsde import Architecture, OneStepMalliavin, Problem, Solution, problems, solve

from .command import Run, parser_of, whole, with_eager
from .malliavin_sizes import (
    BATCH,
    DIFFUSION,
    DT,
    FIRST_STAGES,
    LATER_RATE,
    MATURITY,
    PATHS,
    RATE,
    STEPS,
    TEST_DATE,
    Size,
)
from .training import Errors, take_turns, tell

TEST_STATES = 256


# --- Exact values
# --------------------------------------------------------------------------------------


class Known(NamedTuple):
    """u, its gradient and its Hessian."""

    value: float
    delta: np.ndarray
    gamma: np.ndarray


def known(t: float, x: np.ndarray) -> Known:
    """u = -ln E exp(-g(x + sqrt(2) W)): as 2 / (1 + r) is the integral of 2 exp(-a (1 + r)) over a > 0,

    u = -ln int 2 exp(-a) (1 + 4 a (T - t))^(-d / 2) exp(-c |x|^2) da,   c = a / (1 + 4 a (T - t)).
    """
    log_a = np.linspace(-25.0, 7.0, 4001)
    a, step = np.exp(log_a), log_a[1] - log_a[0]
    spread = 1.0 + 4.0 * a * (MATURITY - t)
    c = a / spread
    weight = 2.0 * step * a * np.exp(-a - c * (x @ x)) * spread ** (-0.5 * x.size)
    total = weight.sum()
    mean = (weight @ c) / total
    variance = (weight @ (c - mean) ** 2) / total
    gamma = 2.0 * mean * np.eye(x.size) - 4.0 * variance * np.outer(x, x)
    return Known(-math.log(total), 2.0 * mean * x, gamma)


class Test(NamedTuple):
    """States at the test date with their exact values, and the value today."""

    states: np.ndarray
    value: float
    deltas: np.ndarray
    gammas: np.ndarray

    @classmethod
    def of(cls, dim: int) -> "Test":
        t = TEST_DATE * DT
        noise = np.random.default_rng(0).standard_normal((TEST_STATES, dim))
        states = (DIFFUSION * math.sqrt(t) * noise).astype(np.float32)
        there = [known(t, x) for x in states.astype(float)]
        deltas, gammas = (
            np.stack([getattr(one, name) for one in there]) for name in Known._fields[1:]
        )
        return cls(states, known(0.0, np.zeros(dim)).value, deltas, gammas)

    def errors(self, value: np.ndarray, deltas: np.ndarray, gammas: np.ndarray) -> Errors:
        apart = lambda found, known: float(np.linalg.norm(found - known) / np.linalg.norm(known))
        return {
            "value": value.item() / self.value - 1.0,
            "delta": apart(deltas, self.deltas),
            "gamma": apart(gammas, self.gammas),
        }


# --- The trainings -------------------------------------------------------------------------------------


@eqx.filter_jit
def figures(solution: Solution, x0: jax.Array, states: jax.Array) -> tuple[jax.Array, ...]:
    """Return today's value, and Deltas and Gammas at the test date."""
    t = TEST_DATE * DT
    there = jax.lax.map(lambda x: (solution.delta(t, x), solution.gamma(t, x)), states)
    return solution.value(0.0, x0), *there


def by_jaxtape(
    seed: int, test: Test, size: Size, problem: Problem, gamma: str = "diagonal"
) -> Errors:
    solver = OneStepMalliavin(
        gamma=gamma,
        num_iterations=size.iterations,
        architecture=Architecture(size.width, activation=jax.nn.tanh),
        first_stages=FIRST_STAGES,
        batch_size=size.batch,
        num_paths=size.paths,
        learning_rate=RATE,
        later_learning_rate=LATER_RATE,
    )
    solution = solve(problem, solver, key=jax.random.key(seed))
    found = figures(solution, problem.x0, jnp.asarray(test.states))
    return test.errors(*map(np.asarray, found))


def parser() -> argparse.ArgumentParser:
    sizes = {"dim": 100, "iterations": 100, "paths": PATHS, "batch": BATCH, "seeds": 3}
    found = with_eager(parser_of(__doc__, **sizes))
    found.add_argument("--width", type=whole, help="width of hidden layers; default: dim + 10")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("one_step_malliavin", parser(), argv, precision="float32")
    dim, width, iterations = run.options.dim, run.options.width, run.options.iterations
    size = Size(dim, width or dim + 10, iterations, run.options.paths, run.options.batch)
    test, problem = Test.of(dim), problems.hjb(dim)
    trainings = {"jaxtape": lambda seed: by_jaxtape(seed, test, size, problem)}
    if run.has("torch"):
        from . import malliavin_torch

        for name, ways in malliavin_torch.versions(run.compiles()).items():
            trainings[f"PyTorch {name}"] = lambda seed, ways=ways: test.errors(
                *malliavin_torch.trained(seed, test.states, size, ways)
            )
    rows = take_turns(trainings, run.options.seeds)
    total = iterations * (STEPS - 1 + FIRST_STAGES)
    title = f"Hamilton-Jacobi-Bellman, {dim} dimensions, {iterations} iterations a date"
    tell(run, rows, total, title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
