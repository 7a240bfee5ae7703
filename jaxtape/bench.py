"""`jaxtape bench`: the benchmarks of a checkout, and the page of their results."""

import importlib.util
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from .command_line import path_of
from .file_set import FileSet


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks by name, or all; see --list.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Smaller problems, fewer repeats.")] = False,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds in which a benchmark and its peers take turns."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=path_of, metavar="PATH", help="A folder for the figures, as JSON."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="PATH", help="An HTML file: the latest results, and pictures."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Show the names of the benchmarks, and end.")
    ] = False,
) -> None:
    """Run benchmarks beside their peers, and write a page of the latest results.

    Exit status: 0 if all ended well, 1 if not, 2 if nothing could be run.

    Raises:
        typer.Exit: Not all ended well.
    """
    harness = _harness()
    known = list(harness.QUICK)
    if show:
        Console(markup=False, emoji=False).print("\n".join(known))
        return
    chosen = known if names == ["all"] else names or []
    if unknown := [name for name in chosen if name not in known]:
        _fail(f"{', '.join(unknown)}: no such benchmark; give all, or some of {', '.join(known)}")
    if not chosen and page is None:
        _fail("nothing to do: give all, names of --list, or --page alone for the kept results")
    for place, is_folder in ((out, True), (page, False)):
        _check(place, is_folder)
    rows = harness.run(chosen, quick, repeat, out) if chosen else []
    if page is not None:
        from benchmarks.page import page as page_of  # pyright: ignore[reportMissingImports]

        text = page_of(known, [harness.RESULTS, *([out] if out else [])])
        with FileSet(page.parent).written() as aside:
            (aside / page.name).write_text(text, encoding="utf-8")
    if any(row.status != "ok" for row in rows):
        raise typer.Exit(1)


def _harness():
    """Return the module that runs the benchmarks, which only a checkout has."""
    try:
        has = importlib.util.find_spec("benchmarks.harness") is not None
    except ModuleNotFoundError:
        has = False
    if not has:
        _fail(
            "jaxtape bench runs the benchmarks of a checkout, which are not part of the package: "
            "in a checkout of jaxtape, pip install -e '.[bench]'"
        )
    from benchmarks import harness  # pyright: ignore[reportMissingImports]

    return harness


def _check(place: Path | None, is_folder: bool) -> None:
    """Exit with status 2 if a folder or a file cannot be written there."""
    if place is None:
        return
    if place.exists() and place.is_dir() != is_folder:
        _fail(
            f"{place}: cannot be written: it is {'no' if is_folder else 'a'} folder; give another"
        )
    try:
        FileSet(place if is_folder else place.parent)
    except OSError as error:
        _fail(f"{place}: cannot be written: {error.strerror or error}; give another")


def _fail(message: str) -> NoReturn:
    """Print what is wrong, and exit with status 2.

    Raises:
        typer.Exit: Always.
    """
    Console(stderr=True, markup=False, emoji=False).print(message, style="red", soft_wrap=True)
    raise typer.Exit(2)
