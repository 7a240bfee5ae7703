"""Keep programs, and JAX's compiled ones, between processes; and the command `jaxtape cache`."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import typer

from ..jax_private import share_executables_among_devices
from ..output_folder import local_path
from ..programs.store import (
    PROGRAMS,
    set_program_store,
    store_in_use,
    stored_files,
    trim,
)

_EXECUTABLES = "*-cache"  # as JAX names them
_MAX_PROGRAM_BYTES, _MAX_EXECUTABLE_BYTES = 2**29, 2**31


def cache_folder() -> Path:
    """Return `$JAXTAPE_CACHE`, else `$XDG_CACHE_HOME/jaxtape`, else `~/.cache/jaxtape`.

    `ValueError` is raised if it is a URL, or the user has no home.
    """
    if own := os.environ.get("JAXTAPE_CACHE"):
        return local_path(own)
    return home_folder("XDG_CACHE_HOME", ".cache", "JAXTAPE_CACHE") / "jaxtape"


def home_folder(variable: str, within_home: str, remedy: str) -> Path:
    """Return the folder that a variable of the environment names, else the one within the user's home.

    remedy: The setting to recommend if there is no folder.

    Raises:
        ValueError: The variable holds a URL, or there is no home, as of a user without a passwd entry.
    """
    if given := os.environ.get(variable):
        return local_path(given)
    try:
        return Path.home() / within_home
    except RuntimeError:
        raise ValueError(f"this user has no home folder; set HOME or {remedy}") from None


def use_cache(job: str) -> Callable[[], None]:
    """Keep traced and compiled programs in the `cache_folder`, if it can be written.

    The programs that the last job of this name used are read while this one begins.

    If JAX already has a folder for compiled programs, and `$JAXTAPE_CACHE` names no other, that folder stays in
    use, and no programs are kept.

    Returns:
        A function to call at the end of the job.
    """
    if jax.config.values["jax_compilation_cache_dir"] and not os.environ.get("JAXTAPE_CACHE"):
        return lambda: None
    try:
        folder = _usable(cache_folder())
    except ValueError as error:
        print(f"jaxtape: no compilation cache: {error}", file=sys.stderr)
        return lambda: None
    trim(folder, _MAX_EXECUTABLE_BYTES, _EXECUTABLES)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_traceback_in_locations_limit", 0)  # programs are smaller without
    share_executables_among_devices()
    set_program_store(folder / "programs", budget=_MAX_PROGRAM_BYTES)
    store = store_in_use()
    return (lambda: None) if store is None else store.prefetch(job)


def _usable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ValueError(f"{folder}: {error.strerror}") from None


def cache(
    clear: Annotated[
        bool,
        typer.Option("--clear/--info", help="Remove the cache, or show its size (the default)."),
    ] = False,
) -> None:
    """Show or clear the cache of programs, which saves later commands tracing and compiling.

    Exit status: 0; 1 if a file could not be removed; 2 if there is no cache, or it cannot be read.

    Raises:
        Exit: Always.
    """
    failed = False
    try:
        folder = cache_folder()
        if folder.exists():
            os.listdir(folder)
    except (OSError, ValueError) as error:
        place = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        typer.echo(f"jaxtape: {place}; give a folder of yours in JAXTAPE_CACHE", err=True)
        raise typer.Exit(2) from None
    kinds = {
        "programs": (stored_files(folder / "programs", PROGRAMS), _MAX_PROGRAM_BYTES),
        "executables": (stored_files(folder, _EXECUTABLES), _MAX_EXECUTABLE_BYTES),
    }
    for kind, (files, most) in kinds.items():
        size = sum(status.st_size for _, status in files)
        typer.echo(f"{folder}: {len(files):,} {kind}, {size / 1e6:,.1f} MB of {most / 1e6:,.0f} MB")
        for path, _ in files if clear else ():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                failed = True
                typer.echo(f"jaxtape: {path}: cannot be removed: {error.strerror}", err=True)
    raise typer.Exit(int(failed))
