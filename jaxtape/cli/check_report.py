"""Show checks as tables on a terminal, as an HTML page or as JSON."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
from rich.table import Table

from .check import Check, Group, Source
from .html import render

_HEADINGS = ("figure", "method", "known", "found", "away", "allowed", "std error", "holds")


class GroupResult(NamedTuple):
    """The results of a group: its name, its title, its checks, and the seconds they took."""

    name: str
    title: str
    checks: Sequence[Check]
    seconds: float


def list_of_groups(groups: Mapping[str, Group]) -> Table:
    """Return a table of the groups with their titles and their numbers of values."""
    table = Table(title="groups of jaxtape validate")
    table.add_column("group", no_wrap=True)
    table.add_column("of")
    table.add_column("values", justify="right")
    counts = {name: len(group.checks()) for name, group in groups.items()}
    for name, group in groups.items():
        table.add_row(name, group.title, str(counts[name]))
    table.add_section()
    table.add_row("all", "", str(sum(counts.values())))
    return table


def tables(results: Sequence[GroupResult]) -> Iterator[Table]:
    """Yield the tables to print: one for each source."""
    for source, checks in itertools.chain.from_iterable(_by_source(x.checks) for x in results):
        caption = f"{_kind(source)}: {source.source}"
        table = Table(title=source.name, caption=caption, title_justify="left", width=190)
        table.caption_justify = "left"
        table.add_column("of", ratio=1)
        for heading in _HEADINGS:
            is_word = heading in ("figure", "method", "holds")
            table.add_column(heading, justify="left" if is_word else "right", no_wrap=True)
        for check in checks:
            table.add_row(check.name, *_cells(check), style=None if check.holds else "red")
        yield table


def summary(results: Sequence[GroupResult]) -> Table:
    """Return the table of groups to print at the end."""
    table = Table(title="known values beside those found")
    table.add_column("group", no_wrap=True)
    for heading in ("values", "published", "computed", "hold", "do not", "nearest", "seconds"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(result.name, *_counts(result.checks), f"{result.seconds:.1f}")
    table.add_section()
    table.add_row("all", *_counts([check for result in results for check in result.checks]), "")
    table.caption = "nearest: the largest distance as a share of what is allowed"
    return table


def as_json(results: Sequence[GroupResult]) -> str:
    """Return all checks as JSON."""
    rows = [_record(result.name, check) for result in results for check in result.checks]
    data = {
        "version": version("jaxtape"),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "holds": all(row["holds"] for row in rows),
        "seconds": {result.name: round(result.seconds, 3) for result in results},
        "values": rows,
    }
    return f"{json.dumps(data, indent=1)}\n"


def page(results: Sequence[GroupResult]) -> str:
    """Return all checks as a self-contained HTML page."""
    checks = [check for result in results for check in result.checks]
    faults = [check for check in checks if not check.holds]
    published = sum(check.source.is_published for check in checks)
    return render(
        "jaxtape.cli.html",
        "validation.html",
        heading=f"{len(checks)} known values, "
        + (f"{len(faults)} beyond their tolerance" if faults else "all within their tolerance"),
        sources=(
            f"jaxtape {version('jaxtape')}",
            f"JAX {jax.__version__} on {jax.devices()[0].device_kind}",
            f"{datetime.now(UTC):%d %B %Y}",
        ),
        tiles=(
            ("Values", str(len(checks)), "set beside ours"),
            ("Hold", str(len(checks) - len(faults)), "within their tolerance"),
            ("Published", str(published), "printed or cached"),
            ("Computed", str(len(checks) - published), "by two methods"),
        ),
        groups=[
            {
                "name": result.name,
                "title": result.title,
                "held": sum(check.holds for check in result.checks),
                "count": len(result.checks),
                "seconds": f"{result.seconds:.1f}",
                "tables": list(_by_source(result.checks)),
            }
            for result in results
        ],
        faults=faults,
        cells=_cells,
        kind=_kind,
    )


def _by_source(checks: Sequence[Check]) -> Iterator[tuple[Source, list[Check]]]:
    for _, found in itertools.groupby(checks, lambda check: id(check.source)):
        rows = list(found)
        yield rows[0].source, rows


def _kind(source: Source) -> str:
    return "published" if source.is_published else "computed by two methods"


def _counts(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the numbers of checks, in all and by kind, and the largest share of an allowed distance."""
    published = sum(check.source.is_published for check in checks)
    held = sum(check.holds for check in checks)
    counts = len(checks), published, len(checks) - published, held, len(checks) - held
    nearest = max((check.share for check in checks if check.holds), default=0.0)
    return *map(str, counts), f"{nearest:.0%}"


def _cells(check: Check) -> tuple[str, ...]:
    """Return the cells of a row after its name, in the order of `_HEADINGS`."""
    error = f"{check.std_error:.1e}" if check.std_error else ""
    numbers = f"{check.reference:.10g}", f"{check.value:.10g}"
    distances = f"{check.distance:.1e}", f"{check.allowed:.1e}", error
    figure = check.figure.replace("_", " ")
    return figure, check.method, *numbers, *distances, "yes" if check.holds else "NO"


def _record(group: str, check: Check) -> dict[str, Any]:
    finite = lambda x: x if math.isfinite(x) else None
    return {
        "group": group,
        "table": check.source.name,
        "source": check.source.source,
        "published": check.source.is_published,
        "of": check.name,
        "figure": check.figure,
        "method": check.method,
        "known": finite(check.reference),
        "tolerance": finite(check.tolerance),
        "because": check.source.because or "half a unit of the last digit",
        "found": finite(check.value),
        "std_error": finite(check.std_error),
        "distance": finite(check.distance),
        "allowed": finite(check.allowed),
        "holds": check.holds,
        "fault": check.fault,
    }
