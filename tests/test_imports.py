"""An import of a package makes names and nothing else: no device, no array, no program, nothing heavy."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.repeat

PACKAGES = "jaxtape", "pricing", "pricing.fbsde", "calibration"
HEAVY = "matplotlib", "orbax", "pyarrow", "tensorboardX", "torch", "typer"  # imported where used
PROGRAM = """
import sys, {package}
from jax._src import xla_bridge
print(list(xla_bridge._backends), [name for name in {heavy} if name in sys.modules])
import jax
jax.devices()
print(len(xla_bridge._backends) > 0)
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_an_import_touches_no_device_and_brings_nothing_heavy(package):
    """What says so is itself seen to change when a device is touched."""
    program = PROGRAM.format(package=package, heavy=HEAVY)
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] []", "True"]
