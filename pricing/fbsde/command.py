"""`jaxtape solve`: solve published problems by name, and compare with their known figures."""

import contextlib
import functools
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from jaxtape.cli.main import (
    Precision,
    configure,
    output_file,
    path_of,
    progress_bar,
    refuse,
    write,
)

from .catalogue import CATALOGUE, Entry, off_diagonal
from .error_bars.certificate import certify as certify_solution
from .error_bars.early_exercise_bounds import bounds
from .solution import Solution
from .solving import solve as solve_problem

_NAMES = ", ".join(CATALOGUE)
_path_option = functools.partial(typer.Option, parser=path_of, metavar="PATH")


@dataclass
class FigureRow:
    """A figure of one problem: for a gradient the mean of its entries, for a Hessian of its diagonal.

    Attributes:
        problem: The name of the problem.
        solver: The name of the solver.
        figure: The name of the figure.
        known: The known figure.
        mean: The mean over seeds.
        spread: The standard deviation over seeds.
        error: The relative error of the mean.
        apart: |found - known| / |known|, in the norm of all entries of the figure, in the mean over seeds.
        seconds: The time of one solve, its program compiled before.
        compile_seconds: The additional time of the first solve.
        certified: The figure from fresh paths, of the first seed; None if that was not asked for.
        std_error: The largest standard error of its entries.
        certify_seconds: The time of a certificate, its program compiled before.
    """

    problem: str
    solver: str
    figure: str
    known: float
    mean: float
    spread: float
    error: float
    apart: float
    seconds: float
    compile_seconds: float
    certified: float | None = None
    std_error: float | None = None
    certify_seconds: float | None = None


