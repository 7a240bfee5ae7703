"""A hook of mkdocs: a block of kind `results` becomes a table of the figures that a benchmark has kept.

The block is YAML:

- `file`: a file of `benchmarks/results`, without `.json`.
- `rows`: the list of rows in it, `rows` by default; `cases.points` has all points, with fields of their case.
- `where`: the rows to show: field -> the values it may have.
- `columns`: header -> template of a cell, by the fields of a row: `{seconds:.0f ms}`, `{error:+.2%}`.

`file: latest` lists the latest headline of each benchmark and platform instead.
"""

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

BLOCK = re.compile(r"^```results\n(.*?)^```$", re.S | re.M)
NAMED = re.compile(r"(\d{4}-\d\d-\d\d)-.*-(\w+)\.json")
UNITS = {"ms": 1e3, "us": 1e6, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9}
"""Unit at the end of a format -> what seconds or bytes are multiplied by."""


def on_page_markdown(markdown: str, *, config, **others) -> str:
    """Replace each block of a page with its table."""
    del others
    folder = Path(config.config_file_path).parent / "benchmarks" / "results"
    return BLOCK.sub(lambda found: table(yaml.safe_load(found[1]), folder), markdown)


def table(block: Mapping[str, Any], folder: Path) -> str:
    """Return the Markdown of a block, with the command, the machine and the day of its figures."""
    if block["file"] == "latest":
        return _markdown(("benchmark", "measured", "on", "command"), list(_latest(folder)))
    path = folder / f"{block['file']}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    columns, where = block["columns"], block.get("where", {})
    rows = list(_rows(kept, block.get("rows", "rows").split(".")))
    rows = [row for row in rows if all(row.get(name) in ones for name, ones in where.items())]
    cells = [tuple(_CELL.format(template, row) for template in columns.values()) for row in rows]
    for header, column in zip(columns, zip(*cells, strict=True), strict=True):
        if set(column) <= {_CELL.missing}:
            raise ValueError(f"{path.name}: no row has a value for the column {header!r}")
    return f"{_markdown(tuple(columns), cells)}\n\n<small>{_source(kept, path)}</small>"


class _Cell(string.Formatter):
    """Formats one row: units, a space before %, and a hyphen for a field that the row does not have."""

    missing = "-"

    def format(self, template: str, row: Mapping[str, Any], /) -> str:
        try:
            return self.vformat(template, (), row)
        except (KeyError, TypeError):  # no such field, or it is None
            return self.missing

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise TypeError("a field without a value")
        number, _, unit = format_spec.partition(" ")
        if unit:
            return f"{value * UNITS[unit]:{number}} {unit}"
        return re.sub(r"(?<=\d)%$", " %", f"{value:{format_spec}}")


_CELL = _Cell()


def _rows(kept: Any, path: Sequence[str], outer: Mapping[str, Any] | None = None) -> Iterator[dict]:
    """Yield the rows at the end of a path, each with the fields of the rows that hold it."""
    found = kept[path[0]]
    for row in [found] if isinstance(found, Mapping) else found:
        merged = {**(outer or {}), **row}
        if path[1:]:
            yield from _rows(row, path[1:], merged)
        else:
            yield merged


def _latest(folder: Path) -> Iterator[tuple[str, ...]]:
    found = {}
    for path in sorted(folder.glob("*.json")):  # by day
        named = NAMED.fullmatch(path.name)
        kept = json.loads(path.read_text(encoding="utf-8"))
        command = re.match(r"python -m benchmarks\.(\w+)", kept.get("command", ""))
        if named and command and kept.get("headline"):
            found[kept["command"], named[2]] = command[1], kept, path
    for (command, platform), (name, kept, _) in sorted(found.items()):
        yield name, kept["headline"], platform, f"`{command}`"


def _source(kept: Mapping[str, Any], path: Path) -> str:
    named = NAMED.fullmatch(path.name)
    versions = kept.get("versions", {})
    parts = (
        f"`{kept['command']}`" if "command" in kept else f"`benchmarks/results/{path.name}`",
        kept.get("machine", ""),
        kept.get("backend", ""),
        f"JAX {versions['jax']}" if "jax" in versions else "",
        named[1] if named else "",
    )
    return "; ".join(part for part in parts if part)


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(
        f"| {' | '.join(x.replace('|', chr(92) + '|') for x in line)} |" for line in lines
    )
