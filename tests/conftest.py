"""One configuration for every test: float64, strict promotion, shapes checked, warnings are errors.

JAXTAPE_TEST_PRECISION=single: in float32. JAXTAPE_TEST_COMPILER=optimizing: programs are compiled as users have
them; without it in a third of the time, and most of the time of the tests is that of the compiler.
"""

import gc
import inspect
import itertools
import os
from pathlib import Path

import jaxtyping
from beartype import BeartypeConf, beartype

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

from jaxtape.xla_flags import WITHOUT_FUSION_EMITTERS, add_flag  # noqa: E402

if os.environ.get("JAXTAPE_TEST_COMPILER", "quick") == "quick":
    *_, _known = WITHOUT_FUSION_EMITTERS
    add_flag(*WITHOUT_FUSION_EMITTERS)
    add_flag("--xla_backend_optimization_level", "0", _known)
    # splitting a program to compile its parts side by side costs an eighth; the workers keep the cores busy
    add_flag("--xla_cpu_parallel_codegen_split_count", "1", _known)

_CACHE = Path(__file__).parent.parent / ".jax_cache"

jax.config.update("jax_enable_x64", os.environ.get("JAXTAPE_TEST_PRECISION", "double") == "double")
jax.config.update("jax_traceback_in_locations_limit", 0)  # a compiler would copy them about
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


# Tracing makes millions of small objects and hardly a cycle: looked through as often as Python does by itself,
# they take a tenth of the time.
gc.set_threshold(20_000, 10, 10)

_MAPS = Path("/proc/self/maps")
_MANY = (
    16_000  # of the 65,530 memory maps that Linux allows a process; past them a compiler crashes
)
_finished = itertools.count(1)


@pytest.fixture(autouse=True)
def _room_for_programs():
    """Compiled programs stay for the tests that follow; each holds some tens of memory maps."""
    yield
    counted = next(_finished) % 8 == 0 and _MAPS.exists()
    if counted and _MAPS.read_bytes().count(b"\n") > _MANY:
        jax.clear_caches()


_OF_TAPES = ("tests/jaxtape/", "tests/pricing/test_bermudan_swaption.py")


@pytest.fixture(autouse=True)
def _no_host_callbacks(request, monkeypatch):
    """No program but one of the tape's tests calls the host: JAX's persistent cache would refuse it."""

    def refused(*args, **kwargs):
        raise AssertionError("a program holds a host callback: what it finds out must be data")

    if not request.node.nodeid.startswith(_OF_TAPES):
        for module, name in (
            (jax, "pure_callback"),
            (jax.debug, "callback"),
            (jax.experimental, "io_callback"),
        ):
            monkeypatch.setattr(module, name, refused)
