"""Trainings on disk, by orbax: what a killed run goes on from."""

import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from jaxtape.file_set import FileSet

from .problem import Problem
from .solver import AbstractSolver
from .training import Training

Keys = Key[Array, "*seeds"]
_KEPT = 2  # checkpoints: should the machine die while the last is written, there is the one before


class Store:
    """A folder of checkpoints of one run: one problem, solver and key.

    Raises ValueError if the folder holds those of another run, ImportError without orbax.
    """

    def __init__(self, folder: Path, problem: Problem, solver: AbstractSolver, key: Keys):
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise ImportError("checkpoints need orbax: pip install 'jaxtape[fbsde]'") from error
        self._ocp = ocp
        self._folder = Path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._belongs_to(_fingerprint(problem, solver, key))
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(self._folder / "stages", options=options)

    def latest(self, like: Training) -> Training:
        """The last training that was kept; `like` if there is none."""
        stage = self._manager.latest_step()
        if stage is None:
            return like
        found = self._manager.restore(stage, args=self._ocp.args.StandardRestore(like._asdict()))
        return Training(**found)

    def keep(self, training: Training) -> None:
        stage = int(np.max(training.stage))
        self._manager.save(stage, args=self._ocp.args.StandardSave(training._asdict()))
        self._manager.wait_until_finished()

    def _belongs_to(self, run: dict) -> None:
        label = self._folder / "run.json"
        if not label.exists():
            with FileSet(self._folder).written() as aside:
                text = json.dumps(run, indent=1)
                (aside / label.name).write_text(text, encoding="utf-8")
            return
        found = json.loads(label.read_text(encoding="utf-8"))
        wrong = [name for name in run if run[name] != found.get(name)]
        if wrong:
            raise ValueError(
                f"{self._folder} holds another run (other: {', '.join(wrong)}): "
                "give another folder, or what that run was given."
            )


def _fingerprint(problem: Problem, solver: AbstractSolver, key: Keys) -> dict[str, str]:
    """What must be the same for a run to go on: numbers of the problem (its functions have no name to hold)."""
    numbers = [np.asarray(x).tolist() for x in jax.tree.leaves(eqx.filter(problem, eqx.is_array))]
    dates = problem.num_steps, problem.exercise_dates, problem.stopping_dates
    return {
        "problem": repr((problem.dim, problem.scheme, dates, numbers)),
        "solver": eqx.tree_pformat(solver, short_arrays=False, width=10**6),
        "key": repr(jax.random.key_data(key).tolist()),
    }
