"""One configuration for every test: float64, strict promotion, shapes checked, warnings are errors.

JAXTAPE_TEST_PRECISION=single: in float32. JAXTAPE_TEST_COMPILER=optimizing: programs are compiled as users have
them; without it in a third of the time, and most of the time of the tests is that of the compiler.
"""

import os
from pathlib import Path

from jaxtyping import install_import_hook

install_import_hook(["jaxtape", "pricing", "calibration"], "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

from jaxtape.xla_flags import WITHOUT_FUSION_EMITTERS, add_flag  # noqa: E402

if os.environ.get("JAXTAPE_TEST_COMPILER", "quick") == "quick":
    *_, _known = WITHOUT_FUSION_EMITTERS
    add_flag(*WITHOUT_FUSION_EMITTERS)
    add_flag("--xla_backend_optimization_level", "0", _known)

_CACHE = Path(__file__).parent.parent / ".jax_cache"

jax.config.update("jax_enable_x64", os.environ.get("JAXTAPE_TEST_PRECISION", "double") == "double")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


_MAPS = Path("/proc/self/maps")
_MANY = (
    16_000  # of the 65,530 memory maps that Linux allows a process; past them a compiler crashes
)


@pytest.fixture(autouse=True, scope="module")
def _programs_of_one_module():
    """Compiled programs stay for the tests of one module."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _room_for_programs():
    """A compiled program holds some tens of memory maps: a module of hundreds starts afresh now and then."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY:
        jax.clear_caches()
