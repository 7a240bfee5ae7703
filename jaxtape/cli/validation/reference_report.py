"""Verdicts as tables on a terminal, as a page and as data: three views of one list."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import jax
from rich.table import Table as Grid

from ..html import render
from .reference import Group, Table, Verdict

_HEADINGS = ("figure", "method", "known", "found", "away", "allowed", "std error", "holds")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a group.

    Attributes:
        name: The name of the group.
        title: Its title.
        verdicts: One for each of its references.
        seconds: The time that it took to find them.
    """

    name: str
    title: str
    verdicts: Sequence[Verdict]
    seconds: float

    @property
    def by_table(self) -> Iterator[tuple[Table, list[Verdict]]]:
        """The verdicts, by the tables of their references."""
        found = itertools.groupby(self.verdicts, lambda verdict: id(verdict.reference.table))
        for _, verdicts in found:
            rows = list(verdicts)
            yield rows[0].reference.table, rows

    @property
    def held(self) -> int:
        """The number of verdicts that hold."""
        return sum(verdict.holds for verdict in self.verdicts)


def list_of_groups(groups: Mapping[str, Group]) -> Grid:
    """Return the groups with their titles, and their numbers of values."""
    grid = Grid(title="groups of jaxtape validate")
    grid.add_column("group", no_wrap=True)
    grid.add_column("of")
    grid.add_column("values", justify="right")
    counts = {name: len(group.references()) for name, group in groups.items()}
    for name, group in groups.items():
        grid.add_row(name, group.title, str(counts[name]))
    grid.add_section()
    grid.add_row("all", "", str(sum(counts.values())))
    return grid


def tables(outcomes: Sequence[Outcome]) -> Iterator[Grid]:
    """Yield the tables that are printed: one for each table of references."""
    for outcome in outcomes:
        for table, verdicts in outcome.by_table:
            caption = f"{_kind(table)}: {table.source}"
            grid = Grid(title=table.name, caption=caption, title_justify="left", width=190)
            grid.caption_justify = "left"
            grid.add_column("of", ratio=1)
            for heading in _HEADINGS:
                is_word = heading in ("figure", "method", "holds")
                grid.add_column(heading, justify="left" if is_word else "right", no_wrap=True)
            for verdict in verdicts:
                style = None if verdict.holds else "red"
                grid.add_row(verdict.reference.name, *_words(verdict), style=style)
            yield grid


def summary(outcomes: Sequence[Outcome]) -> Grid:
    """Return the table of groups that is printed at the end."""
    grid = Grid(title="known values beside those found")
    grid.add_column("group", no_wrap=True)
    for heading in ("values", "published", "computed", "hold", "do not", "nearest", "seconds"):
        grid.add_column(heading, justify="right")
    for outcome in outcomes:
        grid.add_row(outcome.name, *_counts(outcome.verdicts), f"{outcome.seconds:.1f}")
    grid.add_section()
    everything = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    grid.add_row("all", *_counts(everything), "")
    grid.caption = "nearest: the largest share that a distance takes of what is allowed"
    return grid


def as_data(outcomes: Sequence[Outcome]) -> str:
    """Return all of it as JSON."""
    rows = [_record(verdict) for outcome in outcomes for verdict in outcome.verdicts]
    data = {
        "version": version("jaxtape"),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "holds": all(row["holds"] for row in rows),
        "seconds": {outcome.name: round(outcome.seconds, 3) for outcome in outcomes},
        "values": rows,
    }
    return f"{json.dumps(data, indent=1)}\n"


def page(outcomes: Sequence[Outcome]) -> str:
    """Return all of it as a page that needs no other file."""
    count = sum(len(outcome.verdicts) for outcome in outcomes)
    held = sum(outcome.held for outcome in outcomes)
    published = sum(
        verdict.reference.table.is_published for outcome in outcomes for verdict in outcome.verdicts
    )
    beyond = count - held
    return render(
        "jaxtape.cli.validation",
        "validation.html",
        heading=f"{count} known values, "
        + ("all within their tolerance" if held == count else f"{beyond} beyond their tolerance"),
        sources=(
            f"jaxtape {version('jaxtape')}",
            f"JAX {jax.__version__} on {jax.devices()[0].device_kind}",
            f"{datetime.now(UTC):%d %B %Y}",
        ),
        tiles=(
            ("Values", str(count), "set beside ours"),
            ("Hold", str(held), "within their tolerance"),
            ("Published", str(published), "printed or cached"),
            ("Computed", str(count - published), "by two methods"),
        ),
        groups=[_section(outcome) for outcome in outcomes],
        faults=[
            (
                verdict.reference.table.name,
                verdict.reference.name,
                verdict.reference.figure,
                verdict.fault,
            )
            for outcome in outcomes
            for verdict in outcome.verdicts
            if not verdict.holds
        ],
    )


def _section(outcome: Outcome) -> dict[str, Any]:
    """Return the section of the page about a group."""
    return {
        "name": outcome.name,
        "title": outcome.title,
        "held": outcome.held,
        "count": len(outcome.verdicts),
        "seconds": f"{outcome.seconds:.1f}",
        "tables": [
            {
                "table": table,
                "kind": _kind(table),
                "rows": [
                    {
                        "name": verdict.reference.name,
                        "words": _words(verdict),
                        "holds": verdict.holds,
                        "share": f"{100.0 * min(1.0, _share(verdict)):.1f}",
                    }
                    for verdict in verdicts
                ],
            }
            for table, verdicts in outcome.by_table
        ],
    }


def _kind(table: Table) -> str:
    return "published" if table.is_published else "computed by two methods"


def _share(verdict: Verdict) -> float:
    """Return the fraction of the allowed distance that is used; above 1, the verdict fails."""
    if verdict.distance <= verdict.allowed:
        return verdict.distance / verdict.allowed if verdict.allowed else 0.0
    return float("inf")


def _counts(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the numbers of verdicts, in all and by kind, and the largest share of a tolerance in use."""
    published = sum(verdict.reference.table.is_published for verdict in verdicts)
    held = sum(verdict.holds for verdict in verdicts)
    counts = len(verdicts), published, len(verdicts) - published, held, len(verdicts) - held
    nearest = max((_share(verdict) for verdict in verdicts if verdict.holds), default=0.0)
    return *map(str, counts), f"{nearest:.0%}"


def _words(verdict: Verdict) -> tuple[str, ...]:
    """Return the cells of a row behind its name, as `_HEADINGS` has them."""
    known, found = verdict.reference, verdict.found
    error = f"{found.std_error:.1e}" if found.std_error else ""
    numbers = f"{known.value:.10g}", f"{found.value:.10g}"
    distances = f"{verdict.distance:.1e}", f"{verdict.allowed:.1e}", error
    figure = known.figure.replace("_", " ")
    return figure, found.method, *numbers, *distances, "yes" if verdict.holds else "NO"


def _record(verdict: Verdict) -> dict[str, Any]:
    """Return one value as data; one that is not finite is null."""
    known, found = verdict.reference, verdict.found
    finite = lambda x: x if abs(x) < float("inf") else None  # noqa: E731
    return {
        "group": verdict.group,
        "table": known.table.name,
        "source": known.table.source,
        "published": known.table.is_published,
        "of": known.name,
        "figure": known.figure,
        "method": found.method,
        "known": finite(known.value),
        "tolerance": finite(known.tolerance),
        "because": known.table.because or "half a unit of the last digit",
        "found": finite(found.value),
        "std_error": finite(found.std_error),
        "distance": finite(verdict.distance),
        "allowed": finite(verdict.allowed),
        "holds": verdict.holds,
        "fault": verdict.fault,
    }
