"""Cache traced and compiled programs between processes; and the command `jaxtape cache`."""

import contextlib
import os
from collections.abc import Callable
from typing import Annotated

import jax
import typer

from ..jax_private import share_executables_among_devices
from ..programs.default_store import (
    EXECUTABLES,
    MAX_EXECUTABLE_BYTES,
    MAX_PROGRAM_BYTES,
    cache_folder,
)
from ..programs.store import PROGRAMS, ProgramStore, stored_files
from ..programs.stored_jit import use_default_store


def use_cache(job: str) -> Callable[[], None]:
    """Cache traced and compiled programs in the `cache_folder`, if it is writable.

    The programs that the last job of this name used are prefetched while this one starts.

    Returns:
        A function to call at the end of the job.
    """
    store = use_default_store()
    if store is None:
        return lambda: None
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_traceback_in_locations_limit", 0)  # makes programs smaller
    share_executables_among_devices()
    return store.prefetch(job)


def read_ahead(job: str) -> Callable[[], None]:
    """Start to prefetch as `use_cache` does, before the command is imported, if there are programs to read.

    Returns:
        A function to call at the end of the job.
    """
    folder = None
    with contextlib.suppress(OSError, ValueError):  # `use_cache` reports it
        folder = cache_folder()
    if folder is None or not os.access(folder, os.W_OK):
        return lambda: None
    has_note = ProgramStore(folder / "programs", MAX_PROGRAM_BYTES).has_note_of(job)
    return use_cache(job) if has_note else lambda: None


def cache(
    clear: Annotated[
        bool,
        typer.Option("--clear/--info", help="Remove the cache, or show its size (the default)."),
    ] = False,
) -> None:
    """Show or clear the cache of programs, which spares later commands tracing and compiling.

    Exit status: 0; 1 if a file could not be removed; 2 if there is no cache, or it cannot be read.

    Raises:
        Exit: Always.
    """
    failed = False
    try:
        folder = cache_folder()
        if folder is None:
            typer.echo("nothing is kept: JAXTAPE_CACHE=off")
            raise typer.Exit(0)
        if folder.exists():
            os.listdir(folder)
    except (OSError, ValueError) as error:
        place = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        typer.echo(f"jaxtape: {place}; give a folder of yours in JAXTAPE_CACHE", err=True)
        raise typer.Exit(2) from None
    kinds = {
        "programs": (stored_files(folder / "programs", PROGRAMS), MAX_PROGRAM_BYTES),
        "executables": (stored_files(folder, EXECUTABLES), MAX_EXECUTABLE_BYTES),
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
