"""Checkpoint a run over many jobs: one file of NumPy arrays per round, numbered by its last job.

A file has the columns of the round and a digest of its jobs. It is written atomically.
"""

import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtape.jax_settings.single_on_devices import precision_in_use
from jaxtape.object_store import Place, StoredPath, local_copy
from jaxtape.output_folder import AtomicOutput, read_bytes, read_json
from jaxtape.programs.code_fingerprint import describe_user_code
from jaxtape.programs.pytree_json import PytreeSpec, by_value

from .calibrations import Calibrations
from .job import Job
from .searches import Settings
from .workers import Workers

_LABEL, _ROUNDS = "calibration-run.json", "rounds"
_ROUND = re.compile(r"\d+\.npz|\.jaxtape-staging-\w{8}")  # the second is left by a killed run
_FACTS = "jaxtape"  # the entry with a round's digest, names and strings
_RESULTS = (
    "results"  # the key of a label for the digest of a file that holds the results of all rounds
)
_SOFTWARE = "jaxtape", "jax", "jaxlib"


class KeptRounds:
    """The folder of one run, with one objective, optimizer, and set of free parameters and starts.

    The first process reads and writes it, and broadcasts the content. ValueError is raised if the folder holds
    another run.
    """

    def __init__(self, folder: Place, settings: Settings, round_size: int, workers: Workers):
        self.folder = folder.absolute() if isinstance(folder, Path) else folder
        self._workers = workers
        refusal, known = "", {}
        if workers.is_first:
            try:
                self._require_same_run({**facts_of(settings), "round": round_size})
                self._output = AtomicOutput(self.folder / _ROUNDS)
                files = self._output.folder.iterdir()
                known = {file.stem: _read(file) for file in files if file.suffix == ".npz"}
            except ConnectionError:
                raise  # a retry may help
            except (ValueError, OSError) as error:
                refusal = str(error)
        if refusal := workers.broadcast(refusal):
            raise ValueError(refusal)
        self._known: dict[str, dict[str, Any]] = workers.broadcast(known)

    def found(self, end: int, jobs: Sequence[Job]) -> Calibrations | None:
        """Return the results of the round that ends with job number `end`; None if it is not yet fitted.

        Raises:
            ValueError: If that round had other jobs.
        """
        kept = self._known.pop(str(end), None)
        if kept is None:
            return None
        if kept["digest"] != digest_of_jobs(jobs):
            raise ValueError(
                f"{self.folder} holds a run over other quotes: the jobs {end - len(jobs) + 1:,} to {end:,} "
                "were others; give another folder, or the quotes with which it was started"
            )
        return Calibrations.of_columns(kept["columns"])

    def save(self, end: int, jobs: Sequence[Job], found: Calibrations) -> None:
        """Write the results of a round, in the first process."""
        if not self._workers.is_first:
            return
        columns = found.columns
        texts = {name: x.tolist() for name, x in columns.items() if x.dtype == object}
        facts = {"digest": digest_of_jobs(jobs), "order": list(columns), "columns": texts}
        arrays: dict[str, Any] = {name: x for name, x in columns.items() if name not in texts}
        arrays[_FACTS] = np.array(json.dumps(facts))
        with self._output.written() as aside:
            np.savez(aside / f"{end}.npz", **arrays)

    def _require_same_run(self, run: dict[str, Any]) -> None:
        if not (self.folder / _LABEL).exists():
            _require_rounds_alone(self.folder, is_new=True)
            _write_label(self.folder, run)
            return
        found = _label_of(self.folder)
        if wrong := [name for name in run if run[name] != found.get(name)]:
            raise ValueError(
                f"{self.folder} holds another run (other: {', '.join(wrong)}): give another folder, or what "
                "was given to that run"
            )


def _read(file: Place) -> dict[str, Any]:
    """Return the digest and the columns of a round, as lists.

    Raises:
        ValueError: If the file does not hold a round.
    """
    try:
        with np.load(io.BytesIO(read_bytes(file)), allow_pickle=False) as kept:
            facts = json.loads(kept[_FACTS].item())
            columns = {name: kept[name].tolist() for name in kept.files if name != _FACTS}
            columns |= facts["columns"]
            in_order = {name: columns[name] for name in facts["order"]}
            return {"digest": facts["digest"], "columns": in_order}
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file}: is not a round of a run ({error}); give another folder"
        ) from None


