"""The verb: which Y and Z solve a backward equation?"""

from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from threadpoolctl import threadpool_limits

from .problem import Problem
from .solution import RESULTS, Solution
from .solver import AbstractSolver
from .store import Store
from .training import Training, begun, continued
from .watch import listening, metrics_file, progress_bar

Keys = Key[Array, "*seeds"]


def solve(
    problem: Problem,
    solver: AbstractSolver,
    *,
    key: Keys,
    progress: bool = False,
    metrics: Path | None = None,
    checkpoint: Path | None = None,
    every: int = 1,
    throw: bool = True,
) -> Solution:
    """Train `solver` on `problem`: one program, from paths and optimizer steps to the last date.

    key: one, or many (seeds: [n]), which are solved side by side; then every array of the solution has an axis
    for them in front. metrics: a file .jsonl, or a folder that TensorBoard reads, for the numbers of each stage
    as it ends. checkpoint: a folder from which a killed run goes on to the same bits, kept `every` so many
    stages. Meanwhile BLAS has one thread, in the whole process.

    Raises TypeError for a problem that the solver does not solve; RuntimeError, if `throw`, where the loss is
    not finite, with stage, iteration and remedy (the checkpoint stays that of the stage before).
    """
    lacks = solver.lacks(problem)
    if lacks is not None:
        raise TypeError(f"{type(solver).__name__} does not solve this problem. It has {lacks}.")
    if every < 1:
        raise ValueError(f"every={every}: a checkpoint is kept after 1 stage or more.")
    count = solver.num_stages(problem)
    training = _over_keys(begun, key)(problem, solver, key)
    store = None if checkpoint is None else Store(checkpoint, problem, solver, key)
    if store is not None:
        training = store.latest(training)

    with (
        _lone_blas(),
        progress_bar(type(solver).__name__, count, progress) as bar,
        metrics_file(metrics) as file,
        listening(bar, file) as watch,
    ):
        done = int(np.max(training.stage))
        while done < count:
            stages = count - done if store is None else min(every, count - done)
            training = _over_keys(continued, key)(problem, solver, training, key, stages, watch)
            done += stages
            if throw:
                _refuse_non_finite(problem, solver, training.losses[..., :done, :])
            if store is not None:
                store.keep(training)
    return _over_keys(concluded, key)(problem, solver, training)


def _lone_blas() -> threadpool_limits:
    """BLAS on one thread: after a call those of OpenBLAS spin for a while, on the cores that XLA's want.

    Programs on CPU call SciPy's for factors and triangular solves; their products are XLA's own.
    """
    import scipy.linalg.cython_lapack  # noqa: F401, jaxlib loads it too, but when it compiles

    return threadpool_limits(1, user_api="blas")


def _over_keys(function, key: Keys):
    """The function, mapped over the keys if there are many: trainings and keys have them in front."""
    if key.ndim == 0:
        return function
    axes = {
        begun: (None, None, 0),
        continued: (None, None, 0, 0, None, None),
        concluded: (None, None, 0),
    }
    return eqx.filter_vmap(function, in_axes=axes[function])


def concluded(problem: Problem, solver: AbstractSolver, training: Training) -> Solution:
    """What a training found."""
    found = solver.approximation(problem, training.state, training.outputs)
    finite = jnp.all(jnp.isfinite(training.losses))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite)
    return Solution(problem, found, result, {"losses": training.losses})


def _refuse_non_finite(problem: Problem, solver: AbstractSolver, losses: Array) -> None:
    """losses: [..., stages, iterations]."""
    bad = ~np.isfinite(np.asarray(losses))
    if not bad.any():
        return
    *_, stage, iteration = np.argwhere(bad)[0]
    raise RuntimeError(
        f"the loss of {type(solver).__name__} is not finite at iteration {iteration} of stage {stage} "
        f"({solver.where(problem, int(stage))}). {RESULTS[RESULTS.non_finite]}"
    )
