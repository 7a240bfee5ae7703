"""Solve a backward equation."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from threadpoolctl import threadpool_limits

from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ..progress import Progress
from .error_bars.relative_errors import (
    ASKED,
    Tolerance,
    shortcomings,
    tolerance_of,
)
from .limits import Limits
from .problem import Problem
from .results import RESULTS
from .selection import choose
from .solution import Solution
from .solver import AbstractSolver
from .stages import (
    init,
    latest_metrics,
    metrics_file,
    postprocess,
    step,
)
from .storage import Checkpoints, Keys


@full_matmul_precision
def solve(
    problem: Problem,
    solver: AbstractSolver | None = None,
    *,
    key: Keys,
    tolerance: Tolerance | float = ASKED,
    max_paths: int = 2**18,
    max_seconds: float | int | None = None,
    budget: float | int | None = None,
    progress: Progress | None = None,
    metrics: Path | None = None,
    checkpoint: Path | None = None,
    every: int = 1,
    throw: bool = True,
) -> Solution:
    """Solve a backward equation: one program, from paths and optimizer steps to the last date.

    Stages are reported and kept between two runs of the program. BLAS has one thread, in the whole process.

    Args:
        problem: The equation.
        solver: The scheme and its settings. None: GridQuadrature in one or two dimensions; in more, regressions
            on several sets of functions are tried on few paths (`selection.candidates`), and the one that did
            best is solved on many. Value, Delta and Gamma of today are certified on fresh paths (`certify`), as
            many as `tolerance` takes, and the value of a right to exercise is held against an upper bound.
        key: One key, or many of shape [n] (seeds), which are solved side by side; then every array of the
            solution has an axis for them in front.
        tolerance: The relative tolerance of value, Delta and Gamma today where no solver is given: three
            standard errors must be within. A number holds for all three.
        max_paths: Maximum number of paths of the certificate.
        max_seconds: Time budget where no solver is named. It limits pilots and paths, but at least one pilot
            and 8,192 paths run, and their programs are compiled; a figure that then misses its tolerance is
            refused. None: the time that `tolerance` needs.
        budget: The bytes of memory that such a solution may take for paths and computations on them; None: the
            memory for 65,536 paths.
        progress: Callback at the end of each stage, with the stages done, their number, and the latest loss in
            words (`pricing.progress`), the mean over keys.
        metrics: A file .jsonl, or a folder that TensorBoard reads, for the numbers of each stage as it ends.
        checkpoint: A folder from which a killed run resumes, with the same bits.
        every: The number of stages after which a checkpoint is kept.
        throw: Whether to raise where the loss is not finite.

    Returns:
        The solution, with the result and every loss in `stats`. A problem that the solver does not solve is a
        TypeError; a loss that is not finite, or a figure that misses its tolerance, a RuntimeError if `throw`,
        whose message has stage, iteration and remedy (the last checkpoint is of the stage before);
        an `every` below 1, or a checkpoint of another run, a ValueError.

    Raises:
        ValueError: No solver is named for many keys, for metrics or a checkpoint.

    Examples:
        >>> from pricing.fbsde import DeepBSDE, problems, solve
        >>> try:
        ...     solve(problems.max_call(2), DeepBSDE(), key=None)
        ... except TypeError as error:
        ...     print(str(error)[:53])
        DeepBSDE does not solve this problem. It has early ex
    """
    tolerance = tolerance_of(tolerance)
    if solver is None:
        if key.ndim or metrics is not None or checkpoint is not None:
            raise ValueError(
                "a solver is chosen for one key, without metrics or checkpoint: name one."
            )
        return _chosen(
            problem, key, tolerance, Limits(max_paths, max_seconds, budget), progress, throw
        )
    folders = {"metrics": metrics, "checkpoint": checkpoint, "every": every}
    return _trained(problem, solver, key, progress, throw, **folders)


def _trained(
    problem: Problem,
    solver: AbstractSolver,
    key: Keys,
    progress: Progress | None = None,
    throw: bool = True,
    *,
    metrics: Path | None = None,
    checkpoint: Path | None = None,
    every: int = 1,
) -> Solution:
    """Solve by a solver: see `solve`.

    Raises:
        TypeError: The problem has a feature that the solver cannot handle.
        ValueError: `every` is below 1.
        RuntimeError: The loss is not finite, and `throw`.
    """
    reason = solver.unsupported(problem)
    if reason is not None:
        raise TypeError(f"{type(solver).__name__} does not solve this problem. It has {reason}.")
    if every < 1:
        raise ValueError(f"every={every}: a checkpoint is kept after 1 stage or more.")
    count = solver.num_stages(problem)
    over_keys = eqx.filter_vmap if key.ndim else lambda function: function
    training = over_keys(lambda key: init(problem, solver, key=key))(key)
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint, problem, solver, key=key)
    if checkpoints is not None:
        training = checkpoints.latest(training)

    with _single_blas_thread(), metrics_file(metrics) as write_metrics:
        start = done = int(np.max(training.stage))
        is_watched = progress is not None or write_metrics is not None
        pace = 1 if is_watched else count if checkpoints is None else every
        while done < count:
            stages = jnp.asarray(min(pace, count - done), jnp.int32)
            further = lambda training, key, stages=stages: step(  # noqa: E731
                problem, solver, training, stages, key=key
            )
            training = over_keys(further)(training, key)
            done = min(done + pace, count)
            if is_watched:
                latest = over_keys(lambda training: latest_metrics(solver, training))(training)
                latest = jax.tree.map(np.asarray, latest)
                if progress is not None:
                    progress(done, count, f"loss {float(np.mean(latest['loss'])):.3g}")
                if write_metrics is not None:
                    write_metrics(done - 1, latest)
            losses = np.asarray(training.losses)[..., :done, :]
            if throw and (fault := _non_finite_loss(problem, solver, losses)):
                raise RuntimeError(fault)
            if checkpoints is not None and ((done - start) % every == 0 or done == count):
                checkpoints.save(training)
    return over_keys(lambda training: postprocess(problem, solver, training))(training)


def _chosen(
    problem: Problem,
    key: PRNGKeyArray,
    tolerance: Tolerance,
    limits: Limits,
    progress: Progress | None,
    throw: bool,
) -> Solution:
    """Solve by the functions that suit, and certify the figures of today.

    Raises:
        RuntimeError: A figure misses its tolerance, and `throw`.
    """
    train = lambda solver, key, problem=problem: _trained(problem, solver, key)  # noqa: E731
    settings: dict[str, Any] = {"tolerance": tolerance, "limits": limits, "progress": progress}
    solution = choose(problem, train, key=key, **settings)
    if throw and (lacking := shortcomings(solution, tolerance)):
        raise RuntimeError(
            f"{lacking}: give more than {limits.words}, a wider tolerance, or a solver with functions that "
            "suit the payoff; or throw=False, and look at stats['certificate']"
        )
    return solution


def _single_blas_thread() -> threadpool_limits:
    """Limit BLAS to one thread: after a call OpenBLAS's threads spin for a while on cores that XLA's want.

    Programs on CPU call SciPy's for factors and triangular solves; their products are XLA's own.
    """
    import scipy.linalg.cython_lapack  # noqa: F401, jaxlib loads it too, but when it compiles

    return threadpool_limits(1, user_api="blas")


def _non_finite_loss(problem: Problem, solver: AbstractSolver, losses: np.ndarray) -> str | None:
    """Return a message with the first of the losses [..., stages, iterations] that is not finite, or None."""
    bad = ~np.isfinite(losses)
    if not bad.any():
        return None
    *_, stage, iteration = np.argwhere(bad)[0]
    return (
        f"the loss of {type(solver).__name__} is not finite at iteration {iteration} of stage {stage} "
        f"({solver.describe_stage(problem, int(stage))}). {RESULTS[RESULTS.non_finite_loss]}"
    )
