"""The files of a run, which take the places of the last run's together."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LABEL = "run.json"
_ASIDE = ".jaxtape-"


class FileSet:
    """The files of one run in one folder.

    They are written aside, in a hidden folder within the folder. A run that fails, or is interrupted, while
    they are written leaves the last run's files as they were. The files of a run that succeeds are renamed
    into place, one after the other.

    A run with a `command` also leaves a label, `run.json`, with the size and digest of each file. The label
    states `"complete": false` while files are renamed, so a run that was killed there is known, and so are its
    files: those whose digests agree (`strangers` names the others).
    """

    def __init__(self, folder: Path, command: str = "", optional: Sequence[str] = ()):
        """Make the folder, and make sure that it can be written; otherwise `OSError` is raised.

        Args:
            folder: Where the files go.
            command: What made them, for the label. Files without a command have no label.
            optional: Names of files that not every run writes; a run that does not removes the last run's.
        """
        self.folder, self._command, self._optional = Path(folder), command, optional
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._aside():
            pass

    @contextlib.contextmanager
    def written(self) -> Iterator[Path]:
        """Give a folder to write files to, under their own names; they are in place once the block has ended.

        Raises:
            OSError: A file could not be written or renamed; it names the file at its place.
        """
        with self._alone(), self._aside() as name:
            aside = Path(name)
            try:
                yield aside
                self._commit(aside)
            except OSError as error:
                if error.filename is not None:
                    error.filename = str(error.filename).replace(str(aside), str(self.folder))
                raise

    def _commit(self, aside: Path) -> None:
        """Rename the files into place, once all that takes room on the disk has been written.

        Raises:
            IsADirectoryError: A folder lies where a file is to go.
        """
        files = sorted(aside.iterdir())
        for file in files:
            _keep(file)
            if (self.folder / file.name).is_dir():
                code = errno.EISDIR
                raise IsADirectoryError(code, os.strerror(code), str(file))
        begun, complete = self._labels(aside, files)
        for label in begun:
            label.replace(self.folder / LABEL)
            _keep(self.folder)
        for name in set(self._optional) - {file.name for file in files}:
            (self.folder / name).unlink(missing_ok=True)
        for file in files:
            file.replace(self.folder / file.name)
        _keep(self.folder)
        for label in complete:
            label.replace(self.folder / LABEL)
            _keep(self.folder)

    def _labels(self, aside: Path, files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
        """Return the label of a run whose files are on their way, and of one whose files are there."""
        if not self._command:
            return [], []
        run = {
            "command": self._command,
            "version": version("jaxtape"),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        facts = {file.name: _facts(file) for file in files}
        labels = [aside / f"{LABEL}.begun", aside / LABEL]
        for label, complete in zip(labels, (False, True), strict=True):
            text = json.dumps({**run, "complete": complete, "files": facts}, indent=1)
            label.write_text(f"{text}\n", encoding="utf-8")
            _keep(label)
        return labels[:1], labels[1:]

    def _aside(self) -> tempfile.TemporaryDirectory:
        return tempfile.TemporaryDirectory(
            prefix=_ASIDE, dir=self.folder, ignore_cleanup_errors=True
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait while another run writes to the folder, then clears what killed runs have left aside.

        Where the system has no locks nobody waits, and nothing is cleared.
        """
        if fcntl is None:
            yield
            return
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
                for left in self.folder.glob(f"{_ASIDE}*"):
                    shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(folder)


def strangers(folder: Path) -> list[str]:
    """Name the files of a folder's label that are not those of the run that the label is of.

    They are another run's, were changed since, or are gone. There are none where a run ended well. `OSError` is
    raised if the folder has no label.

    Raises:
        ValueError: The label is not the JSON that a run writes.
    """
    label: Any = json.loads((Path(folder) / LABEL).read_text(encoding="utf-8"))
    files = label.get("files") if isinstance(label, dict) else None
    if not isinstance(files, dict):
        raise ValueError(f"{Path(folder) / LABEL} is not the label of a run: it names no files")
    places = {Path(folder) / name: facts for name, facts in files.items()}
    return [
        place.name
        for place, facts in places.items()
        if not place.is_file() or _facts(place) != facts
    ]


def _facts(file: Path) -> dict[str, int | str]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": digest}


def _keep(path: Path) -> None:
    """Have the system put a file, or the names in a folder, on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows has no such call for folders
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
