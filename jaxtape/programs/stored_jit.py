"""Jit functions with programs from a store."""

import functools
import hashlib
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable
from pathlib import Path
from typing import Any, TypeVar, overload

import equinox as eqx
import jax
from jax.core import Tracer

from ..jax_private import every_program_kept, is_tracing
from ..jax_settings.platform import current_platform
from ..jax_settings.xla_flags import compiler_options
from ..output_folder import local_path
from .code_fingerprint import describe_user_code
from .default_store import default_store, follow_user, take_back_folder
from .exported import Program, arrays_of, exported, flattened, place_of, shape_of
from .fingerprint import fingerprint, settings
from .pytree_json import PytreeSpec, has_name
from .recorded import record
from .rewritten import rewritten_for
from .status import report_status
from .store import ProgramStore

_LOGGER = logging.getLogger("jaxtape")

Function = TypeVar("Function", bound=Callable)


class _Setting:
    """The store of this process; the first function that needs it opens the default one."""

    def __init__(self):
        self.store: ProgramStore | None = None
        self.is_chosen = False
        self.lock = threading.Lock()


_setting = _Setting()


def set_program_store(folder: str | os.PathLike | None, *, budget: int = 2**29) -> None:
    """Keep the programs of this library in a folder, where other processes find them; None turns this off.

    By default they are kept in `$JAXTAPE_CACHE`, else in `$XDG_CACHE_HOME/jaxtape`, else in `~/.cache/jaxtape`,
    where JAX also keeps what it compiles; `JAXTAPE_CACHE=off` turns this off. If JAX already has its own folder
    for compiled programs (`jax_compilation_cache_dir`), nothing is kept by default. If JAX is given one later,
    it uses it from the next call of a function of this library.

    A stored program is reused, without tracing, if its function, the structure and shapes of its arguments, the
    sources of its packages, and the versions, settings and flags of JAX are the same. A function with an
    argument that another process cannot identify, such as an open file, is jitted as usual.

    Args:
        folder: The folder of the programs. Give one that only you can write: programs are run.
        budget: The maximum bytes of all programs; beyond it, the least recently used are removed.

    Examples:
        >>> import jaxtape as jt
        >>> jt.set_program_store(None)
    """
    current = _setting.store
    if folder is None:
        _choose(None)
    elif current is None or (current.folder, current.budget) != (Path(folder), budget):
        _choose(ProgramStore(local_path(folder), budget))
    with _setting.lock:
        take_back_folder()


def store_in_use() -> ProgramStore | None:
    """Return the store set by `set_program_store`, by default that of `default_store`."""
    with _setting.lock:
        if not _setting.is_chosen:
            _setting.store, _setting.is_chosen = default_store(announce=True), True
        follow_user()
        return _setting.store


def use_default_store() -> ProgramStore | None:
    """Open the default store again, without announcement, and return it.

    If the store in use has the same folder, it stays open, with the programs already loaded.
    """
    found, current = default_store(announce=False), _setting.store
    is_same = (
        found is not None
        and current is not None
        and (found.folder, found.budget) == (current.folder, current.budget)
    )
    _choose(current if is_same else found)
    return _setting.store


def _choose(store: ProgramStore | None) -> None:
    with _setting.lock:
        _setting.store, _setting.is_chosen = store, True


@overload
def stored_jit(function: Function) -> Function: ...


@overload
def stored_jit(
    *, quick_to_compile: bool = False, runs_briefly: bool = False
) -> Callable[[Function], Function]: ...