def finish(folder: Place, results: Place) -> None:
    """Note that a file holds the results of the run in a folder: its rounds are no longer needed."""
    _write_label(folder, {**_label_of(folder), _RESULTS: _digest_of_file(results)})


def forget(folder: Place, results: Place) -> None:
    """Remove the rounds kept in a folder, if their results are in the file `results`, so that nothing is lost.

    Raises:
        ValueError: If the kept rounds are not in `results`, or are not from a run of this library.
    """
    label = folder / _LABEL
    count = _require_rounds_alone(folder, is_new=not label.exists())
    if not label.exists():
        return
    digest = _label_of(folder).get(_RESULTS)
    if count and (digest is None or not results.is_file() or digest != _digest_of_file(results)):
        raise ValueError(
            f"{folder} holds {count} rounds of an unfinished run: give --resume to complete it, or "
            "another folder"
        )
    rounds = folder / _ROUNDS
    if isinstance(rounds, StoredPath):
        for file in rounds.files():
            file.unlink()
    else:
        shutil.rmtree(rounds, ignore_errors=True)
    label.unlink()


def _require_rounds_alone(folder: Place, *, is_new: bool) -> int:
    """Return the number of rounds kept in a folder, which must be 0 for a new run.

    Raises:
        ValueError: If a folder of that name holds something else, or lacks the label of a run.
    """
    rounds = folder / _ROUNDS
    names = [path.name for path in rounds.iterdir()] if rounds.is_dir() else []
    is_other = rounds.exists() and (not rounds.is_dir() or rounds.is_symlink())
    if is_other or (names and is_new) or not all(map(_ROUND.fullmatch, names)):
        raise ValueError(
            f"{rounds}: exists, and was not made by a run of jaxtape; give another folder"
        )
    return sum(name.endswith(".npz") for name in names)


def _label_of(folder: Place) -> dict[str, Any]:
    """Return the content of the label of a run.

    Raises:
        ValueError: If it is not one.
    """
    found = read_json(folder / _LABEL)
    if not isinstance(found, dict) or not {"settings", "round"} <= found.keys():
        raise ValueError(f"{folder / _LABEL}: is not from a run of jaxtape; give another folder")
    return found


def _write_label(folder: Place, run: dict[str, Any]) -> None:
    with AtomicOutput(folder).written() as aside:
        (aside / _LABEL).write_text(json.dumps(run, indent=1), encoding="utf-8")


def _digest_of_file(file: Place) -> str:
    with local_copy(file) as copy, copy.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def facts_of(settings: Settings) -> dict[str, Any]:
    """Return the facts on which results depend: a digest of the settings, the software, the precision."""
    software = {name: version(name) for name in _SOFTWARE}
    digest = _digest_of(settings)
    return {"settings": digest, "software": software, "precision": precision_in_use()}


def _digest_of(settings: Settings) -> str:
    """Return a digest of the settings, and of the code of a user's objective, optimizer or transforms.

    Raises:
        ValueError: If a part of them cannot be described, so that no later run could recognize it.
    """
    words = {}
    for name, part in vars(settings).items():
        try:
            described = PytreeSpec(part, by_value)
            words[name] = [described.json, describe_user_code(described.objects)]
        except TypeError as error:
            raise ValueError(
                f"a run with this {name} cannot be resumed, because a later run could not compare "
                f"it ({error}): "
                "define its functions and classes at the top of a module, or leave out resume"
            ) from error
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def digest_of_jobs(jobs: Sequence[Job]) -> str:
    """Return a digest of the names and numbers of jobs, in order."""
    digest = hashlib.sha256()
    for job in jobs:
        leaves, structure = jax.tree.flatten(job.inputs)
        digest.update(f"{job.id!r} {job.unreadable!r} {structure}".encode())
        for leaf in leaves:
            array = np.asarray(leaf)
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
