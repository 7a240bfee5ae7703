"""The command `jaxtape`. It finds its subcommands through entry points, so that no import runs upward.

A distribution adds a subcommand by naming a function with annotated options in its entry points, group
`jaxtape.commands`. Only the subcommand in use is imported.
"""

import contextlib
import errno
import gc
import importlib.util
import inspect
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import jax
import typer
from rich import progress as bars
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from ..jax_settings.single_on_devices import use_single_on_devices
from ..jax_settings.startup import INTERRUPTED, UNUSABLE, imported, interrupts_end_it
from ..jax_settings.xla_flags import WITHOUT_COSTLY_PASSES, WITHOUT_FUSION_EMITTERS, add_flag
from ..object_store import Place, place_of
from ..output_folder import AtomicOutput, local_path
from ..programs.status import current_status
from .cache import read_ahead, use_cache
from .escaping import escaped

GROUP = "jaxtape.commands"
SOME_FAILED, TOO_MANY_FAILED, TRY_AGAIN = (
    1,
    3,
    75,
)  # exit statuses; the last is EX_TEMPFAIL in sysexits.h
MAX_SEED, MAX_COUNT = 2**63 - 1, 2**31 - 1  # the largest entries of arrays of integers


class Precision(StrEnum):
    """The width of floating-point numbers: 64 or 32 bits."""

    double = "double"
    single = "single"


class Commands(TyperGroup):
    """The subcommands of the installed distributions, each imported on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the name of every subcommand, in alphabetical order."""
        del ctx
        return sorted(_commands())

    def get_command(self, ctx: Any, cmd_name: str):
        """Return the subcommand of that name; None if there is none."""
        del ctx
        commands = _commands()
        if cmd_name not in commands:
            return None
        _require_own_packages(commands)
        command = commands[cmd_name].load()
        imported()
        return _command(cmd_name, command)


def _commands() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=GROUP)}


def _require_own_packages(commands: Mapping[str, EntryPoint]) -> None:
    """Refuse if a user's module shadows a package of this distribution: it would run in its place."""
    folder = Path(__file__).parents[2]  # beside `jaxtape`
    for name in sorted({found.module.partition(".")[0] for found in commands.values()}):
        package, spec = folder / name, importlib.util.find_spec(name)
        origin = spec.origin if spec is not None else None
        is_other = origin is not None and Path(origin).parent != package
        if is_other and (package / "__init__.py").is_file():
            refuse(
                f"{origin}: shadows the package {name} of jaxtape; rename it, or take its folder "
                "out of PYTHONPATH"
            )


def _command(name: str, function: Callable[..., None]):
    single = _app(add_completion=False)
    single.command(name, help=_help_of(function))(function)
    return typer.main.get_command(single)


def _help_of(function: Callable[..., None]) -> str:
    """Return a function's docstring without its sections, which are for callers in Python."""
    return re.split(r"\n+(?:Args|Returns|Raises|Examples):\n", inspect.getdoc(function) or "")[0]


def _app(**options) -> typer.Typer:
    return typer.Typer(pretty_exceptions_enable=False, **options)


app = _app(cls=Commands, no_args_is_help=True, add_completion=True)
_at_end = contextlib.ExitStack()


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"jaxtape {version('jaxtape')}")
        raise typer.Exit()
    return wanted


@app.callback()
def _jaxtape(
    show_version: bool = typer.Option(
        False, "--version", help="Show the version.", is_eager=True, callback=_show_version
    ),
) -> None:
    """Adjoint Greeks, calibration and deep FBSDE solvers in JAX, at any memory budget."""


