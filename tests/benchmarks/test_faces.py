"""Benchmarks use the library as a user does: they import what packages re-export, and nothing from within."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LIBRARY = ("jaxtape", "pricing", "calibration")
FACES = (
    *(
        "jaxtape",
        "jaxtape.cli.html",
        "jaxtape.torch",
        "calibration",
        "pricing",
        "pricing.fbsde",
        "pricing.fbsde.counterparty",
        "pricing.fbsde.problems",
    ),
    *(
        "pricing.market",
        "pricing.methods",
        "pricing.models",
        "pricing.products",
        "pricing.reporting",
        "pricing.reporting.tables",
    ),
    "calibration.app.serve.client",
    "jaxtape.cli.main",  # `jaxtape bench` is a command
    *("pricing.sampling", "pricing.samples"),  # the last holds the sample files alone
)
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


def imported(file: Path):
    """(module, name) of each import from the library; the name is None for a whole module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        yield from (pair for pair in found if pair[0].split(".")[0] in LIBRARY)


def exported(module: str) -> set[str]:
    """The names that a package re-exports, or that a module defines."""
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = (node.targets[0] for node in nodes if isinstance(node, ast.Assign))
    defined |= {target.id for target in assigned if isinstance(target, ast.Name)}
    aliases = (alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names)
    return defined | {alias.name for alias in aliases if alias.asname == alias.name}


@pytest.mark.repeat
def test_benchmarks_import_public_faces_only():
    found = [(file.name, *pair) for file in BENCHMARKS for pair in imported(file)]
    assert len({name for name, *_ in found}) > 15
    for file, module, name in found:
        assert module in FACES, f"{file} imports {module}, which is within the house"
        assert name is None or name in exported(module), f"{module} does not re-export {name}"
