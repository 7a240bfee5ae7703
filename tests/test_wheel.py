"""The wheel, in an empty environment and another folder: README and docs, their commands, their tutorials.

So package data (samples, templates) and entry points are in it. A command that is heavy is
given fewer seeds or problems, as `FEWER` says; all else is typed as it is written. JAXTAPE_LITERAL=1:
that one too, which takes most of an hour.
"""

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from .calibration.test_many_processes import write_surfaces
from .documented import ROOT, TUTORIALS, WALKTHROUGHS, blocks, commands
from .test_command_line_scenarios import moved_market
from .test_docs import check_printed
from .test_readme import FIRST, check_first, check_second, run

FEWER = {r"--seeds \d+": "--seeds 1", "solve all ": "solve allen-cahn hjb "}  # of 29 problems
FEWER = {} if os.environ.get("JAXTAPE_LITERAL") == "1" else FEWER
HAS_TORCH = importlib.util.find_spec("torch") is not None
VALIDATION, SERVING = (ROOT / "docs" / f"{page}.md" for page in ("validation", "serving"))
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
COMMANDS = {"risk", "explain", "calibrate", "solve", "compare", "validate", "serve", "monitor"}
COMMANDS |= {"cache", "bench", "compile", "--version", "--help"}
WANTING = {"bench": "in a checkout of jaxtape, pip install -e"}
WANTING |= {"compile": "pip install 'jaxtape[cuda]'", "--dry-run": "pip install 'jaxtape[tpu]'"}
WANTING |= {} if HAS_TORCH else {"compare": "pip install 'jaxtape[torch]'"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with an environment that has the wheel, and beside it what the commands read."""
    folder = tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True)
    (wheel,) = folder.glob("jaxtape-*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", f"{wheel}[{EXTRAS}]"], check=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    shutil.copytree(site / "pricing" / "samples", folder / "pricing" / "samples")
    (group, _), (shown,) = (blocks(VALIDATION, kind) for kind in ("toml", "python"))
    (folder / "mine.py").write_text("\n".join([shown, MINE] if HAS_TORCH else [shown]))
    (folder / "mine.toml").write_text(group)
    write_surfaces(folder / "quotes.parquet", 4)
    (folder / "book.csv").write_text(BOOK)
    moved_market(folder / "friday.json")
    moved_market(folder / "monday.json", spot=0.01, asof="2002-07-08")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """That of a user: without the flags by which the tests' own programs compile quickly, and run slowly."""
    ours = {"PYTHONPATH", "XLA_FLAGS"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    paths = f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": paths, "JAXTAPE_CACHE": str(folder / "cache")}


def typed(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    """What comes of a command, with fewer seeds and problems."""
    line = shlex.join(words)
    for more, fewer in FEWER.items():
        line = re.sub(more, fewer, line)
    options = {"cwd": folder, "env": environment(folder), "capture_output": True, "text": True}
    return subprocess.run(shlex.split(line), **options, check=False)


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
            assert [process.stdout.readline()] == blocks(SERVING, "text")
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=120)
            process.kill()
    assert process.returncode == 0


def test_the_python_of_the_readme(installed):
    told = functools.partial(run, python="python", cwd=installed, env=environment(installed))
    check_first(told(FIRST))
    check_second(told)


@pytest.mark.parametrize("file", WALKTHROUGHS, ids=[file.stem for file in WALKTHROUGHS])
def test_a_walkthrough(installed, file):
    """It prints what it says, from the wheel."""
    if file.stem == "pytorch" and not HAS_TORCH:
        pytest.skip("needs PyTorch")
    program = "\n".join(blocks(file, "python"))
    found = run(program, python="python", cwd=installed, env=environment(installed))
    check_printed(found, f"walkthroughs/{file.stem}")


@pytest.mark.parametrize("file", TUTORIALS, ids=[file.stem for file in TUTORIALS])
def test_a_tutorial(installed, file):
    """As a program; its figures are drawn, and not shown."""
    if file.stem == "pytorch" and not HAS_TORCH:
        pytest.skip("needs PyTorch")
    done = typed(["env", "MPLBACKEND=agg", "python", shutil.copy(file, installed)], installed)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_every_command_of_the_docs(installed):
    """In their order, and of all tests the last, since what clears the cache comes at its end."""
    found = sorted(commands(), key=lambda words: "--clear" in words)
    assert {words[1] for words in found if words[0] == "jaxtape"} >= COMMANDS
    for words in found:
        name = "" if "--help" in words else words[1]
        name = "--dry-run" if "--dry-run" in words else name
        if name == "serve":
            served(words, installed)
            continue
        if name == "monitor":  # of two nights
            for night in (words[2], words[4]):
                shutil.copytree(installed / "out" / "risk", installed / night, dirs_exist_ok=True)
        done = typed(words, installed)
        assert "Traceback" not in done.stderr
        if name in WANTING:
            assert done.returncode == 2 and WANTING[name] in done.stderr
            continue
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        if "mismatched_files" in words[-1]:
            assert done.stdout == "[]\n"
    assert "<svg" in (installed / "out" / "risk" / "report.html").read_text(encoding="utf-8")
    assert not [file for file in (installed / "cache").rglob("*") if file.is_file()]
