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

MANIFEST = "run.json"
_STAGING = ".jaxtape-"


class FileSet:
    """The files of one run in one folder.

    They are written to a staging folder, hidden within the folder. A run that fails, or is interrupted, while
    they are written leaves the last run's files as they were. The files of a run that succeeds are renamed
    into place, one after the other.

    A run with a `command` also leaves a manifest, `run.json`, with the size and digest of each file. It states
    `"complete": false` while files are renamed. A run that was killed there is known by it, and so are its
    files: those whose digests agree (`mismatched_files` names the others).
    """

    def __init__(self, folder: Path, command: str = "", optional: Sequence[str] = ()):
        """Make the folder, and make sure that it can be written; otherwise `OSError` is raised.

        Args:
            folder: Where the files go.
            command: What made them, for the manifest. Files without a command have no manifest.
            optional: Names of files that not every run writes; a run that does not removes the last run's.
        """
        self.folder, self._command, self._optional = Path(folder), command, optional
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._staging():
            pass

    @contextlib.contextmanager
    def written(self) -> Iterator[Path]:
        """Give a folder to write files to, under their own names; they are in place once the block has ended.

        Raises:
            OSError: A file could not be written or renamed; it names the file at its place.
        """
        with self._locked(), self._staging() as name:
            staging = Path(name)
            try:
                yield staging
                self._commit(staging)
            except OSError as error:
                if error.filename is not None:
                    error.filename = str(error.filename).replace(str(staging), str(self.folder))
                raise

    def _commit(self, staging: Path) -> None:
        """Rename the files into place, once all that takes room on the disk is done.

        Raises:
            IsADirectoryError: A folder stands in the place of a file.
        """
        files = sorted(staging.iterdir())
        for file in files:
            _sync(file)
            if (self.folder / file.name).is_dir():
                code = errno.EISDIR
                raise IsADirectoryError(code, os.strerror(code), str(file))
        begun, complete = self._manifests(staging, files)
        for manifest in begun:
            manifest.replace(self.folder / MANIFEST)
            _sync(self.folder)
        for name in set(self._optional) - {file.name for file in files}:
            (self.folder / name).unlink(missing_ok=True)
        for file in files:
            file.replace(self.folder / file.name)
        _sync(self.folder)
        for manifest in complete:
            manifest.replace(self.folder / MANIFEST)
            _sync(self.folder)

    def _manifests(self, staging: Path, files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
        """Return the manifest of a run whose files are on their way, and of one whose files are there."""
        if not self._command:
            return [], []
        run = {
            "command": self._command,
            "version": version("jaxtape"),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        facts = {file.name: _digest(file) for file in files}
        manifests = [staging / f"{MANIFEST}.begun", staging / MANIFEST]
        for manifest, complete in zip(manifests, (False, True), strict=True):
            text = json.dumps({**run, "complete": complete, "files": facts}, indent=1)
            manifest.write_text(f"{text}\n", encoding="utf-8")
            _sync(manifest)
        return manifests[:1], manifests[1:]

    def _staging(self) -> tempfile.TemporaryDirectory:
        return tempfile.TemporaryDirectory(
            prefix=_STAGING, dir=self.folder, ignore_cleanup_errors=True
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait while another run writes to the folder, then clears the staging folders of killed runs.

        Where the system has no locks nobody waits, and nothing is cleared.
        """
        if fcntl is None:
            yield
            return
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
                for left in self.folder.glob(f"{_STAGING}*"):
                    shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(folder)


def mismatched_files(folder: Path) -> list[str]:
    """Name the files of a folder's manifest that are not those of the run that the manifest is of.

    They are another run's, were changed since, or are gone. There are none where a run ended well. `OSError` is
    raised if the folder has no manifest.

    Raises:
        ValueError: The manifest is not the JSON that a run writes.
    """
    label = Path(folder) / MANIFEST
    manifest: Any = json.loads(label.read_text(encoding="utf-8"))
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        raise ValueError(f"{label} is not the manifest of a run: it names no files")
    places = {label.with_name(name): facts for name, facts in files.items()}
    changed = lambda place: not place.is_file() or _digest(place) != places[place]  # noqa: E731
    return [place.name for place in places if changed(place)]


def _digest(file: Path) -> dict[str, int | str]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": digest}


def _sync(path: Path) -> None:
    """Have the system put a file, or the names in a folder, on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows has no such call for folders
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
