"""What commands keep between processes: programs, and what JAX compiled of them; and `jaxtape cache`."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from jax._src import cache_key  # there is no public way to name what is compiled

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
    share_among_devices()
    set_program_store(folder / "programs", max_bytes=_MAX_PROGRAM_BYTES)
    store = store_in_use()
    return (lambda: None) if store is None else store.read_ahead(job)


def share_among_devices() -> None:
    """Let JAX find what it compiled for one device when another one of the kind asks, in this process or not.

    JAX does so on GPUs; elsewhere the name of a file has the number of the device. Only the first process of
    several writes, so that the others would compile at every run.
    """
    original = getattr(cache_key, "_hash_serialized_compile_options", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def of_any_device(digest: Any, options: Any, strip_device_assignment: bool = False) -> Any:
        devices = options.device_assignment
        is_one = devices and devices.replica_count() * devices.computation_count() == 1
        return original(digest, options, strip_device_assignment or is_one)

    cache_key._hash_serialized_compile_options = of_any_device


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
