"""`jaxtape validate`: compare the library's values with known ones."""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .check import Check, Group
from .check_report import GroupResult, as_json, list_of_groups, page, summary, tables
from .main import Precision, configure, output_file, path_of, progress_bar, refuse, write
from .user_code import as_value_error, describe_error, load_object

_GROUP = "jaxtape.validated"


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="The names of groups, all, or FILE.py:GROUP (module:GROUP); --list shows the names."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Show the groups and their numbers of values, and exit.")
    ] = False,
    values: Annotated[
        bool, typer.Option(help="Show every value, or only the number that pass in each group.")
    ] = True,
    html: Annotated[
        Path | None,
        typer.Option(parser=path_of, metavar="PATH", help="Write all values to this HTML page."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=path_of, metavar="PATH", help="Write all values to this JSON file."),
    ] = None,
) -> None:
    """Compare published and computed reference values with this library's, each with its tolerance.

    Exit status: 0 if all are within their tolerance, 1 if any is not, 2 if a group cannot be used.

    Raises:
        typer.Exit: If some value is out of its tolerance.
    """
    console = Console(width=190, markup=False, emoji=False)
    if html is not None and out is not None and html.resolve() == out.resolve():
        refuse(f"--html and --out are both {out}: give two files")
    files = {path: output_file(path) for path in (html, out) if path is not None}
    configure(Precision.double)
    groups = _groups(names or [])
    if show:
        console.print(list_of_groups(groups))
        return
    results = _results(groups, console)
    if values:
        for table in tables(results):
            console.print(table)
    console.print(summary(results))
    texts = {html: page, out: as_json}
    for path, output in files.items():
        write(output, {path.name: texts[path](results)})
    faults = [(x.name, check) for x in results for check in x.checks if not check.holds]
    for name, check in faults:
        console.print(_sentence(name, check), style="red", soft_wrap=True)
    if faults:
        raise typer.Exit(1)


def _groups(names: Sequence[str]) -> dict[str, Group]:
    known = {found.name: found for found in entry_points(group=_GROUP)}
    groups: dict[str, Group] = {}
    for name in sorted(known) if names in ([], ["all"]) else names:
        if name not in known and ":" not in name:
            there_are = ", ".join(sorted(known))
            refuse(f"{name}: no such group. There are: {there_are}; or give FILE.py:GROUP")
        try:
            group = known[name].load() if name in known else load_object(name)
            if not isinstance(group, Group):
                kind = type(group).__name__
                refuse(f"{name}: is a {kind}; give a jaxtape.cli.check.Group")
            group.checks()
        except (ValueError, OSError) as error:
            refuse(str(error) if name in str(error) else f"{name}: {error}")
        except Exception as error:  # raised by a user's group
            refuse(f"{name}: its references cannot be read: {describe_error(error)}; correct them")
        groups[name] = group
    return groups


def _results(groups: Mapping[str, Group], console: Console) -> list[GroupResult]:
    """Return the results of each group, computed by one worker per core."""

    def of(name: str) -> GroupResult:
        start = time.perf_counter()
        with as_value_error(f"{name}: its figures cannot be used", "return a Check for each"):
            checks = groups[name].results()
            all(check.holds for check in checks)
        return GroupResult(name, groups[name].title, checks, time.perf_counter() - start)

    with (
        progress_bar("validate", console) as progress,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        working = {pool.submit(of, name): name for name in groups}
        for done, ended in enumerate(as_completed(working), 1):
            if progress is not None:
                progress(done, len(groups), working[ended])
        try:
            return [working_on.result() for working_on in working]
        except ValueError as error:
            refuse(str(error))


def _sentence(group: str, check: Check) -> str:
    suffix = f" ({check.name})" if check.name else ""
    known = f"known as {check.reference:.10g}"
    return f"{group}, {check.source.name}: the {check.figure}{suffix}, {known}, {check.fault}"
