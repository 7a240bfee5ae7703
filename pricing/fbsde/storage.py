"""Trainings and solutions on disk: checkpoints, saved solutions, and exported programs."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.export
import numpy as np
from jaxtyping import Array, Key

from jaxtape.file_set import FileSet, local_path, read_json
from jaxtape.full_products import full_products

from .problem import Problem
from .solution import Solution
from .solver import AbstractSolver
from .training import Training, init, postprocess

Keys = Key[Array, "*seeds"]
_STAGES = "stages"
_OF_LEAVES = b"\x93NUMPY"
_KEPT = 2  # checkpoints: should the machine die while the last is written, there is the one before


class Checkpoints:
    """The folder of checkpoints of one run, that is of one problem, solver and key; orbax writes them.

    Raises ValueError if the folder holds those of another run, ImportError without orbax.
    """

    def __init__(self, folder: Path, problem: Problem, solver: AbstractSolver, *, key: Keys):
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise ImportError("checkpoints need orbax: pip install 'jaxtape[fbsde]'") from error
        self._ocp = ocp
        self._folder = local_path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._require_same_run(_fingerprint(problem, solver, key))
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(self._folder / _STAGES, options=options)

    def latest(self, like: Training) -> Training:
        """Return the last training that was saved; `like` if there is none."""
        stage = self._manager.latest_step()
        if stage is None:
            return like
        found = self._manager.restore(stage, args=self._ocp.args.StandardRestore(like._asdict()))
        return Training(**found)

    def save(self, training: Training) -> None:
        """Write a training, and delete the oldest if there are more than are kept."""
        stage = int(np.max(training.stage))
        self._manager.save(stage, args=self._ocp.args.StandardSave(training._asdict()))
        self._manager.wait_until_finished()

    def _require_same_run(self, run: dict) -> None:
        label = self._folder / "run.json"
        if not label.exists():
            if (stages := self._folder / _STAGES).exists():
                raise ValueError(f"{stages} is of no run of this library: give another folder.")
            with FileSet(self._folder).written() as aside:
                text = json.dumps(run, indent=1)
                (aside / label.name).write_text(text, encoding="utf-8")
            return
        found = read_json(label)
        found = found if isinstance(found, dict) else {}
        wrong = [name for name in run if run[name] != found.get(name)]
        if wrong:
            raise ValueError(
                f"{self._folder} holds another run (other: {', '.join(wrong)}): "
                "give another folder, or what that run was given."
            )


def _fingerprint(problem: Problem, solver: AbstractSolver, key: Keys) -> dict[str, str]:
    """Return what must be the same for a run to go on; of the problem its numbers, functions have no name."""
    numbers = [np.asarray(x).tolist() for x in jax.tree.leaves(eqx.filter(problem, eqx.is_array))]
    dates = problem.num_steps, problem.exercise_dates, problem.stopping_dates
    return {
        "problem": repr((problem.dim, problem.scheme, dates, numbers)),
        "solver": eqx.tree_pformat(solver, short_arrays=False, width=10**6),
        "key": repr(jax.random.key_data(key).tolist()),
    }


def save(solution: Solution, path: Path) -> None:
    """Write every number of a solution; `load` needs the problem and the solver, whose code is not saved.

    Of a solver that `solve` chose, stats["solver"], the certificates are left out. A file that `save` wrote
    before is replaced once the new one is whole.

    Args:
        solution: The solution to save.
        path: The file to write; without a suffix it gets `.eqx`.

    Raises:
        ValueError: Another file is at that path.

    Examples:
        >>> from pricing.fbsde import Solution, save
        >>> def keep(solution: Solution, folder):
        ...     save(solution, folder / "solution.eqx")
    """
    path = local_path(path)
    path = path if path.suffix else path.with_suffix(".eqx")
    if path.exists() and not _holds_leaves(path):
        raise ValueError(f"{path} holds no solution, and is left as it is: give another path.")
    trained = {"losses": solution.stats["losses"]}
    solution = eqx.tree_at(lambda s: s.stats, solution, trained)
    with FileSet(path.parent).written() as aside:
        eqx.tree_serialise_leaves(aside / path.name, solution)


def _holds_leaves(path: Path) -> bool:
    """Return whether a file begins as one of `tree_serialise_leaves` does, or is empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_OF_LEAVES)) in (b"", _OF_LEAVES)


def load(path: Path, problem: Problem, solver: AbstractSolver) -> Solution:
    """Read a solution that `save` wrote.

    Args:
        path: The file to read.
        problem: The problem that was solved.
        solver: The solver that solved it.

    Returns:
        The solution, equal in every number to the one that was saved.

    Raises:
        ValueError: The file's numbers are of other shapes or types than this solver's for this problem.

    Examples:
        >>> from pricing.fbsde import DeepBSDE, load, problems
        >>> def restore(folder):
        ...     return load(folder / "solution.eqx", problems.allen_cahn(100), DeepBSDE())
    """
    training = eqx.filter_eval_shape(lambda key: init(problem, solver, key=key), jax.random.key(0))
    like = eqx.filter_eval_shape(postprocess, problem, solver, training)
    try:
        return eqx.tree_deserialise_leaves(Path(path), like)
    except RuntimeError as error:
        raise ValueError(
            f"{path} holds another solution ({error}): give the problem and the solver it was saved with."
        ) from error


def export(solution: Solution, figure: str = "value") -> bytes:
    """Export a program (t, x) -> figure, for CPUs, GPUs and TPUs, that needs neither problem nor solver.

    `jax.export.deserialize(program).call(t, x)` runs it, with t and x in the precision of the problem's x0.

    Args:
        solution: The solution to export.
        figure: "value", "delta" or "gamma".

    Returns:
        The serialized program.

    Raises:
        ValueError: There is no such figure.

    Examples:
        >>> from pricing.fbsde import export
        >>> def write_delta(solution, path):
        ...     path.write_bytes(export(solution, "delta"))
    """
    figures = {"value": solution.value, "delta": solution.delta, "gamma": solution.gamma}
    if figure not in figures:
        raise ValueError(f"figure={figure!r}: give 'value', 'delta' or 'gamma'.")
    x0 = solution.problem.x0
    arguments = jax.ShapeDtypeStruct((), x0.dtype), jax.ShapeDtypeStruct(x0.shape, x0.dtype)
    platforms = ("cpu", "cuda", "tpu")
    program = jax.jit(lambda t, x: figures[figure](t, x))
    with full_products():  # of the platforms, whichever this is
        exported = jax.export.export(program, platforms=platforms)(*arguments)
    return bytes(exported.serialize())
