"""`jaxtape solve`: solve published or custom problems, and compare with known figures."""

import contextlib
import functools
import io
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from jaxtape.cli.main import (
    Precision,
    command_as_typed,
    configure,
    output_file,
    path_of,
    progress_bar,
    refuse,
    write,
)
from jaxtape.cli.user_code import as_value_error, load_object
from jaxtape.output_folder import AtomicOutput

from .catalogue import CATALOGUE, Entry, off_diagonal
from .dynamics.driver_form import driver_forms, no_bounds_reason
from .error_bars.certificate import certify as certify_solution
from .error_bars.early_exercise_bounds import bounds
from .problem import Problem
from .solution import Solution
from .solver import AbstractSolver
from .solving import solve as solve_problem
from .solving import solver_by_pilots

_NAMES = ", ".join(CATALOGUE)
_path_option = functools.partial(typer.Option, parser=path_of, metavar="PATH")


@dataclass
class FigureRow:
    """A figure of one problem: for a gradient the mean of its entries, for a Hessian that of its diagonal.

    Attributes:
        problem: The name of the problem.
        solver: The name of the solver.
        figure: The name of the figure.
        known: The known figure; None if unknown.
        mean: The mean over seeds.
        spread: The standard deviation over seeds.
        error: The relative error of the mean; None, like `apart`, if no figure is known.
        apart: The mean over seeds of |found - known| / |known|, in the norm of all entries of the figure.
        seconds: The time of one solve with compiled programs.
        compile_seconds: The additional time of the first solve.
        certified: The certified figure of the first seed, from fresh paths; None if not requested.
        std_error: The largest standard error of its entries.
        certify_seconds: The time of a certificate with a compiled program.
    """

    problem: str
    solver: str
    figure: str
    known: float | None
    mean: float
    spread: float
    error: float | None
    apart: float | None
    seconds: float
    compile_seconds: float
    certified: float | None = None
    std_error: float | None = None
    certify_seconds: float | None = None


def solve(
    names: Annotated[
        list[str],
        typer.Argument(
            help=f"Problems: {_NAMES}; all; or FILE.py:NAME, a Problem or a function that returns "
            f"one."
        ),
    ],
    solver: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="A solver for all problems.",
            show_default="published, or selected by pilot runs",
        ),
    ] = None,
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
    pictures: Annotated[
        Path | None,
        _path_option(help="Write a picture of the first solution of each problem to this folder."),
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="Floating-point precision.")
    ] = Precision.single,
) -> None:
    """Solve backward equations, and compare the results with known figures.

    Exit status: 0; 2 if a problem is unknown, unreadable or refused by its solver, or if --out or --pictures
    cannot be written.
    """
    configure(precision, hosts_too=True)
    console = Console(width=190 if certify else 150, markup=False, emoji=False)
    names = list(CATALOGUE) if names == ["all"] else names
    unknown = [name for name in names if name not in CATALOGUE and ":" not in name]
    if unknown:
        refuse(
            f"{', '.join(unknown)}: no such problem. Known: {_NAMES}; give a custom one as "
            f"FILE.py:NAME."
        )
    files = None if out is None else output_file(out)
    try:
        given = None if solver is None else _loaded(solver, AbstractSolver)
        entries = {_label(name): _entry(name, given) for name in names}
        drawn = None if pictures is None else _picture_files(pictures, entries)
    except (ValueError, TypeError, RuntimeError) as error:
        refuse(str(error))
    rows: list[FigureRow] = []
    for name, entry in entries.items():
        bar = console if progress else None
        figures, first = _rows(name, entry, seeds, certify, bar, resume=resume, metrics=metrics)
        rows += figures
        if drawn is not None:
            write(drawn, {f"{name}.svg": _svg(first)})
    console.print(_table(rows, seeds))
    if out is not None and files is not None:
        text = json.dumps([asdict(row) for row in rows], indent=1)
        write(files, {out.name: f"{text}\n"})


def _label(name: str) -> str:
    """Return the label of a problem: mine.problem for folder/mine.py:problem."""
    where, _, attribute = name.rpartition(":")
    return f"{Path(where).stem}.{attribute}" if where else name


def _loaded(place: str, kind: type) -> Any:
    """Return the object of a class at FILE.py:NAME, or the result of a function there.

    Raises:
        ValueError: The object cannot be loaded, or has another class.
    """
    found = load_object(place)
    if not isinstance(found, kind) and callable(found):
        with as_value_error(f"{place}: cannot be created", "correct the function"):
            found = found()
    if not isinstance(found, kind):
        raise ValueError(
            f"{place}: is a {type(found).__name__}; give a {kind.__name__}, or a function that "
            f"returns one"
        )
    return found


def _entry(name: str, solver: AbstractSolver | None) -> Entry:
    """Return the entry of a published problem, or of a custom one with a solver selected by pilot runs."""
    if name in CATALOGUE:
        entry = CATALOGUE[name]
        return entry if solver is None else replace(entry, solver=solver)
    problem = _loaded(name, Problem)
    bounded = no_bounds_reason(problem, driver_forms(problem, "discounts")) is None
    chosen = solver or solver_by_pilots(problem, key=jax.random.key(0))
    return Entry(lambda: problem, chosen, None, bounded=bounded)


