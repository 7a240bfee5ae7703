"""The page of the benchmarks: their subjects, and their latest results against peers and known answers."""

import ast
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtape.cli.html import render
from pricing.reporting.tables import TextTable

from .beside import Answer, Comparison, answers_of, comparisons_of
from .pictures import Bar, bars

_NAMED = re.compile(r"(\d{4}-\d\d-\d\d)-(.*?)-\d+-cores-(\w+)\.json")
_COMMAND = re.compile(r"python -m benchmarks\.(\w+)")
_HEAD = {"machine", "load", "versions", "backend", "command", "options", "left_out", "headline"}
_SHARED = {"comparisons", "answers", "date"}
_ROWS = 60  # in a table of a file's other figures


@dataclass(frozen=True)
class Kept:
    """One file of results: its day, benchmark and platform, from its name, and its content."""

    file: Path
    day: str
    of: str
    platform: str
    figures: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "Kept | None":
        """Read a file; return None if it is not named like results, or is not a JSON object."""
        named = _NAMED.fullmatch(file.name)
        try:
            figures = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            return None
        if named is None or not isinstance(figures, dict):
            return None
        day, name, platform = named.groups()
        by_command = _COMMAND.match(figures.get("command", ""))
        of = by_command[1] if by_command else name.replace("-", "_")
        return cls(file, day, of, platform, figures)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        return comparisons_of(self.figures)

    @cached_property
    def answers(self) -> list[Answer]:
        return answers_of(self.figures)

    @property
    def told(self) -> str:
        """Return the benchmark, and the platform if it is not a CPU."""
        return self.of if self.platform == "cpu" else f"{self.of} ({self.platform})"


def latest(folders: Iterable[Path]) -> dict[str, list[Kept]]:
    """Return the latest result of each benchmark on each platform; on the same day, that of the last folder."""
    found: dict[str, dict[str, Kept]] = {}
    for folder in folders:
        for kept in filter(None, map(Kept.read, sorted(folder.glob("*.json")))):
            of_all = found.setdefault(kept.of, {})
            if kept.platform not in of_all or of_all[kept.platform].day <= kept.day:
                of_all[kept.platform] = kept
    return {name: list(of_all.values()) for name, of_all in found.items()}


def page(names: Sequence[str], folders: Iterable[Path]) -> str:
    """Return the page, as HTML without scripts or external references."""
    results = latest(folders)
    others = [name for name in results if name not in names and not _is_summary(results[name][0])]
    kept = [each for name in (*names, *others) for each in results.get(name, [])]
    return render(
        "benchmarks",
        "bench.html",
        views=[_view(name, results.get(name, [])) for name in (*names, *others)],
        count=len(names),
        kept=sum(name in results for name in names),
        speed=bars(
            _bars(kept, "speed"), "Speed beside peers, times ours", "peer's time / our time"
        ),
        memory=bars(_bars(kept, "memory"), "Memory beside peers", "our bytes / peer's bytes"),
    )


def _is_summary(kept: Kept) -> bool:
    """Return True if it is the table of a run of many benchmarks."""
    rows = kept.figures.get("rows", [])
    return bool(rows) and "benchmark" in rows[0]


def _bars(kept: Iterable[Kept], what: str) -> Iterator[Bar]:
    for each in kept:
        for row in each.comparisons:
            group = f"{each.told}: {row.task}" if row.task else each.told
            label, speed = f"beside {row.peer}", row.speed
            if what == "speed":
                yield Bar(group, label, speed.median, speed.low, speed.high)
            elif row.memory is not None:
                yield Bar(group, label, row.memory)


# --- a benchmark's part of the page -----------------------------------------------------------------------


def measures(name: str) -> str:
    """Return a benchmark's subject: the first paragraph of its module, which is not imported."""
    found = importlib.util.find_spec(f"benchmarks.{name}")
    if found is None or found.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].replace("`", "").split())


def _view(name: str, results: Sequence[Kept]) -> dict[str, Any]:
    return {"name": name, "measures": measures(name), "results": [_result(x) for x in results]}


def _result(kept: Kept) -> dict[str, Any]:
    figures = kept.figures
    versions = ", ".join(
        f"{name} {version}" for name, version in figures.get("versions", {}).items()
    )
    facts = {
        "date": kept.day,
        "machine": figures.get("machine", ""),
        "load": figures.get("load", ""),
        "backend": figures.get("backend", kept.platform),
        "versions": versions,
        "command": figures.get("command", ""),
        "left out": "; ".join(figures.get("left_out", [])),
        "file": kept.file.name,
    }
    rows = tuple((name, str(text)) for name, text in facts.items() if text)
    return {
        "headline": figures.get("headline", ""),
        "facts": TextTable(("Run", ""), rows, words=2),
        "comparisons": _comparisons(kept.comparisons),
        "answers": _answers(kept.answers),
        "rest": list(_rest(figures)),
    }


def _comparisons(rows: Sequence[Comparison]) -> TextTable:
    speed, memory = "Speed, peer's time / our time", "Memory, our bytes / peer's"
    headers = ("Task", "Ours", "Peer", speed, "Quartiles", "Rounds", memory)
    cells = (
        (
            row.task,
            row.ours,
            row.peer,
            f"{row.speed.median:.3g}",
            _quartiles(row),
            str(row.speed.rounds or ""),
            "" if row.memory is None else f"{row.memory:.3g}",
        )
        for row in rows
    )
    return TextTable(headers, tuple(cells), words=3)


def _quartiles(row: Comparison) -> str:
    if row.speed.low is None or row.speed.high is None:
        return "not kept"
    return f"{row.speed.low:.3g} to {row.speed.high:.3g}"


def _answers(rows: Sequence[Answer]) -> TextTable:
    headers = ("Figure", "Known", "Found", "Standard error", "Error")
    cells = (
        (row.figure, *map(_number, (row.known, row.found, row.std_error)), _share(row))
        for row in rows
    )
    return TextTable(headers, tuple(cells))


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.6g}"


def _share(row: Answer) -> str:
    return f"{row.error:+.2%}" if abs(row.error) >= 5e-5 else f"{row.error:.1e}"


def _rest(said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a file's other content: its numbers, and each list of rows, with nested names joined by dots."""
    for name, value in said.items():
        if name in _HEAD | _SHARED:
            continue
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            rows = [dict(_flat(row)) for row in value[:_ROWS]]
            columns = tuple(dict.fromkeys(key for row in rows for key in row))
            cells = tuple(tuple(_number(row.get(key)) for key in columns) for row in rows)
            more = f", the first {_ROWS}" if len(value) > _ROWS else ""
            yield {"title": f"{name}: {len(value)} rows{more}", "table": TextTable(columns, cells)}
        else:
            cells = tuple((key, _number(x)) for key, x in _flat({name: value}))
            yield {"title": name, "table": TextTable(("", ""), cells)}


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(x, Mapping | list) for x in value):
            yield name, f"{len(value)} rows"
        elif isinstance(value, list):
            yield name, ", ".join(map(_number, value))
        else:
            yield name, value
