"""A hook of mkdocs: the build fails on a public name without a page or without a whole docstring.

A name is public if a package's `__init__` re-exports it (`from .tape import Tape as Tape`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError

PACKAGES = (
    "jaxtape",
    "jaxtape.torch",
    "jaxtape.cli.check",
    "jaxtape.cli.reference_tables",
    "pricing",
    "pricing.market",
    "pricing.models",
    "pricing.products",
    "pricing.methods",
    "pricing.sampling",
    "pricing.portfolio.scenarios",
    "pricing.fbsde",
    "pricing.fbsde.problems",
    "pricing.validation",
    "calibration",
)


def on_post_build(config) -> None:
    """Compare the public names with the headings of the reference, and read their docstrings."""
    root = Path(config.config_file_path).parent
    headings = config.plugins["mkdocstrings"]._autorefs._primary_url_map.keys()
    names = {f"{module.path}.{name}": module[name] for module, name in _public(root)}
    documented = {found.canonical_path for name, found in names.items() if name in headings}
    faults = {
        f"{name}: write `::: {name}` in docs/api/"
        for name, found in names.items()
        if found.canonical_path not in documented
    }
    faults |= {fault for found in names.values() for fault in _faults(found)}
    if faults:
        raise PluginError("the API reference is not whole:\n  " + "\n  ".join(sorted(faults)))


def _public(root: Path) -> Iterator[tuple[griffe.Module, str]]:
    """Yield the public names of all packages, modules apart."""
    loader = griffe.GriffeLoader(docstring_parser="google", search_paths=[str(root)])
    for package in {package.partition(".")[0] for package in PACKAGES}:
        loader.load(package)
    loader.resolve_aliases(external=False)
    for package in PACKAGES:
        module: Any = loader.modules_collection[package]
        for name in public_names(module.filepath):
            if not module[name].is_module:
                yield module, name


def _faults(found) -> Iterator[str]:
    """Yield what a public name's docstring lacks."""
    path, parsed = found.canonical_path, found.docstring.parsed if found.docstring else []
    sections = {section.kind.value: section for section in parsed}
    if "text" not in sections:
        yield f"{path}: has no docstring"
    if found.is_function and "examples" not in sections:
        yield f"{path}: has no `Examples:`"
    if found.is_function and (missing := _unnamed(found, sections.get("parameters"))):
        yield f"{path}: `Args:` lacks {', '.join(missing)}"
    if found.is_class and "attributes" not in sections and _fields(found):
        yield f"{path}: has no `Attributes:`"


def public_names(init: Path) -> list[str]:
    """Return the names that a package re-exports, or that a module defines."""
    nodes = ast.parse(init.read_text(encoding="utf-8")).body
    if init.name != "__init__.py":
        return [
            n.name
            for n in nodes
            if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"
        ]
    imports = (
        alias
        for node in ast.walk(ast.Module(nodes, []))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    return [alias.name for alias in imports if alias.asname == alias.name]


def _unnamed(function, section) -> list[str]:
    told = {parameter.name.lstrip("*") for parameter in section.value} if section else set()
    return [p.name for p in function.parameters if p.name.lstrip("*") not in told]


def _fields(found) -> list[str]:
    return [
        name
        for name, m in found.members.items()
        if m.is_attribute and name[0] != "_" and m.annotation and "property" not in m.labels
    ]
