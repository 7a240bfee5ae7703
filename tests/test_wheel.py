"""The wheel, in an empty environment and another folder: README and docs, their commands, their tutorials.

So package data (samples, templates) and entry points are in it. A command that is heavy is
given fewer seeds, as `FEWER` says; all else is typed as it is written.
"""

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from .documented import ROOT, commands
from .test_command_line_scenarios import moved_market
from .test_readme import FIRST, check_first, check_second, run

FEWER = {"--seeds": "1"}
HAS_TORCH = importlib.util.find_spec("torch") is not None
EXTRAS = "fbsde,many,serve,torch" if HAS_TORCH else "fbsde,many,serve"
MINE = """
import jax.numpy as jnp, numpy as np, torch
from jaxtape.torch import Case

def ours(x): return jnp.sum(x**2)
def theirs(x): return (x**2).sum()
batch = (np.arange(3.0),)
case = Case(ours, theirs, lambda rng: (rng.normal(size=3),))
"""
BOOK = "id,type,underlying,option,strike,expiry\n1,european,DAX,call,4400,2002-12-20\n"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
COMMANDS = {"risk", "explain", "calibrate", "solve", "compare", "validate", "serve", "monitor"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with an environment that has the wheel, and beside it the samples and `mine.py`."""
    folder = tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True)
    (wheel,) = folder.glob("jaxtape-*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", f"{wheel}[{EXTRAS}]"], check=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    shutil.copytree(site / "pricing" / "samples", folder / "pricing" / "samples")
    (folder / "mine.py").write_text(MINE)
    (folder / "book.csv").write_text(BOOK)
    moved_market(folder / "friday.json")
    moved_market(folder / "monday.json", spot=0.01, asof="2002-07-08")
    return folder


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    paths = f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": paths, "JAXTAPE_CACHE": str(folder / "cache")}


def typed(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    """What comes of a command, with fewer seeds."""
    words = [FEWER.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    return subprocess.run(
        words, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


def test_no_file_of_the_checkout_is_imported(installed):
    program = "import {0}; print({0}.__file__)"
    for package in ("jaxtape", "pricing", "calibration"):
        line = typed(["python", "-c", program.format(package)], installed).stdout
        assert Path(line).is_relative_to(installed / "env")


def served(words: list[str], folder: Path) -> None:
    """Start a service, and stop it once it is asked at its address."""
    with subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("jaxtape serve: http://127.0.0.1:")
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=120)
            process.kill()
    assert process.returncode == 0


def test_every_command_of_the_docs(installed):
    """In their order: the last prints the files in out/risk that the first has not written."""
    found = commands()
    assert {words[1] for words in found if words[0] == "jaxtape"} >= COMMANDS
    for words in found:
        if words[:2] == ["jaxtape", "serve"]:
            served(words, installed)
            continue
        if words[:2] == ["jaxtape", "monitor"]:  # of two nights
            for night in (words[2], words[4]):
                shutil.copytree(installed / "out" / "risk", installed / night)
        done = typed(words, installed)
        if words[:2] == ["jaxtape", "compare"] and not HAS_TORCH:
            assert done.returncode == 2 and "pip install 'jaxtape[torch]'" in done.stderr
            continue
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        if "mismatched_files" in words[-1]:
            assert done.stdout == "[]\n"
    assert "<svg" in (installed / "out" / "risk" / "report.html").read_text(encoding="utf-8")


def test_the_python_of_the_readme(installed):
    told = functools.partial(run, python="python", cwd=installed, env=environment(installed))
    check_first(told(FIRST))
    check_second(told)


@pytest.mark.parametrize("file", TUTORIALS, ids=[file.stem for file in TUTORIALS])
def test_a_tutorial(installed, file):
    """As a program; its figures are drawn, and not shown."""
    if file.stem == "pytorch" and not HAS_TORCH:
        pytest.skip("needs PyTorch")
    done = typed(["env", "MPLBACKEND=agg", "python", shutil.copy(file, installed)], installed)
    assert done.returncode == 0, (done.stdout, done.stderr)