def path_of(text: str) -> Path:
    """Return the path that an option gives; an empty one would be the current folder.

    Raises:
        BadParameter: If the text is not a path, is a URL, or is too long for the system.
    """
    _require_path(text)
    try:
        return local_path(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def place_from(text: str) -> Place:
    """Return the path, or the place in an object store, that an option gives.

    Raises:
        BadParameter: If the text is neither a path nor the URL of an object store.
    """
    _require_path(text)
    try:
        return place_of(text)
    except (ValueError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error


def _require_path(text: str) -> None:
    """Check that a text can be a path.

    Raises:
        BadParameter: If it is empty, or too long for the system.
    """
    try:
        is_path = bool(text.strip()) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise typer.BadParameter(f"{text!r} is not a path: give one, such as out/risk")
    try:
        os.lstat(text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            message = (
                f"{text[:40]!r}... is not a path: it has {len(text):,} characters; give a shorter "
                f"one"
            )
            raise typer.BadParameter(message) from error


def refuse(message: str, status: int = UNUSABLE) -> NoReturn:
    """Print the reason for a refusal on stderr in one line, and exit with `status`.

    Raises:
        typer.Exit: Always.
    """
    print(f"jaxtape: {escaped(' '.join(message.split()))}", file=sys.stderr)
    raise typer.Exit(status)


def command_as_typed() -> str:
    """Return the command line of this process, for a manifest."""
    return shlex.join(["jaxtape", *sys.argv[1:]])


def output_file(out: Path, inputs: Iterable[Path | None] = ()) -> AtomicOutput:
    """Return the output of one file, with a hidden manifest beside it; refuse an unwritable one.

    inputs: Files that the command reads; `out` must not be one of them.
    """
    if out.is_dir():
        refuse(f"{out}: cannot be written: it is a folder; give the path of a file")
    manifest = f".{out.name}.jaxtape"
    try:
        return AtomicOutput(
            out.parent, command_as_typed(), (out.name,), manifest=manifest, inputs=inputs
        )
    except OSError as error:
        place, reason = error.filename or out, error.strerror or error
        refuse(f"{place}: cannot be written: {reason}; give another path")


def write(files: AtomicOutput, texts: Mapping[str, str]) -> None:
    """Write texts to files by name, or refuse."""
    try:
        with files.written() as aside:
            for name, text in texts.items():
                (aside / name).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        refuse(f"{error.filename or files.folder}: cannot be written: {reason}; give another path")


class _Activity(bars.ProgressColumn):
    """The column that shows which program is being read, traced or compiled."""

    def render(self, task: bars.Task) -> Text:
        del task
        return Text(current_status(), style="dim")


PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        help="Floating-point precision of the devices; the host's is double.",
        show_default="double; on a TPU, single",
    ),
]


@contextlib.contextmanager
def progress_bar(name: str, console: Console) -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield a live bar as the argument `progress` of a computation; None if the output is not a terminal."""
    if not (console.is_terminal and sys.stdout.isatty()):
        yield None
        return
    columns = bars.TextColumn("{task.description}"), bars.BarColumn()
    columns += bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), _Activity()
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)

        def progress(done: int, total: int, message: str) -> None:
            text = f"{name}, {message}" if message else name
            bar.update(task, completed=done, total=total, description=text)

        yield progress


def default_precision(platform: str) -> Precision:
    """Return the default precision: single on a TPU, which emulates float64 slowly."""
    return Precision.single if platform == "tpu" else Precision.double


def configure(precision: Precision | None = None, *, hosts_too: bool = False) -> None:
    """Set JAX up for a command: precision, and a cache of programs that outlives the process.

    On a CPU, programs are compiled without XLA's fusion emitters and without LLVM's costliest passes. This
    saves a third of a first run and leaves programs about as fast.

    Call it before the first array is made. `jaxtape.cli.cache` says what is kept where.

    Args:
        precision: Precision of the costly programs, which devices run; None for the platform's default.
        hosts_too: Whether everything else has this precision, too; otherwise it is double, on the host's CPU.
    """
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files
    _add_flags()
    gc.freeze()  # imported objects stay
    gc.set_threshold(100_000, 20, 20)  # tracing makes many objects, which stay too
    try:
        jax.devices()
        chosen = precision or default_precision(jax.default_backend())
        jax.config.update("jax_enable_x64", chosen is Precision.double)
        use_single_on_devices(chosen is Precision.single and not hosts_too)
    except RuntimeError as error:
        platforms = os.environ.get("JAX_PLATFORMS")
        refuse(f"JAX cannot start: {error} (JAX_PLATFORMS={platforms}); set it to cpu, or unset it")
    if chosen is not precision and chosen is Precision.single:
        print(_SINGLE_BY_DEFAULT, file=sys.stderr)
    _at_end.callback(use_cache(_job()))


def _add_flags() -> None:
    add_flag(*WITHOUT_FUSION_EMITTERS)
    add_flag(*WITHOUT_COSTLY_PASSES)


def _job() -> str:
    """Return the name of the command."""
    return Path(sys.argv[1]).name if len(sys.argv) > 1 else "jaxtape"


_NO_READING = {"--help", "--target", "--dry-run", "--coordinator", "--cluster"}
"""Options with which a command needs no programs, or sets JAX up in another way first."""


def _read_ahead() -> None:
    """Prefetch the programs of the last command of this name while its packages are imported."""
    if _NO_READING.isdisjoint(text.partition("=")[0] for text in sys.argv):
        _add_flags()
        _at_end.callback(read_ahead(_job()))  # stops reading if the command ends early


_SINGLE_BY_DEFAULT = (
    "jaxtape: devices compute in single precision, since a TPU has no float64; fits are polished in double "
    "precision on the host (--precision double: devices emulate it, slowly)"
)


def main() -> None:
    """Run the command. An interrupt ends it at once, with status 130, even while threads compile."""
    _give_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # like stderr: print any name
        sys.stdout.reconfigure(errors="backslashreplace")
    with interrupts_end_it(), _ends_if_unprintable(), _without_waiting_if_interrupted(), _at_end:
        _read_ahead()
        app(prog_name="jaxtape")


def _give_streams() -> None:
    """Discard output where the process was started without stdout or stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def _ends_if_unprintable() -> Iterator[None]:
    """Report in one line that stdout cannot be written, as on a full disk, and exit with status 2.

    If the reader, such as `head`, has closed the pipe, exit quietly with status 1.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno != errno.EPIPE:
            with contextlib.suppress(OSError):
                place = error.filename or "standard output"
                print(f"jaxtape: {place}: {reason}", file=sys.stderr, flush=True)
        os._exit(SOME_FAILED if error.errno == errno.EPIPE else UNUSABLE)


@contextlib.contextmanager
def _without_waiting_if_interrupted() -> Iterator[None]:
    """Exit at once on an interrupt: Python itself would first wait for its threads.

    Raises:
        SystemExit: If the block raised it, and not because of an interrupt.
    """
    try:
        yield
    except SystemExit as ended:
        if ended.code != INTERRUPTED:
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(INTERRUPTED)