def stored_jit(
    function: Any = None, *, quick_to_compile: bool = False, runs_briefly: bool = False
) -> Any:
    """Return `equinox.filter_jit(function)`, with programs from the store (`set_program_store`).

    Like that of `equinox.filter_jit`, the function has a method `lower`, whose program is not stored.

    Args:
        function: A function of a module, whose results are made of arrays, modules, named tuples,
            dictionaries, lists and plain data. Without it, a decorator.
        quick_to_compile: Whether programs for CPUs are compiled without XLA's fusion emitters (jaxlib 0.10),
            which halves the time for a program of hundreds of kernels, some of which may run slower.
        runs_briefly: Whether a run is so short that programs for CPUs are compiled without LLVM's
            optimizations, in a third of the time; they run two to three times as long.

    Examples:
        >>> import jax.numpy as jnp
        >>> import jaxtape as jt
        >>> @jt.stored_jit
        ... def total(tree):
        ...     return sum(tree.values())
        >>> int(total({"a": jnp.ones(()), "b": jnp.ones(())}))
        2
    """
    asked = {"quick_to_compile": quick_to_compile, "runs_briefly": runs_briefly}
    if function is None:
        return functools.partial(stored_jit, **asked)
    kinds = [kind for kind, is_asked in asked.items() if is_asked]
    usual, rewritten = eqx.filter_jit(function), eqx.filter_jit(_rewritten(function))
    programs: dict[Hashable, Program | None] = {}
    tracing: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)

    @functools.cache
    def quick(options: tuple) -> Callable:
        compiler: dict[str, Any] = {"compiler_options": dict(options)}
        return eqx.filter_jit(function, **compiler)

    def jitted_here() -> Any:
        if current_platform() != "cpu" and not is_tracing():
            return rewritten
        options = compiler_options(kinds) if kinds and not is_tracing() else {}
        return quick(tuple(options.items())) if options else usual

    @functools.wraps(function)
    def call(*args, **kwargs):
        arrays, jitted = arrays_of((args, kwargs)), jitted_here()
        is_disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
        if any(isinstance(array, Tracer) for array in arrays):
            return jitted(*args, **kwargs)
        record(function, args, kwargs)
        store = None if is_disabled else store_in_use()
        if store is None:
            return jitted(*args, **kwargs)
        signature = store, settings(), _signature((args, kwargs))
        with tracing[signature]:
            if signature not in programs:
                known_as = call if has_name(call) else function
                programs[signature] = _program(store, function, known_as, args, kwargs, kinds)
        program = programs[signature]
        return jitted(*args, **kwargs) if program is None else program.run(arrays)

    lower = lambda *args, **kwargs: jitted_here().lower(*args, **kwargs)
    call.lower = lower  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _rewritten(function: Callable) -> Callable:
    """Return a function as it is compiled for the current platform, where that is no CPU."""

    @functools.wraps(function)
    def rewritten(*args, **kwargs):
        flat, leaves, parts = flattened(function, args, kwargs, eqx.is_array)
        found = rewritten_for(current_platform(), flat)(*leaves)
        structure, rest = parts
        return eqx.combine(jax.tree.unflatten(structure, found), rest)

    return rewritten


def _signature(tree: Any) -> tuple:
    """Return a key that identifies the program of a call within this process."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(
        _type(leaf) if eqx.is_array(leaf) else (type(leaf), leaf) for leaf in leaves
    )


def _type(array: Any) -> tuple:
    of_numbers = jax.typeof(array)
    return of_numbers, of_numbers.weak_type, _place(array)


def _place(array: Any) -> jax.sharding.Sharding | None:
    """Return an array's sharding if it changes the program, else None: which single device does not matter."""
    place = place_of(array)
    if isinstance(place, jax.sharding.SingleDeviceSharding):
        (device,) = place.device_set
        is_usual = place.memory_kind in (None, device.default_memory().kind)
        return None if is_usual and device.platform == jax.default_backend() else place
    return place


def _words_of(array: Any) -> list:
    """Return the description of an array whose shape, type and sharding identify the program."""
    *_, weak, sharding = _type(array)
    return [*shape_of(array), weak, sharding and PytreeSpec(sharding).json]


def _program(
    store: ProgramStore,
    function: Callable,
    known_as: Callable,
    args: tuple,
    kwargs: dict,
    kinds: Collection[str],
) -> Program | None:
    """Return the program of a call, from the store or new; None if none can be made."""
    try:
        described = PytreeSpec((known_as, args, kwargs), _words_of)
        made_of = fingerprint({*described.packages, __name__.partition(".")[0]})
        code = describe_user_code([function, *described.objects])
        words = json.dumps([described.json, code, made_of, kinds], sort_keys=True)
        name = hashlib.sha256(words.encode()).hexdigest()
        arrays = arrays_of((args, kwargs))
        with report_status(f"reading {function.__name__}"):
            if found := store.find(name, arrays):
                return found
        with report_status(f"tracing {function.__name__}"):
            content = exported(function, args, kwargs, name=name, kinds=kinds)
        made = Program(content)
        with report_status(f"compiling {function.__name__}"), every_program_kept():
            made.compiled(arrays)
        store.keep(name, content)
        return made
    except Exception as error:  # the function's own errors are raised again when it is jitted
        _LOGGER.debug("%s is jitted without the store: %s", function.__name__, error)
        return None
