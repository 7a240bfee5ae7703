"""The loop over a solver's stages, its solution, and the metrics that it writes."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from jaxtape import stored_jit
from jaxtape.output_folder import local_path

from .problem import Problem
from .results import RESULTS
from .solution import Solution
from .solver import AbstractSolver


class Training(NamedTuple):
    """A solver's state after `stage` stages; outputs and losses have rows for all, those to come empty."""

    state: PyTree[Array]
    outputs: PyTree[Array]
    losses: Array
    stage: Array


@stored_jit
def init(problem: Problem, solver: AbstractSolver, *, key: PRNGKeyArray) -> Training:
    """Return the training before the first stage."""
    first, stages = jax.random.split(key)
    state = solver.init(problem, key=first)
    zero = jnp.zeros((), jnp.int32)
    after, output, losses = eqx.filter_eval_shape(_stage, problem, solver, state, zero, stages)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, after)
    chex.assert_rank(losses, 1)
    count = solver.num_stages(problem)
    rows = lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype)  # noqa: E731
    return Training(state, jax.tree.map(rows, output), rows(losses), zero)


@eqx.filter_jit  # traced once, for the shapes and for the loop
def _stage(problem: Problem, solver: AbstractSolver, state, stage: Array, key: PRNGKeyArray):
    return solver.stage(problem, state, stage, key=key)


@stored_jit
def step(
    problem: Problem,
    solver: AbstractSolver,
    training: Training,
    num_stages: Array,
    *,
    key: PRNGKeyArray,
) -> Training:
    """Return the training `num_stages` stages further: one program, whatever their number."""
    _, stages = jax.random.split(key)

    def one_stage(_: Any, training: Training) -> Training:
        state, outputs, losses, stage = training
        stage_key = jax.random.fold_in(stages, stage)
        state, output, loss = _stage(problem, solver, state, stage, stage_key)
        outputs = jax.tree.map(lambda rows, row: rows.at[stage].set(row), outputs, output)
        return Training(state, outputs, losses.at[stage].set(loss), stage + 1)

    return jax.lax.fori_loop(0, num_stages, one_stage, training)


def postprocess(problem: Problem, solver: AbstractSolver, training: Training) -> Solution:
    """Return the solution that a training found."""
    approximation = solver.postprocess(problem, training.state, training.outputs)
    finite = jnp.all(jnp.isfinite(training.losses))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite_loss)  # pyright: ignore[reportArgumentType]
    return Solution(problem, approximation, result, {"losses": training.losses})


# --- Events --------------------------------------------------------------------------------------------


_LONGEST = 2**20  # bytes of a line that are looked at
Metrics = dict[str, np.ndarray]  # with many keys: a number for each


@stored_jit
def latest_metrics(solver: AbstractSolver, training: Training) -> dict[str, Array]:
    """Return numbers to watch of the last stage that has ended."""
    return {"loss": training.losses[training.stage - 1, -1], **solver.metrics(training.state)}


@contextlib.contextmanager
def metrics_file(path: Path | None) -> Iterator[Callable[[int, Metrics], None] | None]:
    """Append one JSON object a stage to `path`; in a folder: metrics.jsonl and events for TensorBoard.

    Raises:
        ValueError: The file holds something else.
    """
    if path is None:
        yield None
        return
    path = local_path(path)
    with contextlib.ExitStack() as open_files:
        board = None
        if path.suffix != ".jsonl":
            path.mkdir(parents=True, exist_ok=True)
            board = open_files.enter_context(_event_writer(path))
            path = path / "metrics.jsonl"
        if path.exists() and not _holds_metrics(path):
            raise ValueError(f"{path} holds no metrics, and is left as it is: give another path.")
        lines = open_files.enter_context(path.open("a", encoding="utf-8"))

        def listener(stage: int, metrics: Metrics) -> None:
            row = {name: value.tolist() for name, value in metrics.items()}
            lines.write(f"{json.dumps({'stage': stage, **row})}\n")
            lines.flush()
            if board is not None:
                for name, value in metrics.items():
                    board.add_scalar(name, float(np.mean(value)), stage)

        yield listener


def _holds_metrics(path: Path) -> bool:
    """Return True if the first line of a file is that of a stage, or the file is empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(_LONGEST)
    return first.startswith(b'{"stage": ') or not first


def _event_writer(folder: Path):
    """Return a writer of TensorBoard's events.

    Raises:
        ImportError: tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f"metrics={folder} is a folder, for TensorBoard: pip install 'jaxtape[fbsde]', or name a .jsonl"
        ) from error
    return SummaryWriter(str(folder))
