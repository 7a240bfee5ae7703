"""Results of a run over many jobs, kept on disk: one orbax step for each round, numbered by its end.

A step has the columns of the round and a digest of its jobs. A step that was being written when the machine
stopped does not count.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtape.output_folder import AtomicOutput, local_path, read_json
from jaxtape.programs.code_fingerprint import describe_user_code
from jaxtape.programs.pytree_json import PytreeSpec, by_value

from .calibrations import Calibrations
from .job import Job
from .searches import Settings
from .workers import Workers

_LABEL, _ROUNDS = "calibration-run.json", "rounds"
_ROUND = re.compile(r"\d+(\.orbax-checkpoint-tmp.*)?")  # as orbax names steps
_RESULTS = (
    "results"  # the key of a label for the digest of a file that holds all that its rounds hold
)
_SOFTWARE = "jaxtape", "jax", "jaxlib"


class Checkpoints:
    """The folder of one run: of one objective, optimizer, and free parameters with their starts.

    The first process reads and writes it, and broadcasts the content. Raises ValueError if the folder holds
    another run, ImportError without orbax.
    """

    def __init__(self, folder: Path, settings: Settings, round_size: int, workers: Workers):
        self.folder, self._workers = local_path(folder).absolute(), workers
        refusal, self._manager, known = "", None, {}
        if workers.is_first:
            self._ocp = _orbax()
            try:
                software = {name: version(name) for name in _SOFTWARE}
                run = {"settings": _digest_of(settings), "round": round_size, "software": software}
                self._require_same_run(run)
                self._manager = self._opened()
                known = {str(step): self._read(step) for step in self._manager.all_steps()}
            except (ValueError, OSError) as error:
                refusal = str(error)
        if refusal := workers.told(refusal):
            raise ValueError(refusal)
        self._known: dict[str, dict[str, Any]] = workers.told(known)

    def found(self, end: int, jobs: Sequence[Job]) -> Calibrations | None:
        """Return the results of the round that ends with job number `end`; None if it is still to be fitted.

        Raises:
            ValueError: That round had other jobs.
        """
        kept = self._known.pop(str(end), None)
        if kept is None:
            return None
        if kept["digest"] != _digest_of_jobs(jobs):
            raise ValueError(
                f"{self.folder} holds a run over other quotes: the jobs {end - len(jobs) + 1:,} to {end:,} "
                "were others; give another folder, or the quotes that it was begun with"
            )
        return Calibrations.of_columns(kept["columns"])

    def save(self, end: int, jobs: Sequence[Job], found: Calibrations) -> None:
        """Write the results of a round."""
        if self._manager is None:
            return
        numbers = {name: x for name, x in found.columns.items() if x.dtype != object}
        texts = {name: x.tolist() for name, x in found.columns.items() if name not in numbers}
        words = {"digest": _digest_of_jobs(jobs), "order": list(found.columns), "columns": texts}
        args = self._ocp.args
        self._manager.save(
            end,
            args=args.Composite(
                numbers=args.StandardSave(numbers),
                words=args.JsonSave(words),
            ),
        )
        self._manager.wait_until_finished()

    def _opened(self) -> Any:
        """Return orbax's manager, to be used by this process alone."""
        alone = self._ocp.options.MultiprocessingOptions(
            primary_host=jax.process_index(),
            active_processes={jax.process_index()},
            barrier_sync_key_prefix="calibrations",
        )
        options = self._ocp.CheckpointManagerOptions(
            enable_async_checkpointing=False, multiprocessing_options=alone, create=False
        )
        rounds = self.folder / _ROUNDS
        rounds.mkdir(exist_ok=True)
        return self._ocp.CheckpointManager(rounds, options=options)

    def _read(self, step: int) -> dict[str, Any]:
        """Return the digest and the columns of a round, as lists."""
        args = self._ocp.args
        wanted = args.Composite(numbers=args.StandardRestore(), words=args.JsonRestore())
        found = self._manager.restore(step, args=wanted)  # pyright: ignore[reportOptionalMemberAccess]
        numbers = {name: np.asarray(x).tolist() for name, x in found.numbers.items()}
        columns = {**found.words["columns"], **numbers}
        in_order = {name: columns[name] for name in found.words["order"]}
        return {"digest": found.words["digest"], "columns": in_order}

    def _require_same_run(self, run: dict[str, Any]) -> None:
        if not (self.folder / _LABEL).exists():
            _require_rounds_alone(self.folder, is_new=True)
            _write_label(self.folder, run)
            return
        found = _label_of(self.folder)
        if wrong := [name for name in run if run[name] != found.get(name)]:
            raise ValueError(
                f"{self.folder} holds another run (other: {', '.join(wrong)}): give another folder, or what "
                "that run was given"
            )