def _picture_files(folder: Path, names: Iterable[str]) -> AtomicOutput:
    """Return the picture files, or refuse a folder that is not writable."""
    try:
        return AtomicOutput(folder, command_as_typed(), [f"{name}.svg" for name in names])
    except OSError as error:
        place, reason = error.filename or folder, error.strerror or error
        refuse(f"{place}: cannot be written: {reason}; give another folder")


def _svg(solution: Solution) -> str:
    text = io.StringIO()
    solution.plot().savefig(text, format="svg")
    return text.getvalue()


def _rows(
    name: str,
    entry: Entry,
    seeds: int,
    num_paths: int,
    console: Console | None,
    **folders: Path | None,
) -> tuple[list[FigureRow], Solution]:
    """Return the known figures of one problem (all figures of a custom one), and the first solution.

    num_paths: paths of the certificate of the first seed, or 0; console: the console for progress.
    """
    problem, solver = entry.problem(), type(entry.solver).__name__
    known = entry.figures(problem)
    if known:
        known |= {"lower": known["value"], "upper": known["value"]}
    found, seconds, certified, certifying, first = [], [], {}, [], None
    for seed in range(seeds):
        own: Any = {kind: top and top / name / str(seed) for kind, top in folders.items()}
        key, start = jax.random.key(seed), time.perf_counter()
        with progress_bar(solver, console) if console else contextlib.nullcontext() as progress:
            try:
                solution = solve_problem(
                    problem, entry.solver, key=key, progress=progress, throw=False, **own
                )
            except (ValueError, TypeError, ImportError, OSError) as error:
                refuse(f"{name}: {error}")
        jax.block_until_ready(solution.stats["losses"])
        seconds.append(time.perf_counter() - start)
        first = first or solution
        found.append(_figures(solution, entry, known, seed))
        if num_paths and seed < 2:  # the second run measures the time
            start = time.perf_counter()
            figures = _certified(name, solution, num_paths)
            certifying.append(time.perf_counter() - start)
            certified = certified or figures
    assert first is not None
    usual = min(seconds)
    times = usual, max(0.0, seconds[0] - usual)
    rows = []
    for figure in found[0]:
        means = [_summary(figure, each[figure]) for each in found]
        mean = float(np.mean(means))
        spread = float(np.std(means, ddof=1)) if seeds > 1 else float("nan")
        truth = error = apart = None
        if figure in known:
            truth = _summary(figure, known[figure])
            missed = [np.linalg.norm(each[figure] - known[figure]) for each in found]
            apart = float(np.mean(missed) / np.linalg.norm(known[figure]))
            error = mean / truth - 1.0
        figures = name, solver, figure, truth, mean, spread, error, apart, *times
        bars = (*certified[figure], min(certifying)) if figure in certified else ()
        rows.append(FigureRow(*figures, *bars))
    return rows, first


def _summary(name: str, figure: np.ndarray) -> float:
    """Return the mean of a figure's entries; for a Hessian, that of its diagonal."""
    is_hessian = name == "gamma"
    return float(np.mean(np.diagonal(figure, axis1=-2, axis2=-1) if is_hessian else figure))


def _figures(solution: Solution, entry: Entry, known: Iterable[str], seed: int) -> dict[str, Any]:
    """Return the known figures or, if there are none, all that the solver learns."""
    x0, figures = solution.problem.x0, {}
    derivatives = {"value": solution.value, "delta": solution.delta, "gamma": solution.gamma}
    for name, figure in derivatives.items():
        if name in known or not known:
            with contextlib.suppress(*() if known else (RuntimeError, TypeError)):
                figures[name] = np.asarray(figure(0.0, x0))
    if "cross gamma" in known:
        figures["cross gamma"] = off_diagonal(figures["gamma"])
    if entry.bounded:
        between = bounds(solution, key=jax.random.key(10_000 + seed), throw=False)
        figures |= {"lower": np.asarray(between.lower), "upper": np.asarray(between.upper)}
    return figures


def _certified(label: str, solution: Solution, num_paths: int) -> dict[str, tuple[float, float]]:
    """Return figures from fresh paths, each with the largest standard error of its entries."""
    try:
        found = certify_solution(solution, key=jax.random.key(20_000), num_paths=num_paths)
    except (TypeError, ValueError, RuntimeError) as error:
        refuse(f"{label}: --certify {num_paths}: {error}")
    figures = {name: getattr(found, name) for name in ("value", "delta", "gamma")}
    if solution.problem.dim > 1 and not solution.problem.contracts:
        figures["cross gamma"] = jax.tree.map(off_diagonal, found.gamma)
    summaries = {name: _summary(name, np.asarray(x.mean)) for name, x in figures.items()}
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
        known = "" if row.known is None else f"{row.known:.6g}"
        numbers = known, f"{row.mean:.6g}", f"{row.spread:.6g}"
        errors = "", ""
        if row.error is not None and row.apart is not None:
            errors = f"{row.error:+.3%}", f"{row.apart:.3%}"
        times = f"{row.seconds:.1f}", f"{row.compile_seconds:.1f}"
        bars = ()
        if row.certified is not None:
            bars = f"{row.certified:.6g}", f"{row.std_error:.2g}", f"{row.certify_seconds:.1f}"
        table.add_row(row.problem, row.solver, row.figure, *numbers, *errors, *times, *bars)
    return table
