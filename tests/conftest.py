"""One configuration for every test: float64, strict promotion, shapes checked, warnings are errors.

JAXTAPE_TEST_PRECISION=single: in float32. JAXTAPE_TEST_COMPILER=optimizing: programs are compiled as users have
them; without it in a third of the time.

The tests, and not the library, replace these functions for the whole process: `jaxtyping.jaxtyped` (fewer
checks), `get_executable_and_time` and `put_executable_and_time` of `jax._src.compilation_cache` (programs are
first looked up in the process), `make_ir_context` of `jax._src.interpreters.mlir` (one context a thread).
"""

import gc
import importlib
import inspect
import itertools
import os
import sys
import threading
import zlib
from pathlib import Path

# NumPy's threads wait for small matrices in a loop, here and in the processes that tests start: a tenth of the
# processor time of an import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jaxtyping
from beartype import BeartypeConf, beartype

# Imports and tracing make millions of small objects and hardly a cycle: looked through as often as Python does
# by itself, they take a tenth of the time.
gc.set_threshold(100_000, 20, 20)

_jaxtyped = jaxtyping.jaxtyped
_of_other_types = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))


def _checked(*, typechecker):
    """Return a decorator that checks the types of arguments and results.

    `jaxtyping.jaxtyped` binds the arguments and remembers shapes at every call, which takes a fifth of the time
    of the tests: here only where a class or an annotation may name a shape.
    """

    def decorated(it):
        hints = getattr(it, "__annotations__", {}).values()
        of_shapes = any(isinstance(hint, str) or "jaxtyping" in repr(hint) for hint in hints)
        if inspect.isclass(it) or of_shapes:
            return _jaxtyped(it, typechecker=typechecker)
        return _of_other_types(it)

    return decorated


jaxtyping.jaxtyped = _checked
jaxtyping.install_import_hook(["jaxtape", "pricing", "calibration"], "beartype.beartype")

import jax  # noqa: E402
import jax.experimental  # noqa: E402
import pytest  # noqa: E402
from jax._src import compilation_cache as _files  # noqa: E402
from jax._src.interpreters import mlir as _mlir  # noqa: E402

from jaxtape.jax_settings.xla_flags import WITHOUT_FUSION_EMITTERS, add_flag  # noqa: E402

if os.environ.get("JAXTAPE_TEST_COMPILER", "quick") == "quick":
    *_, _known = WITHOUT_FUSION_EMITTERS
    add_flag(*WITHOUT_FUSION_EMITTERS)
    add_flag("--xla_backend_optimization_level", "0", _known)
    add_flag("--xla_cpu_parallel_codegen_split_count", "1", _known)

_CACHE = Path(__file__).parent.parent / ".jax_cache"

jax.config.update("jax_enable_x64", os.environ.get("JAXTAPE_TEST_PRECISION", "double") == "double")
jax.config.update("jax_traceback_in_locations_limit", 0)  # a compiler would copy them about
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # `_keep` says which

_programs = {}  # by the keys that JAX gives them in files, the latest last
_read, _write = _files.get_executable_and_time, _files.put_executable_and_time


def _find(key, options, backend, devices, host_callbacks=()):
    """Find a program in this process, then in a file: tests make many functions that are the same program.

    A program that calls the host is compiled for its own callbacks: one found would call another test's.
    """
    if host_callbacks:
        return None, None
    found = _programs.pop(key, None) or _read(key, options, backend, devices)
    if found[0] is not None:
        _programs[key] = found
    return found


def _keep(key, name, program, backend, seconds):
    """Keep the latest programs; also in a file, which takes its time, those that took three seconds."""
    _programs[key] = program, seconds
    if len(_programs) > 128:
        del _programs[next(iter(_programs))]
    if seconds >= 3:
        _write(key, name, program, backend, seconds)


_files.get_executable_and_time, _files.put_executable_and_time = _find, _keep

_contexts, _new_context = threading.local(), _mlir.make_ir_context


def _context():
    """One context a thread: a small program is lowered in less time than JAX takes to make one for it."""
    if not hasattr(_contexts, "kept"):
        _contexts.kept = _new_context()
    return _contexts.kept


_mlir.make_ir_context = _context


def pytest_addoption(parser):
    parser.addoption(
        "--selection",
        type=int,
        help="run one case of each of the first SELECTION tests of each file",
    )
    parser.addoption(
        "--share",
        help="INDEX/COUNT: run only this share of the tests marked `costly`, such as 1/4",
    )


def pytest_collection_modifyitems(config, items):
    """Select a share of the costly tests, or one case of each file with another JAX."""
    share = config.getoption("--share")
    if share is not None:
        _deselect(config, items, lambda item: not _is_costly(item) or _is_in_share(item, share))
    count = config.getoption("--selection")
    if count is None:
        return
    tests: dict[Path, set[str]] = {}

    def is_selected(item):
        of_file, name = tests.setdefault(item.path, set()), getattr(item, "originalname", item.name)
        is_next = name not in of_file and len(of_file) < count
        of_file.update([name] if is_next else [])
        return is_next

    _deselect(config, items, is_selected)


def _deselect(config, items, is_selected):
    selected, others = [], []
    for item in items:
        (selected if is_selected(item) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = selected


def _is_costly(item):
    return item.get_closest_marker("costly") is not None


def _is_in_share(item, share):
    """Return True for the tests of one share; cases of a test, which share programs, are in the same one."""
    index, count = map(int, share.split("/"))
    if not 0 <= index < count:
        raise pytest.UsageError(f"--share is {share}: give INDEX/COUNT with 0 <= INDEX < COUNT")
    name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
    return zlib.crc32(name.encode()) % count == index


def pytest_collection_finish():
    """What is imported stays: it is looked through no more."""
    gc.freeze()


def pytest_sessionfinish():
    """The process ends: what it has made is not looked through once more."""
    gc.freeze()


_MAPS = Path("/proc/self/maps")
_MANY = (
    28_000  # of the 65,530 memory maps that Linux allows a process; past them a compiler crashes
)
_finished = itertools.count(1)


@pytest.fixture(autouse=True)
def _room_for_programs():
    """Compiled programs stay for the tests that follow; each holds some tens of memory maps."""
    yield
    counted = next(_finished) % 8 == 0 and _MAPS.exists()
    if counted and _MAPS.read_bytes().count(b"\n") > _MANY:
        _programs.clear()
        vars(_contexts).clear()
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _no_host_callbacks(monkeypatch):
    """No program calls the host, unless a test itself asks it to: JAX's persistent cache would refuse it."""

    def guarded(original):
        def call(*args, **kwargs):
            caller = Path(sys._getframe(1).f_code.co_filename)
            assert Path(__file__).parent in caller.parents, "a program holds a host callback"
            return original(*args, **kwargs)

        return call

    for module, name in (
        (jax, "pure_callback"),
        (jax.debug, "callback"),
        (jax.experimental, "io_callback"),
    ):
        monkeypatch.setattr(module, name, guarded(getattr(module, name)))


@pytest.fixture
def without_type_checks():
    """Functions are called as users call them, whose arguments no annotation checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def gap():
    """The module of the gap option, whose trades a book may hold as long as the test runs."""
    from pricing.products.trade import COLUMNS, NEUTRAL, TRADE_TYPES

    before = list(COLUMNS), dict(NEUTRAL), dict(TRADE_TYPES)
    name = "tests.extensions.gap_option"
    yield importlib.import_module(name)
    del sys.modules[name]
    COLUMNS[:] = before[0]
    for registry, kept in zip((NEUTRAL, TRADE_TYPES), before[1:], strict=True):
        registry.clear()
        registry.update(kept)
