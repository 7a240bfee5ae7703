"""Trainings and solutions on disk: checkpoints, saved solutions, and exported programs."""

import hashlib
import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.export
import numpy as np
from jaxtyping import Array, Key

from jaxtape.jax_settings.matmul_precision import matmul_precision_context
from jaxtape.output_folder import AtomicOutput, local_path, read_json
from jaxtape.programs.code_fingerprint import describe_user_code
from jaxtape.programs.pytree_json import PytreeSpec, by_value

from .functions import digests
from .problem import Problem
from .solution import Solution
from .solver import AbstractSolver
from .stages import Training, init, postprocess

Keys = Key[Array, "*seeds"]
_STAGES = "stages"
_MARK = b'{"solution of": '
_SOFTWARE = "jaxtape", "jax", "jaxlib"
_NUMBERS = "settings", "maturity", "x0"
_LONGEST_HEADER = 2**26
_KEPT = 2  # checkpoints: should the machine die while the last is written, there is the one before


class Checkpoints:
    """The folder of checkpoints of one run, that is of one problem, solver and key; orbax writes them.

    Raises ValueError if the folder holds another run's, ImportError without orbax.
    """

    def __init__(self, folder: Path, problem: Problem, solver: AbstractSolver, *, key: Keys):
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise ImportError("checkpoints need orbax: pip install 'jaxtape[fbsde]'") from error
        self._ocp = ocp
        self._folder = local_path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._require_same_run(_run_of(problem, solver, key))
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

    def _require_same_run(self, run: dict[str, Any]) -> None:
        label = self._folder / "run.json"
        if not label.exists():
            if (stages := self._folder / _STAGES).exists():
                raise ValueError(f"{stages} is of no run of this library: give another folder.")
            with AtomicOutput(self._folder).written() as aside:
                text = json.dumps(run, indent=1)
                (aside / label.name).write_text(text, encoding="utf-8")
            return
        if differing := _differing(read_json(label), run):
            raise ValueError(
                f"{self._folder} holds another run (different: {', '.join(differing)}): "
                "give another folder, or what that run was given."
            )


def _identity(problem: Problem) -> dict[str, Any]:
    """Identify a problem by its numbers, the digests of its functions, and the software."""
    settings = [problem.dim, problem.num_steps, problem.scheme, problem.reads_gamma]
    settings += [problem.exercise_dates, problem.stopping_dates]
    rest = [] if problem.jumps is None else [problem.jumps.rate, problem.jumps.most]
    return {
        "settings": repr([*settings, *map(float, rest)]),
        "maturity": float(problem.maturity),
        "x0": [str(problem.x0.dtype), problem.x0.tolist()],
        "software": {name: version(name) for name in _SOFTWARE},
        **digests(problem),
    }


def _run_of(problem: Problem, solver: AbstractSolver, key: Keys) -> dict[str, Any]:
    """Identify a run. A solver with a part that cannot be described is a TypeError."""
    described = PytreeSpec(solver, by_value)
    code = json.dumps([described.json, describe_user_code(described.objects)])
    return {
        **_identity(problem),
        "solver": hashlib.sha256(code.encode()).hexdigest(),
        "key": repr(jax.random.key_data(key).tolist()),
    }


def _differing(found: Any, wanted: dict[str, Any]) -> list[str]:
    """Return the names of the parts in which two identities differ."""
    found = found if isinstance(found, dict) else {}
    return [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]


def save(solution: Solution, path: Path) -> None:
    """Write every number of a solution; `load` needs the problem and the solver, whose code is not saved.

    Of a solver that `solve` chose, stats["solver"], the certificates are left out. A file that `save` wrote
    before is replaced once the new one is whole.

    Args:
        solution: The solution to save.
        path: The file to write; without a suffix it gets `.eqx`.

    Raises:
        ValueError: Another file is at that path, or the solution is of many keys.

    Examples:
        >>> from pricing.fbsde import Solution, save
        >>> def keep(solution: Solution, folder):
        ...     save(solution, folder / "solution.eqx")
    """
    path = local_path(path)
    path = path if path.suffix else path.with_suffix(".eqx")
    if path.exists() and not _holds_solution(path):
        raise ValueError(f"{path} holds no solution, and is left as it is: give another path.")
    trained = {"losses": solution.stats["losses"]}
    if np.ndim(trained["losses"]) > 2:
        raise ValueError(
            "the solution is of many keys: save jax.tree.map(lambda x: x[n], solution)"
        )
    solution = eqx.tree_at(lambda s: s.stats, solution, trained)
    with AtomicOutput(path.parent).written() as aside, (aside / path.name).open("wb") as file:
        file.write(_MARK + f"{json.dumps(_identity(solution.problem))}}}\n".encode())
        eqx.tree_serialise_leaves(file, solution)


def _holds_solution(path: Path) -> bool:
    """Return True if a file is empty, or begins like a file of `save`."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MARK)) in (b"", _MARK)


def load(path: Path, problem: Problem, solver: AbstractSolver) -> Solution:
    """Read a solution that `save` wrote.

    Args:
        path: The file to read.
        problem: The problem that was solved. Its functions must compute the same as when the solution was
            saved. Where another version of JAX wrote the file and compiles them differently, that cannot be
            checked, and there is a warning.
        solver: The solver that solved it.

    Returns:
        The solution, equal in every number to the one that was saved.

    Raises:
        ValueError: The file holds a solution of another problem or solver, or none.

    Examples:
        >>> from pricing.fbsde import DeepBSDE, load, problems
        >>> def restore(folder):
        ...     return load(folder / "solution.eqx", problems.allen_cahn(100), DeepBSDE())
    """
    training = eqx.filter_eval_shape(lambda key: init(problem, solver, key=key), jax.random.key(0))
    like = eqx.filter_eval_shape(postprocess, problem, solver, training)
    with Path(path).open("rb") as file:
        try:
            saved = json.loads(file.readline(_LONGEST_HEADER))["solution of"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is no solution that this version of save wrote: save it again."
            ) from error
        _require_same_problem(path, saved, problem)
        try:
            return eqx.tree_deserialise_leaves(file, like)
        except (RuntimeError, ValueError, EOFError) as error:
            raise ValueError(
                f"{path} holds a solution by another solver, or a part of one ({error}): give the solver "
                "it was saved with."
            ) from error


def _require_same_problem(path: Path, saved: Any, problem: Problem) -> None:
    """Refuse a file of another problem; warn where that cannot be known.

    Raises:
        ValueError: The file holds the solution of another problem.
    """
    wanted = _identity(problem)
    differing = _differing(saved, wanted)
    if "software" in differing and isinstance(saved, dict) and set(saved) == set(wanted):
        unknown = [name for name in differing if name not in _NUMBERS]
        differing = [name for name in differing if name in _NUMBERS]
        if functions := ", ".join(name for name in unknown if name != "software"):
            warnings.warn(
                f"{path} was written with {saved['software']}, and this is {wanted['software']}: whether "
                f"{functions} compute the same as then cannot be checked.",
                stacklevel=3,
            )
    if differing:
        raise ValueError(
            f"{path} holds the solution of another problem (different: {', '.join(differing)}): "
            "give the problem it was saved with."
        )


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
    with matmul_precision_context():  # of the platforms, whichever this is
        exported = jax.export.export(program, platforms=platforms)(*arguments)
    return bytes(exported.serialize())
