"""The loop over a solver's stages, from the initial state to a solution, and its checkpoints on disk."""

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from jaxtape import stored_jit
from jaxtape.output_folder import AtomicOutput, local_path, read_json
from jaxtape.programs.code_fingerprint import describe_user_code
from jaxtape.programs.pytree_json import PytreeSpec, by_value

from ..progress import Progress
from .functions import differing, identity
from .problem import Problem
from .showing import RunNote
from .solution import Solution
from .solver import RESULTS, AbstractSolver
from .stage_metrics import metrics_file

Keys = Key[Array, "*seeds"]
_STAGES = "stages"
_KEPT = 2  # checkpoints: the previous one survives a failure while the last is written


class TrainingState(NamedTuple):
    """A solver's state after `stage` stages; `outputs` and `losses` have one row per stage."""

    state: PyTree[Array]
    outputs: PyTree[Array]
    losses: Array
    stage: Array


def train(
    problem: Problem,
    solver: AbstractSolver,
    key: Keys,
    progress: Progress | None = None,
    throw: bool = True,
    *,
    metrics: Path | None = None,
    resume: Path | None = None,
    every: int = 1,
) -> Solution:
    """Run all stages of a solver; the arguments are those of `solve`.

    Raises:
        TypeError: The problem has a feature that the solver cannot handle.
        ValueError: `every` is below 1.
        RuntimeError: The loss is not finite, and `throw`.
    """
    reason = solver.unsupported_reason(problem)
    if reason is not None:
        raise TypeError(f"{type(solver).__name__} does not solve this problem. It has {reason}.")
    if every < 1:
        raise ValueError(f"every={every}: give 1 or more stages between checkpoints.")
    count = solver.num_stages(problem)
    started = time.perf_counter()
    over_keys = eqx.filter_vmap if key.ndim else lambda function: function
    checkpoints = None if resume is None else StageCheckpoints(resume, problem, solver, key=key)
    training = over_keys(lambda key: init(problem, solver, key=key))(key)
    if checkpoints is not None:
        training = checkpoints.latest(training)

    with metrics_file(metrics) as write_metrics:
        start = done = int(np.max(training.stage))
        is_watched = progress is not None or write_metrics is not None
        pace = 1 if is_watched else count if checkpoints is None else every
        while done < count:
            stages = jnp.asarray(min(pace, count - done), jnp.int32)
            further = lambda training, key, stages=stages: step(
                problem, solver, training, stages, key=key
            )
            training = eqx.combine(over_keys(further)(training, key), training)
            done = min(done + pace, count)
            if is_watched:
                latest = over_keys(lambda training: _latest_metrics(solver, training))(training)
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
    solution = over_keys(lambda training: postprocess(problem, solver, training))(training)
    return with_note(solution, solver, started)


def with_note(solution: Solution, solver: AbstractSolver, started: float | None) -> Solution:
    """Return a solution with a note of its solver and the seconds since `started`."""
    seconds = None if started is None else time.perf_counter() - started
    return dataclasses.replace(solution, run=RunNote(type(solver).__name__, seconds))


@stored_jit
def init(problem: Problem, solver: AbstractSolver, *, key: PRNGKeyArray) -> TrainingState:
    """Return the training state before the first stage."""
    first, stages = jax.random.split(key)
    state = solver.init(problem, key=first)
    zero = jnp.zeros((), jnp.int32)
    changed, output, losses = eqx.filter_eval_shape(_stage, problem, solver, state, zero, stages)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, eqx.combine(changed, state))
    chex.assert_rank(losses, 1)
    count = solver.num_stages(problem)
    rows = lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype)
    return TrainingState(state, jax.tree.map(rows, output), rows(losses), zero)


@eqx.filter_jit  # traced once for the shapes and the loop
def _stage(problem: Problem, solver: AbstractSolver, state, stage: Array, key: PRNGKeyArray):
    """Return the arrays of the state that a stage changes, its output and its losses."""
    after, output, losses = solver.stage(problem, state, stage, key=key)
    return _changed(after, state), output, losses


def _changed(after: PyTree[Array], before: PyTree[Array]) -> PyTree[Array]:
    """Return the arrays that are not those before; None for the others."""
    return jax.tree.map(lambda new, old: None if new is old else new, after, before)


