"""`jaxtape compare`: compare values and gradients in JAX and in PyTorch."""

import json
import math
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .main import Precision, configure, output_file, path_of, refuse, write

_GROUP = "jaxtape.compared"
_PRECISIONS, _WAYS = ("double", "single"), ("eager", "func", "compile")


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="The names of cases, all, or FILE.py:CASE (module:CASE); --list shows the names."
        ),
    ] = None,
    ours: Annotated[
        str | None,
        typer.Option("--jax", help="Your function or eqx.Module: FILE.py:NAME or module:NAME."),
    ] = None,
    theirs: Annotated[
        str | None, typer.Option("--torch", help="The same function in PyTorch, or nn.Module.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(help="The inputs: a tuple of arrays, or a function that returns one."),
    ] = None,
    ways: Annotated[
        str,
        typer.Option(help="The ways PyTorch computes its gradient: some of eager,func,compile."),
    ] = "eager,func",
    precisions: Annotated[
        str, typer.Option(help="The floating-point precisions: some of double,single.")
    ] = "double,single",
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="The largest difference allowed, as a share of the largest entry; by default 1e-10 "
            "(double) and 1e-4 (single).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of random inputs.")] = 0,
    leaves: Annotated[
        bool, typer.Option(help="Show a row for every gradient, not only for the worst.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Show the names of the cases and exit.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="PATH", help="Write all gradients and nodes to this JSON file."
        ),
    ] = None,
) -> None:
    """Compare values and gradients of functions in JAX and in PyTorch, input by input and node by node.

    Exit status: 0 if all agree, 1 if not, 2 if something cannot be compared.

    Raises:
        typer.Exit: If not all agree.
    """
    console = Console(width=170, markup=False, emoji=False)
    known = {found.name: found for found in entry_points(group=_GROUP)}
    if show:
        console.print("\n".join(sorted(known)))
        return
    kinds, chosen = _some("precisions", precisions, _PRECISIONS), _some("ways", ways, _WAYS)
    if tolerance is not None and not math.isfinite(tolerance):
        refuse(f"--tolerance {tolerance}: give a number, such as 1e-10")
    files = None if out is None else output_file(out)
    configure(Precision.double)
    over = [(precision, way) for precision in kinds for way in chosen]
    found = _comparisons(names or [], (ours, theirs, inputs), known, over, tolerance, seed)
    console.print(_table(found, leaves))
    for one in found:
        for text in _faults(one):
            console.print(text, style="red", soft_wrap=True)
    if out is not None and files is not None:
        write(files, {out.name: f"{json.dumps(found, indent=1)}\n"})
    if not all(one["agrees"] for one in found):
        raise typer.Exit(1)


def _some(name: str, text: str, known: tuple[str, ...]) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not set(words) <= set(known):
        refuse(f"--{name} {text}: give some of {','.join(known)}")
    return words


def _comparisons(
    names: list[str],
    own: tuple[str | None, str | None, str | None],
    known: Mapping[str, EntryPoint],
    over: list[tuple[str, str]],
    tolerance: float | None,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the comparison of each case in each precision and way, or refuse."""
    try:
        from . import compare_cases
    except ModuleNotFoundError as error:
        refuse(f"jaxtape compare needs PyTorch ({error}): pip install 'jaxtape[torch]'")
    if any(own) and not all(own):
        refuse("--jax, --torch and --inputs belong together: give all three")
    if not names and not any(own):
        refuse(
            f"nothing to compare: give all, some of {', '.join(known)}, or --jax, --torch, --inputs"
        )
    settings: dict[str, Any] = {"tolerance": tolerance, "seed": seed}
    try:
        cases = compare_cases.named_cases(names, known)
        if any(own):
            cases.append(compare_cases.own_case(*map(str, own)))
        return [
            compare_cases.comparison(*case, *both, **settings) for case in cases for both in over
        ]
    except ValueError as error:
        refuse(str(error))


def _faults(found: Mapping[str, Any]) -> list[str]:
    label = f"{found['case']}, {found['precision']}, {found['way']}"
    faults = [f"{label}: the weight {text}" for text in found["weights"]]
    if found["parts_at"] is not None:
        faults.append(f"{label}: both part at {found['parts_at']}")
    worst = found["worst"]
    if not worst["relative"] <= found["tolerance"]:
        apart = f"{worst['relative']:.1e} of its largest entry apart"
        faults.append(f"{label}: the gradient of {worst['name']} is {apart}")
    return faults


def _table(comparisons: list[dict[str, Any]], leaves: bool) -> Table:
    table = Table(title="gradients in JAX and PyTorch")
    for heading in ("case", "precision", "PyTorch", "gradient of"):
        table.add_column(heading, no_wrap=True)
    for heading in ("shape", "largest", "apart", "relative", "ulp", "cosine", "at most"):
        table.add_column(heading, justify="right")
    table.add_column("agrees")
    for found in comparisons:
        for row in found["gradients"] if leaves else [found["worst"]]:
            table.add_row(
                *(found["case"], found["precision"], found["way"], row["name"]),
                "x".join(map(str, row["shape"])) or "number",
                f"{row['largest']:.4g}",
                f"{row['max_difference']:.1e}",
                f"{row['relative']:.1e}",
                f"{row['ulp']:.1f}",
                f"{row['cosine']:.12f}",
                f"{found['tolerance']:g}",
                "yes" if found["agrees"] else "NO",
            )
    return table
