"""Write the files of a run atomically: together they replace those of the last run."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .object_store import Place, StoredPath, is_url, local_copy, place_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MANIFEST = "run.json"
_STAGING = ".jaxtape-staging-"
_STAGED = re.compile(rf"{re.escape(_STAGING)}[a-z0-9_]{{8}}")  # as `tempfile` names them
_MOST_BYTES = 2**30
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for a writer


class AtomicOutput:
    """The files of one run in one folder.

    They are written to a hidden staging folder within the folder. A run that fails, or is interrupted, while
    writing them leaves the last run's files unchanged. If a run succeeds, its files are renamed into place, one
    after another.

    A run with a `command` also leaves a manifest with the size and digest of each file. It states `"complete":
    false` while files are renamed. So a run that was killed at that point can be recognized, and so can its
    files: those whose digests agree (`mismatched_files` lists the others).

    The folder may be in an object store, which cannot rename: the files are then made in a local temporary
    folder, and uploaded in the same order. Each of them appears whole.

    A run with a `command` replaces and removes only files of earlier runs, which the folder's manifest lists.
    If another file, or an input of the run, is in the way, `FileExistsError` is raised. A run without a command
    replaces whatever is there: its caller is responsible.
    """

    def __init__(
        self,
        folder: Place,
        command: str = "",
        names: Sequence[str] = (),
        *,
        manifest: str = MANIFEST,
        inputs: Iterable[Place | None] = (),
        facts: Mapping[str, str] | None = None,
    ):
        """Make the folder, and check that the files can be written to it; `OSError` is raised if not.

        Args:
            folder: The folder to write to; a path, or a URL such as gs://bucket/out.
            command: The command that made the files, for the manifest. Files without a command have no
                manifest.
            names: The names known in advance. If the run does not write one of them, an earlier run's file of
                that name is removed.
            manifest: The name of the manifest.
            inputs: Files that the run reads; None for options not given.
            facts: Further facts for the manifest, by name.
        """
        self._facts = facts or {}
        self.folder, self._command, self._names = place_of(folder), command, names
        self._manifest, self._inputs = manifest, [file for file in inputs if file is not None]
        if isinstance(self.folder, Path):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._require_replaceable(names)
        if isinstance(self.folder, StoredPath):
            probe = self.folder / f"{_STAGING}{'0' * 8}"
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)  # of another process of the run
        with self._staging():
            pass

    @contextlib.contextmanager
    def written(self) -> Iterator[Path]:
        """Yield a folder to write files to, under their final names; they are in place when the block ends.

        Raises:
            OSError: If a file could not be written or renamed; it names the file's final path.
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
        """Rename the files into place, after everything that takes disk space is done."""
        files = sorted(staging.iterdir())
        if isinstance(self.folder, Path):
            for file in files:
                _sync(file)
        new = {file.name for file in files}
        self._require_replaceable(new)
        removed = set(self._names) - new
        earlier = self._known() - new - {self._manifest}
        begun, complete = self._manifests(staging, files, earlier, earlier - removed)
        self._put(begun, self._manifest)
        for name in removed & earlier if self._command else removed:
            (self.folder / name).unlink(missing_ok=True)
        self._put(files)
        self._put(complete, self._manifest)

    def _put(self, files: Sequence[Path], name: str = "") -> None:
        """Move files into place, under their own names or under `name`."""
        for file in files:
            if isinstance(self.folder, StoredPath):
                (self.folder / (name or file.name)).write_bytes(file.read_bytes())
            else:
                file.replace(self.folder / (name or file.name))
        if files and isinstance(self.folder, Path):
            _sync(self.folder)

    def _require_replaceable(self, names: Iterable[str]) -> None:
        """Check that the files of these names and the manifest, if there are any, come from earlier runs.

        Raises:
            FileExistsError: If one is an input of this run, or is not listed in the folder's manifest.
            IsADirectoryError: If a folder has the name of a file.
        """
        places = {name: self.folder / name for name in dict.fromkeys((*names, self._manifest))}
        there = {name: place for name, place in places.items() if _is_there(place)}
        for place in there.values():
            if place.is_dir() and not place.is_symlink():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
        if not self._command:
            return
        for place in there.values():
            if any(_are_same(place, file) for file in self._inputs):
                raise FileExistsError(errno.EEXIST, "it is an input of this command", str(place))
        known = self._known()
        if foreign := [name for name in there if name not in known]:
            first, *others = foreign
            more = f" (nor {', '.join(others)})" if others else ""
            reason = f"it is there, and no earlier run of jaxtape wrote it{more}"
            raise FileExistsError(errno.EEXIST, reason, str(places[first]))

    def _known(self) -> set[str]:
        """Return the names of the existing files that earlier runs wrote, including the manifest."""
        try:
            manifest = _read_manifest(self.folder / self._manifest)
        except (FileNotFoundError, ValueError):
            return set()
        names = {*manifest["files"], *manifest.get("earlier", ())}
        return {name for name in names if _is_there(self.folder / name)} | {self._manifest}

    def _manifests(
        self, staging: Path, files: Sequence[Path], before: set[str], after: set[str]
    ) -> tuple[list[Path], list[Path]]:
        """Return the manifest for the time while files are renamed, and the one for afterwards.

        `before` and `after` name the files of earlier runs that exist at those times.
        """
        if not self._command:
            return [], []
        run = {
            "command": self._command,
            "version": version("jaxtape"),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            **self._facts,
        }
        digests = {file.name: _digest(file) for file in files}
        manifests = [staging / f"{self._manifest}.begun", staging / self._manifest]
        for manifest, complete in zip(manifests, (False, True), strict=True):
            earlier = sorted(after if complete else before)
            kept = {"earlier": earlier} if earlier else {}
            text = json.dumps({**run, "complete": complete, "files": digests, **kept}, indent=1)
            manifest.write_text(f"{text}\n", encoding="utf-8")
            if isinstance(self.folder, Path):
                _sync(manifest)
        return manifests[:1], manifests[1:]

    def _staging(self) -> tempfile.TemporaryDirectory:
        beside = self.folder if isinstance(self.folder, Path) else None
        return tempfile.TemporaryDirectory(prefix=_STAGING, dir=beside, ignore_cleanup_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait while another run writes to the folder, then remove the staging folders of killed runs.

        Without locks, as in an object store, there is no wait, and nothing is removed.
        """
        if fcntl is None or isinstance(self.folder, StoredPath):
            yield
            return
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
                for left in self.folder.glob(f"{_STAGING}*"):
                    if _STAGED.fullmatch(left.name) and not left.is_symlink():
                        shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(folder)


def local_path(path: str | os.PathLike) -> Path:
    """Return the path of a local file or folder.

    Raises:
        ValueError: If it is a URL, such as `gs://bucket/out`.
    """
    if is_url(path):
        raise ValueError(f"{os.fspath(path)}: is a URL; give a local path")
    return Path(path)


def read_bytes(file: Place) -> bytes:
    """Return the content of a file of a run.

    Raises:
        OSError: If it cannot be read, is not a regular file (a pipe may never end), or is too large.
    """
    if isinstance(file, StoredPath):
        return file.read_bytes()
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | _AT_ONCE)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe, a socket or a device", str(file))
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {_MOST_BYTES:,} bytes", str(file))
    return content


def read_json(file: Place) -> Any:
    """Return the content of a JSON file; `OSError` is raised if it cannot be read.

    Raises:
        ValueError: If it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(read_bytes(file).decode("utf-8"))
    except RecursionError:
        raise ValueError(f"{file}: is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{file}: is not JSON: {error}") from None


def mismatched_files(folder: str | os.PathLike) -> list[str]:
    """Return the names of the files in a folder's manifest that are not as the manifest's run wrote them.

    They are from another run, were changed since, or are missing. After a successful run there are none.
    `OSError` is raised if the folder has no manifest, `ValueError` if it is not JSON that a run wrote.
    """
    place = place_of(folder)
    files = _read_manifest(place / MANIFEST)["files"]
    places = {name: place / name for name in files}
    changed = lambda name: not places[name].is_file() or _digest(places[name]) != files[name]
    return [name for name in files if changed(name)]


def _read_manifest(label: Place) -> dict[str, Any]:
    """Return the manifest in a file, once it is known to name only files of its own folder.

    Raises:
        ValueError: If it is not a manifest of this library.
    """
    manifest = read_json(label)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not isinstance(manifest.get("command"), str):
        raise ValueError(f"{label} is not the manifest of a run: it names no files and no command")
    earlier = manifest.get("earlier", [])
    names = [*files, *earlier] if isinstance(earlier, list) else [""]
    facts = all(isinstance(fact, dict) and "sha256" in fact for fact in files.values())
    if not facts or not all(isinstance(name, str) and _is_plain(name) for name in names):
        raise ValueError(
            f"{label} is not the manifest of a run: it lists more than files of its folder"
        )
    return manifest


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & {"/", os.sep, "\0"}


def _is_there(place: Place) -> bool:
    return place.exists() if isinstance(place, StoredPath) else os.path.lexists(place)


def _are_same(place: Place, other: Place) -> bool:
    if isinstance(place, StoredPath) or isinstance(other, StoredPath):
        return place == other
    with contextlib.suppress(OSError):
        return os.path.samefile(place, other)
    return False


def _digest(file: Place) -> dict[str, int | str]:
    with local_copy(file) as copy, copy.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return {"bytes": copy.stat().st_size, "sha256": digest}


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    if path.is_dir() and os.name == "nt":  # Windows has no such call for folders
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
