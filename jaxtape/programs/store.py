"""A folder of programs that outlive the process, and functions that are jitted with it.

A program's file is named by a digest of the program's inputs. A file appears whole, by a rename, and is
otherwise never changed: processes need no locks. A process that is killed leaves at most a part of a file under
another name, which is removed with the least recently used programs. If anything is wrong with a file, or with
the folder, the function is compiled as it would be without the store.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, overload

import equinox as eqx
import jax
from jax.core import Tracer

from ..jax_private import is_tracing
from ..jax_settings.platform import current_platform
from ..jax_settings.xla_flags import quick_options
from ..output_folder import local_path
from .code_fingerprint import describe_user_code
from .exported import (
    Program,
    arrays_of,
    exported,
    flattened,
    load,
    place_of,
    shape_of,
)
from .fingerprint import fingerprint, settings
from .pairs_of_reals import rewritten_for
from .pytree_json import PytreeSpec, has_name
from .recorded import record
from .status import report_status

_LOGGER = logging.getLogger("jaxtape")
_SUFFIX = ".jaxtape"
_NOTE = f"{_SUFFIX}-last"  # the programs that a job used
_MAX_PREFETCHED, _READERS = 64, 2
PROGRAMS = f"*{_SUFFIX}*"  # whole, or on their way, or notes of them
_OURS = re.compile(
    rf"[0-9a-f]+{re.escape(_SUFFIX)}(\..+)?|.+{re.escape(_NOTE)}(\..+)?|(jit|pmap)_.+-[0-9a-f]+-cache"
)
"""The names of programs, notes and JAX's executables; other names are of a user's files."""

Function = TypeVar("Function", bound=Callable)


class ProgramStore:
    """The programs in a folder, of `budget` bytes at most together."""

    def __init__(self, folder: Path, budget: int):
        self.folder, self.budget = folder, budget
        self._used: dict[str, None] = {}
        self._prefetched: dict[str, Future[Program | None]] = {}

    def find(self, name: str, arrays: Sequence[Any]) -> Program | None:
        """Return the program of that name, compiled for the arrays; None if there is none that can be."""
        self._used[name] = None
        ahead = self._prefetched.pop(name, None)
        return self._compiled(name, arrays, ahead and ahead.result())

    def _compiled(
        self, name: str, arrays: Sequence[Any] | None = None, found: Program | None = None
    ) -> Program | None:
        """Read a program, unless it is found, and compile it: for the arrays, or for such as it takes."""
        path = self.folder / f"{name}{_SUFFIX}"
        try:
            found = found or load(path)
            if found.name != name:  # it was renamed
                return None
            found.compiled(found.shapes if arrays is None else arrays)
        except FileNotFoundError:
            return None
        except Exception as error:  # a file can be wrong in countless ways
            _LOGGER.debug("%s is made again: %s", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used
        return found

    def prefetch(self, job: str) -> Callable[[], None]:
        """Read the programs that the last job of this name used, in threads, before this one needs them.

        Returns:
            A function that ends the job: it stops reading ahead, and notes the programs used for the next job.
        """
        note, before = self.folder / f"{job}{_NOTE}", tuple(self._used)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            listed = note.read_text(encoding="ascii").splitlines()[:_MAX_PREFETCHED]
            names = [name for name in listed if re.fullmatch("[0-9a-f]{64}", name)]
            pool = ThreadPoolExecutor(max_workers=_READERS)
            self._prefetched.update(
                {name: pool.submit(self._compiled, name) for name in names if name not in before}
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
        """Write a program, if that can be done; another process finds all of it or nothing."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.folder / f"{name}{_SUFFIX}", content)
        except OSError as error:
            _warn_once(str(self.folder), error.strerror or str(error))
        else:
            trim(self.folder, self.budget)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that others find whole or not at all.

    Raises:
        OSError: It cannot be written.
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
    """Return the files of a store, the most recently used first; another process may remove some meanwhile."""
    found = []
    with contextlib.suppress(OSError):  # of a folder that cannot be read nothing is known
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if _OURS.fullmatch(path.name) and path.is_file():
                    found.append((path, path.stat()))
    return sorted(found, key=lambda pair: -max(pair[1].st_atime, pair[1].st_mtime))


def trim(folder: Path, budget: int, pattern: str = PROGRAMS) -> None:
    """Remove the files that were not used for the longest time, until they take `budget` bytes at most."""
    total = 0
    for path, status in stored_files(folder, pattern):
        total += status.st_size
        if total > budget:
            with contextlib.suppress(OSError):
                path.unlink()


_current: ProgramStore | None = None


def set_program_store(folder: str | os.PathLike | None, *, budget: int = 2**29) -> None:
    """Keep the programs of this library in a folder, where other processes find them; None: do not.

    A program is found again if its function, the structure and shapes of its arguments, the sources of its
    packages, and the versions, settings and flags of JAX are the same; it is then not traced. Beside it JAX's
    own cache (`jax_compilation_cache_dir`) keeps compiled programs. A function with an argument that another
    process could not distinguish from others, such as a closure over one, is jitted as usual.

    Args:
        folder: The folder of the programs. Give one that only you can write: programs are run.
        budget: The bytes of all programs; the least recently used are removed.

    Examples:
        >>> import jaxtape as jt
        >>> jt.set_program_store(None)
    """
    global _current
    if folder is None:
        _current = None
    elif _current is None or (_current.folder, _current.budget) != (Path(folder), budget):
        _current = ProgramStore(local_path(folder), budget)


