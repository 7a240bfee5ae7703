"""What commands keep between processes: programs, and what JAX compiled of them; and `jaxtape cache`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import typer

from .store import PROGRAMS, files_of, set_program_store, store_in_use, trim

_EXECUTABLES = "*-cache"  # as JAX names them
_MAX_PROGRAM_BYTES, _MAX_EXECUTABLE_BYTES = 2**29, 2**31


def cache_folder() -> Path:
    """Return `$JAXTAPE_CACHE`, else `$XDG_CACHE_HOME/jaxtape`, else `~/.cache/jaxtape`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("JAXTAPE_CACHE") or Path(home) / "jaxtape")


def use_cache(job: str) -> Callable[[], None]:
    """Keep what is traced and compiled in the `cache_folder`, if it can be written.

    The programs that the last job of this name used are read while this one begins.

    Where JAX has been given a folder for what it compiles, and `$JAXTAPE_CACHE` names no other, that one is
    left as it is, and no programs are kept.

    Returns:
        What is to be called at the end of the job.
    """
    if jax.config.values["jax_compilation_cache_dir"] and not os.environ.get("JAXTAPE_CACHE"):
        return lambda: None
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"jaxtape: no compilation cache: {folder}: {error.strerror}", file=sys.stderr)
        return lambda: None
    trim(folder, _MAX_EXECUTABLE_BYTES, _EXECUTABLES)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_traceback_in_locations_limit", 0)  # programs are smaller without
    set_program_store(folder / "programs", max_bytes=_MAX_PROGRAM_BYTES)
    store = store_in_use()
    return (lambda: None) if store is None else store.read_ahead(job)


def cache(
    clear: Annotated[
        bool, typer.Option("--clear/--info", help="Remove all of it, or say how much there is.")
    ] = False,
) -> None:
    """Show, or clear, what commands keep so that the next one traces and compiles nothing again.

    Exit status: 0; 1 if a file could not be removed.

    Raises:
        Exit: Always.
    """
    folder, failed = cache_folder(), False
    kinds = {
        "programs": (files_of(folder / "programs", PROGRAMS), _MAX_PROGRAM_BYTES),
        "executables": (files_of(folder, _EXECUTABLES), _MAX_EXECUTABLE_BYTES),
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
