"""The recipes of CONTRIBUTING where members live: each in its folder, in a copy of the packages."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.repeat

ROOT = Path(__file__).parent.parent.parent
COPIED = ("jaxtape", "pricing", "calibration", "tests")
ROW = re.compile(r"\| `(tests/extensions/\w+\.py)` \| `([\w/.]+)` \|")
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"


def homes() -> dict[Path, Path]:
    """Return the folder of each recipe, as CONTRIBUTING names it."""
    rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    places = {Path(recipe): Path(home) for recipe, home in rows}
    return {recipe: home.parent if home.suffix else home for recipe, home in places.items()}


def defined_in(face: str, name: str) -> str:
    """Return the module that defines a public name."""
    value = getattr(importlib.import_module(face), name)
    inner = [m for m in sys.modules if m.startswith(f"{face}.")]
    own = [m for m in inner if vars(sys.modules[m]).get(name, sys) is value]
    files = {m: Path(str(sys.modules[m].__file__)) for m in own}
    definition = re.compile(rf"^(?:class |def )?{name}\b(?:\(|:| =)", re.MULTILINE)
    found = [m for m, file in files.items() if definition.search(file.read_text(encoding="utf-8"))]
    return found[0] if found else face


def at_home(recipe: Path, home: Path) -> str:
    """Return a recipe whose names of its own package come from the modules that define them."""
    text = (ROOT / recipe).read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{home.parts[0]}."):
            face = str(node.module)
            imports = [f"from {defined_in(face, n.name)} import {n.name}" for n in node.names]
            lines[node.lineno - 1 : node.end_lineno] = imports
    return "\n".join(lines)


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    """Copy the packages, with each recipe in its folder and its tests' import redirected there."""
    house = tmp_path_factory.mktemp("house")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, house / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / file, house / file)
    for recipe, home in homes().items():
        (house / home / recipe.name).write_text(at_home(recipe, home), encoding="utf-8")
        module = ".".join([*home.parts, recipe.stem])
        again = f"import sys\n\nsys.modules.pop('{module}', None)\nfrom {module} import *\n"
        (house / recipe).write_text(again, encoding="utf-8")
    return house


def run(house: Path, *arguments: str) -> str:
    """Run Python in the copy; its output where it fails, else nothing."""
    environment = {**os.environ, "PYTHONPATH": str(house)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_contributing_names_a_folder_for_each_recipe():
    recipes = {path.name for path in Path(__file__).parent.glob("*.py")}
    recipes -= {name for name in recipes if name.startswith(("test_", "__"))}
    assert {recipe.name for recipe in homes()} == recipes
    assert all((ROOT / home).is_dir() for home in homes().values())


def test_the_layers_hold_with_every_recipe_at_home(house):
    assert not run(house, "-c", LINT)


def test_the_recipes_pass_their_tests_at_home(house):
    where = f"import pricing; assert pricing.__file__.startswith(r'{house}')"
    assert not run(house, "-c", where)
    tests = "tests/extensions/test_extensions.py"
    options = (
        "-q",
        "-x",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not repeat and not costly",
    )
    assert not run(house, "-m", "pytest", *options, "-k", "not public_names", tests)