def store_in_use() -> ProgramStore | None:
    """Return the store of `set_program_store`."""
    return _current


@overload
def stored_jit(function: Function) -> Function: ...


@overload
def stored_jit(*, quick_to_compile: bool) -> Callable[[Function], Function]: ...


def stored_jit(function: Any = None, *, quick_to_compile: bool = False) -> Any:
    """Return `equinox.filter_jit(function)`, with programs from the store, if there is one.

    Args:
        function: A function of a module, whose results are made of arrays, modules, named tuples,
            dictionaries, lists and plain data. Without it, a decorator.
        quick_to_compile: Whether programs for CPUs are compiled without XLA's fusion emitters (jaxlib 0.10):
            half of the time for a program of hundreds of kernels, of which some may run slower.

    Examples:
        >>> import jax.numpy as jnp
        >>> import jaxtape as jt
        >>> @jt.stored_jit
        ... def total(tree):
        ...     return sum(tree.values())
        >>> int(total({"a": jnp.ones(()), "b": jnp.ones(())}))
        2
    """
    if function is None:
        return functools.partial(stored_jit, quick_to_compile=quick_to_compile)
    usual, in_pairs = eqx.filter_jit(function), eqx.filter_jit(_in_pairs_of_reals(function))
    programs: dict[Hashable, Program | None] = {}
    tracing: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)

    @functools.cache
    def quick(options: tuple) -> Callable:
        compiler: dict[str, Any] = {"compiler_options": dict(options)}
        return eqx.filter_jit(function, **compiler)

    @functools.wraps(function)
    def call(*args, **kwargs):
        store, arrays = _current, arrays_of((args, kwargs))
        options = quick_options() if quick_to_compile and not is_tracing() else {}
        jitted = quick(tuple(options.items())) if options else usual
        if current_platform() == "tpu" and not is_tracing():
            jitted = in_pairs
        is_disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
        if any(isinstance(array, Tracer) for array in arrays):
            return jitted(*args, **kwargs)
        record(function, args, kwargs)
        if store is None or is_disabled:
            return jitted(*args, **kwargs)
        signature = store, settings(), _signature((args, kwargs))
        with tracing[signature]:
            if signature not in programs:
                known_as = call if has_name(call) else function
                programs[signature] = _program(
                    store, function, known_as, args, kwargs, quick_to_compile
                )
        program = programs[signature]
        return jitted(*args, **kwargs) if program is None else program.run(arrays)

    return call


def _in_pairs_of_reals(function: Callable) -> Callable:
    """Return a function without complex128, for a TPU."""

    @functools.wraps(function)
    def rewritten(*args, **kwargs):
        flat, leaves, parts = flattened(function, args, kwargs, eqx.is_array)
        found = rewritten_for("tpu", flat)(*leaves)
        structure, rest = parts
        return eqx.combine(jax.tree.unflatten(structure, found), rest)

    return rewritten


def _signature(tree: Any) -> tuple:
    """Return a key that distinguishes calls of different programs, in this process."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(
        _type(leaf) if eqx.is_array(leaf) else (type(leaf), leaf) for leaf in leaves
    )


def _type(array: Any) -> tuple:
    of_numbers = jax.typeof(array)
    return of_numbers, of_numbers.weak_type, _place(array)


def _place(array: Any) -> jax.sharding.Sharding | None:
    """Return the sharding of an array if it changes the program, else None: the choice of device does not."""
    place = place_of(array)
    if isinstance(place, jax.sharding.SingleDeviceSharding):
        (device,) = place.device_set
        is_usual = place.memory_kind in (None, device.default_memory().kind)
        return None if is_usual and device.platform == jax.default_backend() else place
    return place


def _words_of(array: Any) -> list:
    """Return the words for an array whose shape, type and place identify the program."""
    *_, weak, sharding = _type(array)
    return [*shape_of(array), weak, sharding and PytreeSpec(sharding).json]


def _program(
    store: ProgramStore,
    function: Callable,
    known_as: Callable,
    args: tuple,
    kwargs: dict,
    quick_to_compile: bool,
) -> Program | None:
    """Return the program of a call: the one in the store, or a new one; None if there can be none."""
    try:
        described = PytreeSpec((known_as, args, kwargs), _words_of)
        made_of = fingerprint({*described.packages, __name__.partition(".")[0]})
        code = describe_user_code([function, *described.objects])
        words = json.dumps([described.json, code, made_of], sort_keys=True)
        name = hashlib.sha256(words.encode()).hexdigest()
        arrays = arrays_of((args, kwargs))
        with report_status(f"reading {function.__name__}"):
            if found := store.find(name, arrays):
                return found
        with report_status(f"tracing {function.__name__}"):
            content = exported(function, args, kwargs, name=name, quick_to_compile=quick_to_compile)
        made = Program(content)
        with report_status(f"compiling {function.__name__}"):
            made.compiled(arrays)
        store.keep(name, content)
        return made
    except Exception as error:  # the function's own are raised once more where it is jitted
        _LOGGER.debug("%s is jitted without the store: %s", function.__name__, error)
        return None


@functools.cache
def _warn_once(folder: str, reason: str) -> None:
    _LOGGER.warning("programs cannot be kept in %s, and are compiled again: %s", folder, reason)
