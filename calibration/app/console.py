"""Shared parts of the commands: stages on stderr, one-line errors, an output folder, exit statuses."""

import contextlib
import functools
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from jaxtape.cli.escaping import escaped
from jaxtape.cli.main import (
    MAX_COUNT,
    MAX_SEED,
    SOME_FAILED,
    TRY_AGAIN,
    command_as_typed,
    path_of,
    place_from,
    progress_bar,
    refuse,
)
from jaxtape.jax_settings.single_on_devices import precision_in_use
from jaxtape.object_store import Place
from jaxtape.output_folder import AtomicOutput, mismatched_files
from jaxtape.schedules import sizes
from pricing.ingestion.errors import UnreadableFile
from pricing.progress import Progress

_ERRORS = "errors.txt"
_MAX_SHOWN = 50

path_option = functools.partial(typer.Option, parser=path_of, metavar="PATH")
place_option = functools.partial(typer.Option, parser=place_from, metavar="PATH|URL")
count_option = functools.partial(typer.Option, min=1, max=MAX_COUNT)
seed_option = functools.partial(typer.Option, min=0, max=MAX_SEED)

StartsOption = Annotated[
    int,
    count_option(
        max=10_000, help="Number of starting points of a fit: at the money, then random ones."
    ),
]
MaxStepsOption = Annotated[
    int, count_option(help="Largest number of steps from each starting point of a fit.")
]


def plain_console(*, stderr: bool = False) -> Console:
    """Return the console of a command: it prints every text unchanged, `[red]` and `:smile:` too."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def summarize(table: RenderableType, report: Place) -> None:
    """Print the outcome and the place of the report on stdout."""
    console = plain_console()
    console.print(table)
    console.print(f"Report: {escaped(str(report))}", soft_wrap=True)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Exit with status 75 after an error that a retry may fix, and with status 2 after bad input.

    Raises:
        Exit: If the block ends in an error, or raises Exit itself.
    """
    try:
        yield
    except typer.Exit:
        raise
    except (FileExistsError, FileNotFoundError, IsADirectoryError, PermissionError) as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        refuse(f"{reason}; give another path")
    except (OSError, RuntimeError) as error:  # from a disk, a store, a device or another process
        refuse(f"{error}; run the same command again with --resume", TRY_AGAIN)
    except (UnreadableFile, ValueError, ImportError) as error:
        refuse(str(error))


def exit_if(errors: Sequence[str]) -> None:
    """Exit with status 1 if something failed while the rest was done.

    Raises:
        Exit: If there are errors.
    """
    if errors:
        raise typer.Exit(SOME_FAILED)


def bytes_of(text: str | int) -> int:
    """Return a number of bytes, given as 1GiB, 512MiB or 2e9.

    Raises:
        BadParameter: If the text is not a size.
    """
    try:
        return sizes.bytes_of(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def too_many_devices(wanted: int, found: Sequence[Any]) -> str:
    """Return the message for more devices than there are."""
    return (
        f"--devices {wanted}: there are {len(found)} ({found[0].platform}); give at most that, or on a CPU set "
        "JAX_NUM_CPU_DEVICES to make more"
    )


size_option = functools.partial(typer.Option, parser=bytes_of, metavar="SIZE")


class Stages:
    """The stages of a command, shown on stderr with their times."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.console = plain_console(stderr=True)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Time a stage; the lines appended to the yielded list are printed when it ends."""
        lines: list[str] = []
        start = time.perf_counter()
        yield lines
        self.record(name, time.perf_counter() - start, lines)

    def record(self, name: str, seconds: float, lines: Sequence[str]) -> None:
        """Note the duration of a stage, and print its lines."""
        self.seconds[name] = seconds
        for text in lines:
            self.console.print(f"{escaped(text)} ({seconds:.1f} s)", soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, name: str, title: str) -> Iterator[tuple[list[str], Progress | None]]:
        """Time a stage as `stage` does, with a live bar; pass the yielded `progress` to the computation."""
        with self.stage(name) as lines, progress_bar(title, self.console) as progress:
            yield lines, progress


class Output:
    """The folder to which a command writes a set of files. It exits with status 2 if it cannot be written."""

    def __init__(
        self, folder: Place, names: Sequence[str] = (), inputs: Iterable[Place | None] = ()
    ):
        """Make the folder, and check that the files of these names, and errors.txt, can be written.

        `names` are all files that a run may write; `inputs` are all that it reads, which are never overwritten.
        """
        self.folder = folder
        with self._exits_if_unwritable():
            names = (_ERRORS, *names)
            facts = {"precision": precision_in_use()}
            command = command_as_typed()
            self._files = AtomicOutput(folder, command, names, inputs=inputs, facts=facts)

    @contextlib.contextmanager
    def written(self) -> Iterator[Path]:
        """Yield a folder for files, which replace the last run's together when the block ends."""
        with self._exits_if_unwritable(), self._files.written() as folder:
            yield folder

    def print_errors(self, errors: Sequence[str]) -> None:
        """Print the first errors on stderr; `write_errors` writes all of them to a file."""
        for error in errors[:_MAX_SHOWN]:
            print(escaped(error), file=sys.stderr)
        if len(errors) > _MAX_SHOWN:
            path = escaped(str(self.folder / _ERRORS))
            more = f"... and {len(errors) - _MAX_SHOWN:,} more, all in {path}"
            print(more, file=sys.stderr)

    @contextlib.contextmanager
    def _exits_if_unwritable(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            refuse(f"{error}; run the same command again", TRY_AGAIN)
        except OSError as error:
            place, reason = error.filename or self.folder, error.strerror or str(error)
            mixed = ""
            with contextlib.suppress(OSError, ValueError):
                names = mismatched_files(self.folder)
                mixed = "".join(f", {name} is not of the last run" for name in names)
            refuse(f"{place}: cannot be written: {reason}; give another --out{mixed}")


def write_errors(folder: Path, errors: Sequence[str]) -> None:
    """Write all errors to errors.txt; write no file if there are none."""
    if errors:
        text = "".join(f"{escaped(error)}\n" for error in errors)
        (folder / _ERRORS).write_text(text, encoding="utf-8")
