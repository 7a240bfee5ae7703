"""The examples of docstrings give what they say to a user, who has single precision and no checks of types."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.repeat

ROOT = Path(__file__).parent.parent
HAS_TORCH = importlib.util.find_spec("torch") is not None
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("jaxtape", "pricing", "calibration")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
RUN = """
import doctest, importlib, sys
found = [doctest.testmod(importlib.import_module(name)) for name in sys.argv[1:]]
assert all(result.attempted for result in found)
sys.exit(any(result.failed for result in found))
"""


def test_every_example_gives_what_it_says():
    names = [name for name in MODULES if HAS_TORCH or not name.startswith("jaxtape.torch")]
    assert len(names) > 50
    done = subprocess.run(
        [sys.executable, "-c", RUN, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stdout + done.stderr
