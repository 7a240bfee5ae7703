"""`jaxtape bench`: run the benchmarks of a checkout, and write a page of their results."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .main import (
    output_file,
    path_of,
    refuse,
    write,
)


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="The names of benchmarks, or all; --list shows them.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Run smaller problems, fewer times.")] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of rounds in which a benchmark and its peers take turns."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="PATH", help="Write the figures to this folder, as JSON."
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            parser=path_of,
            metavar="PATH",
            help="Write the latest results and their pictures to this HTML file.",
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Show the names of the benchmarks and exit.")
    ] = False,
) -> None:
    """Run benchmarks beside their peers, and write a page of the latest results.

    Exit status: 0 if all succeeded, 1 if not, 2 if nothing could be run.

    Raises:
        typer.Exit: If one failed.
    """
    harness = _harness()
    known = list(harness.QUICK)
    if show:
        Console(markup=False, emoji=False).print("\n".join(known))
        return
    chosen = known if names == ["all"] else names or []
    if unknown := [name for name in chosen if name not in known]:
        refuse(f"{', '.join(unknown)}: no such benchmark; give all, or some of {', '.join(known)}")
    if not chosen and page is None:
        refuse("nothing to do: give all, names of --list, or --page alone for the kept results")
    if out is not None:
        if out.exists() and not out.is_dir():
            refuse(f"{out}: cannot be written: it is not a folder; give another")
        output_file(out / "results")
    file_set = None if page is None else output_file(page)
    rows = harness.run(chosen, quick, repeat, out) if chosen else []
    if page is not None and file_set is not None:
        from benchmarks.page import page as page_of  # pyright: ignore[reportMissingImports]

        text = page_of(known, [harness.RESULTS, *([out] if out else [])])
        write(file_set, {page.name: text})
    if any(row.status != "ok" for row in rows):
        raise typer.Exit(1)


def _harness():
    """Return the module that runs the benchmarks, which only a checkout has."""
    try:
        has = importlib.util.find_spec("benchmarks.harness") is not None
    except ModuleNotFoundError:
        has = False
    if not has:
        refuse(
            "jaxtape bench runs the benchmarks of a checkout, which are not part of the package: "
            "in a checkout of jaxtape, pip install -e '.[bench]'"
        )
    from benchmarks import harness  # pyright: ignore[reportMissingImports]

    return harness
