"""A copy of the packages and their tests, in which one module at a time is a mutant."""

import multiprocessing
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from .mutants import Mutant

ROOT = Path(__file__).parent.parent.parent
COPIED = "jaxtape", "pricing", "calibration", "tests", "benchmarks", "docs"
LINKED = ".jax_cache", "pyproject.toml", "README.md"
PRELOADED = ["jax", "equinox", "optax", "pytest", "hypothesis", "beartype", "pydantic"]


def ended(tests: Sequence[str], folder: str) -> None:
    """Run the tests in the copy, and leave with their exit status: in a process of its own."""
    import pytest

    os.chdir(folder)
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/.bytecode"
    with open("printed.txt", "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path[:] = [folder, *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in COPIED]:
        del sys.modules[name]
    options = ["-x", "-q", "-p", "no:xdist", "--assert=plain", "-m", "not slow"]
    os._exit(int(pytest.main([*options, *tests])))


class Copy:
    """The copy, in a folder; a process that runs its tests begins with what others than we wrote imported."""

    def __init__(self, folder: str):
        self.folder = Path(folder).resolve()
        for name in COPIED:
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.folder / name, ignore=leave)
        for name in LINKED:
            if (ROOT / name).exists():
                (self.folder / name).symlink_to(ROOT / name)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def outcome(self, tests: Sequence[str], seconds: float) -> str:
        """Run the tests, and say how they ended."""
        process = self._context.Process(target=ended, args=(tests, str(self.folder)))
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            return "killed: no end in time"
        return "survived" if process.exitcode == 0 else "killed"

    def outcome_with(
        self, module: str, mutant: Mutant, tests: Sequence[str], seconds: float
    ) -> str:
        """Run the tests with one module a mutant, and put the module back."""
        file = self.folder / module
        was = file.read_text(encoding="utf-8")
        try:
            file.write_text(mutant.source, encoding="utf-8")
            return self.outcome(tests, seconds)
        finally:
            file.write_text(was, encoding="utf-8")
            shutil.rmtree(self.folder / ".bytecode", ignore_errors=True)
