"""The default folder for programs, unless a user names another or turns it off."""

import os
import sys
import tempfile
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from ..output_folder import local_path
from .store import ProgramStore, trim

EXECUTABLES = "*-cache"  # as JAX names them
MAX_PROGRAM_BYTES, MAX_EXECUTABLE_BYTES = 2**29, 2**31


class _GivenToJax:
    """The folder that this module gave JAX for compiled programs, None if it has another; and the last one."""

    folder: str | None = None
    before: str | None = None


_given = _GivenToJax()
_WORDS = ("on", "yes", "true", "1", "no", "false", "0")  # which would be folders


def cache_folder() -> Path | None:
    """Return `$JAXTAPE_CACHE`, else `$XDG_CACHE_HOME/jaxtape`, else `~/.cache/jaxtape`; None if it is "off".

    Raises:
        ValueError: If it is a URL or a word like "on", or the user has no home.
    """
    own = os.environ.get("JAXTAPE_CACHE")
    if own == "off":
        return None
    if own in _WORDS:
        raise ValueError(f'JAXTAPE_CACHE={own}: give a folder, "off", or nothing for the default')
    if own:
        return local_path(own)
    return home_folder("XDG_CACHE_HOME", ".cache", "JAXTAPE_CACHE") / "jaxtape"


def home_folder(variable: str, within_home: str, remedy: str) -> Path:
    """Return the folder that a variable of the environment names, else the one within the user's home.

    `remedy` is the setting to recommend if there is no folder.

    Raises:
        ValueError: If the variable holds a URL, or there is no home, as for a user without a passwd entry.
    """
    if given := os.environ.get(variable):
        return local_path(given)
    try:
        return Path.home() / within_home
    except RuntimeError:
        raise ValueError(f"this user has no home folder; set HOME or {remedy}") from None


def default_store(*, announce: bool) -> ProgramStore | None:
    """Return a store in the `cache_folder`, and let JAX keep what it compiles in the same folder.

    There is no store if `JAXTAPE_CACHE=off`, or if a user gave JAX a folder for compiled programs, which stays
    in use, and `$JAXTAPE_CACHE` names no other. If the folder cannot be written, a line on stderr says so.

    Args:
        announce: Whether a line on stderr says where programs are kept, once.
    """
    before = _folder_of_jax()
    if before and before != _given.folder and not os.environ.get("JAXTAPE_CACHE"):
        return None
    try:
        folder = cache_folder()
        if folder is None:
            return None
        is_new = not folder.exists()
        _check_usable(folder)
    except (OSError, ValueError) as error:
        print(f"jaxtape: no compilation cache: {error}", file=sys.stderr)
        return None
    if is_new and announce:
        size = (MAX_PROGRAM_BYTES + MAX_EXECUTABLE_BYTES) / 1e9
        print(
            f"jaxtape: programs are kept in {folder}, at most {size:.1f} GB, so that the next process need not "
            "compile them; JAXTAPE_CACHE=off turns this off",
            file=sys.stderr,
        )
    trim(folder, MAX_EXECUTABLE_BYTES, EXECUTABLES)
    if before != str(folder):
        if before != _given.folder:
            _given.before = before
        _given.folder = str(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        compilation_cache.reset_cache()  # JAX may have cached that it has none
    return ProgramStore(folder / "programs", MAX_PROGRAM_BYTES)


def follow_user() -> None:
    """Make JAX switch from the default folder to one that a user gave it later; alone it keeps the first."""
    if _given.folder is not None and _folder_of_jax() != _given.folder:
        _given.folder = None
        compilation_cache.reset_cache()


def take_back_folder() -> None:
    """Give JAX back the folder, if any, that it had before `default_store` gave it one."""
    if _given.folder is not None and _folder_of_jax() == _given.folder:
        jax.config.update("jax_compilation_cache_dir", _given.before)
    follow_user()


def _folder_of_jax() -> str | None:
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]


def _check_usable(folder: Path) -> None:
    """Check that a folder, which is made if necessary, is writable.

    Raises:
        ValueError: If it is not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder}: {error.strerror}") from None
