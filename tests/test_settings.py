"""The main verbs under settings of JAX: they find the same numbers, or say at once why they cannot.

What is run is `tests/settings_program.py`, once for each setting, in a process of its own.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .references import DAX_SSE_AT_OPTIMUM
from .settings_program import VERBS

ROOT = Path(__file__).parent.parent
SETTINGS = {
    "double": ({"JAX_ENABLE_X64": "True"}, []),
    "single": ({"JAX_ENABLE_X64": "False"}, []),
    "double, NaN raises": ({"JAX_ENABLE_X64": "True", "JAX_DEBUG_NANS": "True"}, []),
    "single, NaN raises": ({"JAX_ENABLE_X64": "False", "JAX_DEBUG_NANS": "True"}, []),
    "arrays of float32 in double": ({"JAX_ENABLE_X64": "True"}, ["float32"]),
}
pytestmark = pytest.mark.skipif(
    os.environ.get("JAXTAPE_TEST_PRECISION") == "single", reason="sets the precision itself"
)


@functools.cache
def found(setting: str) -> dict[str, dict]:
    environment, words = SETTINGS[setting]
    done = subprocess.run(
        [sys.executable, "-m", "tests.settings_program", *words],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # JAX itself prints where it looks for a NaN


def compared(verb: str, setting: str, rtol: float) -> None:
    told, known = found(setting)[verb], found("double")[verb]
    assert "error" not in told, told["trace"]
    np.testing.assert_allclose(told["figures"], known["figures"], rtol=rtol, atol=1e-30)


@pytest.mark.repeat
def test_the_numbers_that_others_are_compared_with():
    """In double precision: Heston's call and the DAX optimum are known; the rest is tested where it belongs."""
    price, calibrated = found("double")["price"]["figures"], found("double")["calibrate"]["figures"]
    assert price[0] == pytest.approx(10.014616, abs=1e-6)
    assert calibrated[0] == pytest.approx(DAX_SSE_AT_OPTIMUM, abs=1e-3)


@pytest.mark.repeat
@pytest.mark.parametrize("verb", VERBS)
def test_nan_raises_where_there_is_one_and_nowhere_else(verb):
    compared(verb, "double, NaN raises", 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["single", "single, NaN raises"])
@pytest.mark.parametrize("verb", VERBS)
def test_single_precision(verb, setting):
    """Monte Carlo's random numbers of the two precisions are others: two standard errors are 1.2 %."""
    compared(verb, setting, 2e-2 if verb == "price" else 5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_arrays_of_float32_in_double(verb):
    compared(verb, "arrays of float32 in double", 2e-2 if verb == "price" else 5e-3)
