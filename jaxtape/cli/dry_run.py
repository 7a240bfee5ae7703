"""Dry-run a command: compile its programs for an accelerator that is not attached."""

import contextlib
import functools
import inspect
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.console import Console
from rich.table import Table

from ..jax_private import backends_are_initialized
from ..jax_settings.matmul_precision import matmul_precision_context
from ..jax_settings.platform import traced_for
from ..jax_settings.single_on_devices import on_devices
from ..programs.compile_for import TargetCompiler
from ..programs.compiled_report import CompiledReport
from ..programs.recorded import RecordedProgram, recorded_programs
from ..programs.targets import Target
from .compile import TARGET, compiler_for
from .main import SOME_FAILED, UNUSABLE, default_precision, refuse

Command = Callable[..., None]


def with_dry_run(**instead: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds a dry run to a command with the options `out` and `precision`.

    The command gets the options `--target` and `--dry-run`. A dry run writes nothing to `out`. It runs the
    command here, on virtual devices if it asks for several, and compiles each of its programs for the target.
    Its exit status is 0; 1 if some do not compile or do not fit; 2 if nothing could be done.

    Args:
        **instead: Options that a dry run sets, in place of the given ones.
    """
    return functools.partial(_with_dry_run, instead=instead)


def _with_dry_run(command: Command, instead: dict[str, Any]) -> Command:
    @functools.wraps(command)
    def either(*, target: str | None = None, dry_run: bool = False, **given: Any) -> None:
        if dry_run != (target is not None):
            refuse("--target and --dry-run: give both, such as --target tpu:v5e:2x2 --dry-run")
        if target is None:
            return command(**given)
        with compiler_for(target) as compiler:
            platform = compiler.target.platform
            given["precision"] = given.get("precision") or default_precision(platform)
            _set_devices(given.get("devices") or 1)
            programs = _programs_of(command, {**given, **instead})
            reports = _compiled(programs, compiler)
            _print_reports(programs, reports, compiler.target)
        if not all(report.fits for report in reports):
            raise typer.Exit(SOME_FAILED)

    signature = inspect.signature(command)
    more = {
        "target": Annotated[str | None, TARGET],
        "dry_run": Annotated[
            bool,
            typer.Option(
                "--dry-run", help="Write nothing; compile every program for the target instead."
            ),
        ],
    }
    defaults = {"target": None, "dry_run": False}
    added = [
        inspect.Parameter(x, inspect.Parameter.KEYWORD_ONLY, default=defaults[x], annotation=kind)
        for x, kind in more.items()
    ]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()]
    either.__signature__ = signature.replace(parameters=[*own, *added])  # pyright: ignore[reportAttributeAccessIssue]
    either.__annotations__ = {**command.__annotations__, **more}
    return either


def _set_devices(count: int) -> None:
    """Make virtual devices, unless JAX has started."""
    if count > 1 and not backends_are_initialized():
        jax.config.update("jax_num_cpu_devices", count)


def _programs_of(command: Command, given: dict[str, Any]) -> list[RecordedProgram]:
    """Run a command into a temporary folder, and return its programs.

    Raises:
        Exit: If the command could do nothing.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        recorded_programs() as programs,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            command(**{**given, "out": Path(folder) / "out"})
        except typer.Exit as ended:
            if ended.exit_code == UNUSABLE:
                raise
    return list(programs.values())


def _compiled(
    programs: Sequence[RecordedProgram], compiler: TargetCompiler
) -> list[CompiledReport]:
    progress = Console(stderr=True, markup=False, emoji=False)
    reports = []
    try:
        with on_devices(), traced_for([compiler.target.platform]), matmul_precision_context():
            for number, each in enumerate(programs, 1):
                progress.print(f"compiling {each.function.__name__} ({number} of {len(programs)})")
                reports.append(compiler.compile(each.function, *each.args, **each.kwargs))
    except ValueError as error:
        refuse(f"--{error}")
    return reports


def _print_reports(
    programs: Sequence[RecordedProgram], reports: Sequence[CompiledReport], target: Target
) -> None:
    """Print a line for each program, and their sum."""
    console = Console(width=120, markup=False, emoji=False)
    table = Table(title=f"{len(programs)} programs for {target.name}")
    for heading in ("program", "runs", "compiles", "MB a device", "temporary MB", "s a run", "s"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    total, unknown = 0.0, 0
    for each, report in zip(programs, reports, strict=True):
        says = "yes" if report.fits else "too large" if report.compiles else "NO"
        sizes = (f"{size / 1e6:,.1f}" for size in (report.total_bytes, report.temporary_bytes))
        times = "unknown", "unknown"
        if report.seconds is None:
            unknown += 1
        else:
            times = f"{report.seconds:.2g}", f"{each.calls * report.seconds:.2g}"
            total += each.calls * report.seconds
        figures = (*sizes, *times) if report.compiles else ()
        table.add_row(each.function.__name__, f"{each.calls:,}", says, *figures)
    console.print(table)
    for each, report in zip(programs, reports, strict=True):
        if not report.compiles:
            console.print(f"{each.function.__name__}: {report.reason}", soft_wrap=True)
    largest = max((report.total_bytes for report in reports), default=0)
    console.print(
        f"{sum(report.fits for report in reports)} of {len(reports)} compile and fit; the largest takes "
        f"{largest / 1e6:,.1f} MB of a device's {target.device_bytes / 1e6:,.0f} MB\n"
        f"{total:.3g} s on the devices by the cost model, without {unknown} programs of unknown time",
        soft_wrap=True,
    )
