"""Run the tests that a change can reach: `python -m tests.changed origin/main [pytest's options]`.

A test reaches a module if it imports it, or imports what reaches it. A name that a package re-exports is
followed to the module that defines it: `from pricing import Heston` reaches the model, not the whole package.
"""

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = "jaxtape", "pricing", "calibration", "benchmarks", "tests"
FOR_EVERY_TEST = {"pyproject.toml", "Makefile", "tests/conftest.py"}
COMMANDS = "jaxtape/cli/main.py"  # it imports what the entry points name


def file_of(module: str) -> str | None:
    """Return the file of a module, from the root; None if it is not one of ours."""
    place = Path(*module.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((str(path) for path in candidates if (ROOT / path).exists()), None)


@functools.cache
def names(file: str) -> dict[str, tuple[str, str | None]]:
    """Return the imports of a file: its name for each, the module, and the name there (None: the module)."""
    path = Path(file)
    package = path.parent.parts
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: (alias.name, None) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            found |= {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    return found


def defined_in(module: str, name: str | None) -> str | None:
    """Return the file that defines a name of a module, through packages that re-export it."""
    inner = file_of(f"{module}.{name}") if name else None
    file = inner or file_of(module)
    if file and not inner and name and Path(file).name == "__init__.py" and name in names(file):
        return defined_in(*names(file)[name]) or file
    return file


@functools.cache
def imported(file: str) -> frozenset[str]:
    """Return the files that a file imports names of."""
    pairs = [*names(file).values()]
    if file == COMMANDS:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        groups = project["entry-points"].values()
        pairs += [(place.split(":")[0], None) for group in groups for place in group.values()]
    ours = (pair for pair in pairs if pair[0].split(".")[0] in PACKAGES)
    return frozenset(filter(None, (defined_in(*pair) for pair in ours)))


def reached(file: str) -> set[str]:
    """Return a file and all that it imports, directly or not."""
    seen, left = {file}, [file]
    while left:
        new = imported(left.pop()) - seen
        seen |= new
        left += new
    return seen


def changed_since(base: str) -> Iterator[str]:
    """Yield the files that differ from the commit at which the work began; of data, the modules beside it."""
    git = ["git", "-C", str(ROOT)]
    ask = lambda *words: subprocess.check_output([*git, *words], text=True).split("\n")
    start = ask("merge-base", base, "HEAD")[0]
    others = ask("ls-files", "--others", "--exclude-standard")
    for file in filter(None, ask("diff", "--name-only", start) + others):
        yield file
        if file.split("/")[0] in PACKAGES and not file.endswith(".py"):
            beside = next(p for p in (ROOT / file).parents if any(p.glob("*.py")))
            yield from (str(path.relative_to(ROOT)) for path in beside.glob("*.py"))


def main(base: str, *options: str) -> int:
    """Print the files of tests that a change since a commit can reach, and run them."""
    changed = set(changed_since(base))
    tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    if not changed & FOR_EVERY_TEST:
        tests = [test for test in tests if changed & reached(test)]
    print(f"{len(tests)} files of tests can reach what changed since {base}", *tests, sep="\n  ")
    return pytest.main([*options, *tests]) if tests else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
