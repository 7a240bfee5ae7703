"""A folder of programs that outlive the process.

A program's file is named by a digest of the program's inputs. A file appears whole, by a rename, and never
changes afterwards: processes need no locks. A killed process leaves at most a partial file under another name,
which is removed along with the least recently used programs. If anything is wrong with a file or the folder,
the function is compiled as without the store.
"""

import contextlib
import functools
import logging
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from ..jax_private import every_program_kept
from .exported import Program, load, read

_LOGGER = logging.getLogger("jaxtape")
_SUFFIX = ".jaxtape"
_NOTE = f"{_SUFFIX}-last"  # lists the programs that a job used
_MAX_PREFETCHED, _READERS = 64, 2
PROGRAMS = f"*{_SUFFIX}*"  # whole or partial, and notes
_OURS = re.compile(
    rf"[0-9a-f]+{re.escape(_SUFFIX)}(\..+)?|.+{re.escape(_NOTE)}(\..+)?|(jit|pmap)_.+-[0-9a-f]+-cache"
)
"""The names of programs, notes and JAX's executables; all other files are the user's."""


class ProgramStore:
    """The programs in a folder, at most `budget` bytes in all."""

    def __init__(self, folder: Path, budget: int):
        self.folder, self.budget = folder, budget
        self._used: dict[str, None] = {}
        self._prefetched: dict[str, Future[Program | None]] = {}

    def find(self, name: str, arrays: Sequence[Any]) -> Program | None:
        """Return the program of that name, compiled for the arrays; None if there is no usable one."""
        self._used[name] = None
        ahead = self._prefetched.pop(name, None)
        return self._compiled(name, arrays, ahead and ahead.result())

    def _compiled(self, name: str, arrays: Sequence[Any], found: Program | None) -> Program | None:
        """Read a program, unless it was prefetched, and compile it for the arrays."""
        path = self.folder / f"{name}{_SUFFIX}"
        try:
            if found is None:
                found = load(path)
            else:  # prefetched, before its classes were imported
                found.check_results()
            if found.name != name:  # it was renamed
                return None
            with every_program_kept():
                found.compiled(arrays)
        except FileNotFoundError:
            return None
        except Exception as error:  # a file can be wrong in countless ways
            _LOGGER.debug("%s is rebuilt: %s", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # mark it as used
        return found

    def _ahead(self, name: str) -> Program | None:
        """Read a program and compile it for the arrays it takes, before its classes are imported."""
        try:
            found = Program.before_imports(read(self.folder / f"{name}{_SUFFIX}"))
            with every_program_kept(), jax.enable_x64(True):  # programs state their own types
                found.compiled(found.shapes)
        except Exception as error:  # `find` tries again and reports the reason
            _LOGGER.debug("%s is not prefetched: %s", name, error)
            return None
        return found

    def has_note_of(self, job: str) -> bool:
        """Return True if a job of this name has noted the programs it used."""
        return (self.folder / f"{job}{_NOTE}").is_file()

    def prefetch(self, job: str) -> Callable[[], None]:
        """Read the programs that the last job of this name used, in threads, before this job needs them.

        A second call continues the first.

        Returns:
            A function that ends the job: it stops prefetching, and notes the programs used, for the next job.
        """
        note, before = self.folder / f"{job}{_NOTE}", tuple(self._used)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            listed = note.read_text(encoding="ascii").splitlines()[:_MAX_PREFETCHED]
            names = [name for name in listed if re.fullmatch("[0-9a-f]{64}", name)]
            pool = ThreadPoolExecutor(max_workers=_READERS)
            self._prefetched.update(
                {
                    name: pool.submit(self._ahead, name)
                    for name in names
                    if name not in before and name not in self._prefetched
                }
            )
            pool.shutdown(wait=False)

        def end() -> None:
            for future in self._prefetched.values():
                future.cancel()
            self._prefetched.clear()
            if self._used and tuple(self._used) != before:
                with contextlib.suppress(OSError):
                    write_whole(note, "\n".join(self._used).encode())

        return end

    def keep(self, name: str, content: bytes) -> None:
        """Write a program, if possible; another process finds all of it or nothing."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.folder / f"{name}{_SUFFIX}", content)
        except OSError as error:
            _warn_once(str(self.folder), error.strerror or str(error))
        else:
            trim(self.folder, self.budget)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        OSError: If it cannot be written.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        aside = Path(file.name)
        try:
            file.write(content)
            file.flush()
        except OSError:
            aside.unlink(missing_ok=True)
            raise
    aside.replace(path)


def stored_files(folder: Path, pattern: str) -> list[tuple[Path, os.stat_result]]:
    """Return the files of a store, the most recently used first; another process may be removing some."""
    found = []
    with contextlib.suppress(OSError):  # an unreadable folder counts as empty
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if _OURS.fullmatch(path.name) and path.is_file():
                    found.append((path, path.stat()))
    return sorted(found, key=lambda pair: -max(pair[1].st_atime, pair[1].st_mtime))


def trim(folder: Path, budget: int, pattern: str = PROGRAMS) -> None:
    """Remove the least recently used files until the rest take at most `budget` bytes."""
    total = 0
    for path, status in stored_files(folder, pattern):
        total += status.st_size
        if total > budget:
            with contextlib.suppress(OSError):
                path.unlink()


@functools.cache
def _warn_once(folder: str, reason: str) -> None:
    _LOGGER.warning("programs cannot be kept in %s, and are compiled again: %s", folder, reason)
