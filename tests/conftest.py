"""One configuration for every test: float64, strict promotion, shapes checked, warnings are errors."""

import os
import pathlib

from jaxtyping import install_import_hook

install_import_hook(["jaxtape", "pricing", "calibration"], "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

_CACHE = pathlib.Path(__file__).parent.parent / ".jax_cache"

jax.config.update("jax_enable_x64", os.environ.get("JAXTAPE_TEST_PRECISION", "double") == "double")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture(autouse=True, scope="module")
def _programs_of_one_module():
    """Thousands of compiled programs in one process exhaust what its memory map holds."""
    yield
    jax.clear_caches()
