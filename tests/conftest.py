"""One configuration for every test: float64, strict promotion, shapes checked, warnings are errors."""

import os
from pathlib import Path

from jaxtyping import install_import_hook

install_import_hook(["jaxtape", "pricing", "calibration"], "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

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