def solve(
    names: Annotated[list[str], typer.Argument(help=f"Problems: {_NAMES}; or all.")],
    seeds: Annotated[int, typer.Option(min=1, help="Number of solves of each problem.")] = 5,
    out: Annotated[Path | None, _path_option(help="Write the table to this JSON file.")] = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar for each solve.")] = True,
    resume: Annotated[
        Path | None,
        _path_option(
            help="Keep checkpoints in this folder, and resume a run that was interrupted."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        _path_option(help="Write the losses to this folder: JSON lines and TensorBoard events."),
    ] = None,
    certify: Annotated[
        int,
        typer.Option(
            min=0, help="Number of fresh paths for standard errors of the first seed; 0 for none."
        ),
    ] = 0,
    precision: Annotated[
        Precision, typer.Option(help="Floating-point precision.")
    ] = Precision.single,
) -> None:
    """Solve published backward equations, and set what was found beside what is known of them.

    Exit status: 0; 2 if a name is not known or --out cannot be written.
    """
    configure(precision, hosts_too=True)
    console = Console(width=190 if certify else 150, markup=False, emoji=False)
    names = list(CATALOGUE) if names == ["all"] else names
    unknown = [name for name in names if name not in CATALOGUE]
    if unknown:
        refuse(f"{', '.join(unknown)}: no such problem. There are: {_NAMES}.")
    files = None if out is None else output_file(out)
    rows: list[FigureRow] = []
    for name in names:
        bar = console if progress else None
        rows += _rows(name, seeds, certify, bar, resume=resume, metrics=metrics)
    console.print(_table(rows, seeds))
    if out is not None and files is not None:
        text = json.dumps([asdict(row) for row in rows], indent=1)
        write(files, {out.name: f"{text}\n"})


def _rows(
    name: str, seeds: int, num_paths: int, console: Console | None, **folders: Path | None
) -> list[FigureRow]:
    """Return every known figure of one problem.

    num_paths: of the certificate of the first seed, or 0; console: where progress is shown.
    """
    entry = CATALOGUE[name]
    problem, solver = entry.problem(), type(entry.solver).__name__
    known = entry.figures(problem)
    known |= {"lower": known["value"], "upper": known["value"]}
    found, seconds, certified, certifying = [], [], {}, []
    for seed in range(seeds):
        own: Any = {kind: top and top / name / str(seed) for kind, top in folders.items()}
        key, start = jax.random.key(seed), time.perf_counter()
        with progress_bar(solver, console) if console else contextlib.nullcontext() as progress:
            try:
                solution = solve_problem(
                    problem, entry.solver, key=key, progress=progress, throw=False, **own
                )
            except (ValueError, ImportError, OSError) as error:  # of the folders
                refuse(f"{name}: {error}")
        jax.block_until_ready(solution.stats["losses"])
        seconds.append(time.perf_counter() - start)
        found.append(_figures(solution, entry, known, seed))
        if num_paths and seed < 2:  # the second for its time
            start = time.perf_counter()
            figures = _certified(solution, num_paths)
            certifying.append(time.perf_counter() - start)
            certified = certified or figures
    usual = min(seconds)
    times = usual, max(0.0, seconds[0] - usual)
    rows = []
    for figure in found[0]:
        truth, means = _summary(known[figure]), [_summary(each[figure]) for each in found]
        mean = float(np.mean(means))
        spread = float(np.std(means, ddof=1)) if seeds > 1 else float("nan")
        missed = [np.linalg.norm(each[figure] - known[figure]) for each in found]
        apart = float(np.mean(missed) / np.linalg.norm(known[figure]))
        error = mean / truth - 1.0
        figures = name, solver, figure, truth, mean, spread, error, apart, *times
        bars = (*certified[figure], min(certifying)) if figure in certified else ()
        rows.append(FigureRow(*figures, *bars))
    return rows


def _summary(figure: np.ndarray) -> float:
    """Return the mean of a figure's entries; for a Hessian, of its diagonal."""
    return float(np.mean(np.diagonal(figure) if figure.ndim == 2 else figure))


def _figures(solution: Solution, entry: Entry, known: Iterable[str], seed: int) -> dict[str, Any]:
    x0 = solution.problem.x0
    derivatives = {"value": solution.value, "delta": solution.delta, "gamma": solution.gamma}
    figures = {name: np.asarray(f(0.0, x0)) for name, f in derivatives.items() if name in known}
    if "cross gamma" in known:
        figures["cross gamma"] = off_diagonal(figures["gamma"])
    if entry.bounded:
        between = bounds(solution, key=jax.random.key(10_000 + seed), throw=False)
        figures |= {"lower": np.asarray(between.lower), "upper": np.asarray(between.upper)}
    return figures


def _certified(solution: Solution, num_paths: int) -> dict[str, tuple[float, float]]:
    """Return figures from fresh paths, each with the largest standard error of its entries."""
    found = certify_solution(solution, key=jax.random.key(20_000), num_paths=num_paths)
    figures = {name: getattr(found, name) for name in ("value", "delta", "gamma")}
    if solution.problem.dim > 1:
        figures["cross gamma"] = jax.tree.map(off_diagonal, found.gamma)
    summaries = {name: _summary(np.asarray(x.mean)) for name, x in figures.items()}
    return {name: (summaries[name], float(np.max(x.std_error))) for name, x in figures.items()}


def _table(rows: list[FigureRow], seeds: int) -> Table:
    table = Table(title=f"mean and spread of {seeds} seeds")
    for heading in ("problem", "solver", "figure"):
        table.add_column(heading, no_wrap=True)
    headings = ["known", "mean", "spread", "error", "apart", "seconds", "compiling"]
    headings += ["certified", "std error", "certifying"] * any(
        row.certified is not None for row in rows
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        numbers = (f"{x:.6g}" for x in (row.known, row.mean, row.spread))
        errors = f"{row.error:+.3%}", f"{row.apart:.3%}"
        times = f"{row.seconds:.1f}", f"{row.compile_seconds:.1f}"
        bars = ()
        if row.certified is not None:
            bars = f"{row.certified:.6g}", f"{row.std_error:.2g}", f"{row.certify_seconds:.1f}"
        table.add_row(row.problem, row.solver, row.figure, *numbers, *errors, *times, *bars)
    return table