def finish(folder: Path, results: Path) -> None:
    """Note that a file holds the results of the run that is kept in a folder: its rounds are needed no more."""
    _write_label(folder, {**_label_of(folder), _RESULTS: _digest_of_file(results)})


def forget(folder: Path, results: Path) -> None:
    """Remove what a run has kept in a folder, if its results are in a file; with it nothing is lost.

    results: the file to which the last run has written its results.

    Raises:
        ValueError: The kept rounds are not in `results`, or no run of this library kept them.
    """
    label = folder / _LABEL
    count = _require_rounds_alone(folder, is_new=not label.exists())
    if not label.exists():
        return
    digest = _label_of(folder).get(_RESULTS)
    if count and (digest is None or not results.is_file() or digest != _digest_of_file(results)):
        raise ValueError(
            f"{folder} holds {count} rounds of a run that has not ended: give --resume to complete it, or "
            "another folder"
        )
    label.unlink()
    shutil.rmtree(folder / _ROUNDS, ignore_errors=True)


def _require_rounds_alone(folder: Path, *, is_new: bool) -> int:
    """Return the number of rounds kept in a folder; where the run is new, there may be none.

    Raises:
        ValueError: A folder of their name is there with something else, or without the label of a run.
    """
    rounds = folder / _ROUNDS
    names = [path.name for path in rounds.iterdir()] if rounds.is_dir() else []
    is_other = rounds.exists() and (not rounds.is_dir() or rounds.is_symlink())
    if is_other or (names and is_new) or not all(map(_ROUND.fullmatch, names)):
        raise ValueError(f"{rounds}: is there, and no run of jaxtape made it; give another folder")
    return len(names)


def _label_of(folder: Path) -> dict[str, Any]:
    """Return the content of the label of a run.

    Raises:
        ValueError: It is not one.
    """
    found = read_json(folder / _LABEL)
    if not isinstance(found, dict) or not {"settings", "round"} <= found.keys():
        raise ValueError(f"{folder / _LABEL}: is of no run of jaxtape; give another folder")
    return found


def _write_label(folder: Path, run: dict[str, Any]) -> None:
    with AtomicOutput(folder).written() as aside:
        (aside / _LABEL).write_text(json.dumps(run, indent=1), encoding="utf-8")


def _digest_of_file(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _orbax() -> Any:
    """Return orbax.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError("checkpoints need orbax: pip install 'jaxtape[many]'") from error
    return ocp


def _digest_of(settings: Settings) -> str:
    """Return a digest of the settings, and of the code of a user's objective, optimizer or transforms.

    Raises:
        ValueError: A part of them cannot be described, so that no later run could know it again.
    """
    words = {}
    for name, part in vars(settings).items():
        try:
            described = PytreeSpec(part, by_value)
            words[name] = [described.json, describe_user_code(described.objects)]
        except TypeError as error:
            raise ValueError(
                f"a run with this {name} cannot be resumed, since a later one could not compare it ({error}): "
                "define its functions and classes at the top of a module, or leave out resume"
            ) from error
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def _digest_of_jobs(jobs: Sequence[Job]) -> str:
    """Return a digest of the names and numbers of jobs, in their order."""
    digest = hashlib.sha256()
    for job in jobs:
        leaves, structure = jax.tree.flatten(job.inputs)
        digest.update(f"{job.id!r} {job.unreadable!r} {structure}".encode())
        for leaf in leaves:
            array = np.asarray(leaf)
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
