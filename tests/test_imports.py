"""An import of a package makes names and nothing else: no device, no array, no program, nothing heavy."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize(
    ("package", "packages"),
    [
        ("jaxtape", {"torch"}),
        ("pricing", {"fbsde", "market", "methods", "models", "products", "sampling"}),
        ("calibration", set()),
        ("pricing.fbsde", {"problems"}),
        ("jaxtape.torch", set()),
    ],
)
def test_dir_shows_the_names_that_a_user_types(package, packages):
    """Those that the package re-exports and its public packages: no module of the implementation."""
    if package == "jaxtape.torch":
        pytest.importorskip("torch")
    module = importlib.import_module(package)
    shown = set(dir(module))
    modules = {name for name in shown if isinstance(getattr(module, name), ModuleType)}
    assert modules == packages & shown and len(shown) > 5
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = [
        a for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names
    ]
    assert shown - packages == {a.name for a in imported if a.asname == a.name} - packages