@stored_jit
def step(
    problem: Problem,
    solver: AbstractSolver,
    training: TrainingState,
    num_stages: Array,
    *,
    key: PRNGKeyArray,
) -> TrainingState:
    """Return the training state after `num_stages` more stages; one program for any number.

    An array that no stage changes, such as the stored paths, is None: as a result it would be copied.
    """
    _, stages = jax.random.split(key)

    def one_stage(_: Any, training: TrainingState) -> TrainingState:
        state, outputs, losses, stage = training
        stage_key = jax.random.fold_in(stages, stage)
        changed, output, loss = _stage(problem, solver, state, stage, stage_key)
        outputs = jax.tree.map(lambda rows, row: rows.at[stage].set(row), outputs, output)
        losses = losses.at[stage].set(loss)
        return TrainingState(eqx.combine(changed, state), outputs, losses, stage + 1)

    return _changed(jax.lax.fori_loop(0, num_stages, one_stage, training), training)


def postprocess(problem: Problem, solver: AbstractSolver, training: TrainingState) -> Solution:
    """Return the solution of a training."""
    approximation = solver.postprocess(problem, training.state, training.outputs)
    finite = jnp.all(jnp.isfinite(training.losses))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite_loss)  # pyright: ignore[reportArgumentType]
    return Solution(problem, approximation, result, {"losses": training.losses})


@stored_jit
def _latest_metrics(solver: AbstractSolver, training: TrainingState) -> dict[str, Array]:
    return {"loss": training.losses[training.stage - 1, -1], **solver.metrics(training.state)}


def _non_finite_loss(problem: Problem, solver: AbstractSolver, losses: np.ndarray) -> str | None:
    """Return a message on the first non-finite loss of [..., stages, iterations], or None."""
    bad = ~np.isfinite(losses)
    if not bad.any():
        return None
    *_, stage, iteration = np.argwhere(bad)[0]
    return (
        f"the loss of {type(solver).__name__} is not finite at iteration {iteration} of stage {stage} "
        f"({solver.describe_stage(problem, int(stage))}). {RESULTS[RESULTS.non_finite_loss]}"
    )


class StageCheckpoints:
    """The checkpoint folder of one run (one problem, solver and key), written by orbax.

    Raises ValueError if the folder belongs to another run, ImportError without orbax.
    """

    def __init__(self, folder: Path, problem: Problem, solver: AbstractSolver, *, key: Keys):
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise ImportError("checkpoints need orbax: pip install 'jaxtape[fbsde]'") from error
        self._ocp = ocp
        self._folder = local_path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        run, label = _run_of(problem, solver, key), self._folder / "run.json"
        if label.exists():
            if parts := differing(read_json(label), run):
                raise ValueError(
                    f"{self._folder} holds another run (different: {', '.join(parts)}): "
                    "give another folder, or the arguments of that run."
                )
        else:
            if (stages := self._folder / _STAGES).exists():
                raise ValueError(
                    f"{stages} does not belong to a run of this library: give another folder."
                )
            with AtomicOutput(self._folder).written() as aside:
                text = json.dumps(run, indent=1)
                (aside / label.name).write_text(text, encoding="utf-8")
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(self._folder / _STAGES, options=options)

    def latest(self, like: TrainingState) -> TrainingState:
        """Return the last saved training state; `like` if there is none."""
        stage = self._manager.latest_step()
        if stage is None:
            return like
        found = self._manager.restore(stage, args=self._ocp.args.StandardRestore(like._asdict()))
        return TrainingState(**found)

    def save(self, training: TrainingState) -> None:
        """Write a training state, and delete the oldest ones beyond those kept."""
        stage = int(np.max(training.stage))
        self._manager.save(stage, args=self._ocp.args.StandardSave(training._asdict()))
        self._manager.wait_until_finished()


def _run_of(problem: Problem, solver: AbstractSolver, key: Keys) -> dict[str, Any]:
    """Return the identity of a run; a solver with a part that cannot be described raises TypeError."""
    described = PytreeSpec(solver, by_value)
    code = json.dumps([described.json, describe_user_code(described.objects)])
    return {
        **identity(problem),
        "solver": hashlib.sha256(code.encode()).hexdigest(),
        "key": repr(jax.random.key_data(key).tolist()),
    }
