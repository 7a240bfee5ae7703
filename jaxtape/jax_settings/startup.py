"""Guard the startup of the command `jaxtape`, while its packages are imported.

The command itself can catch nothing that early. An interrupt ends the process at once. A setting that JAX
refuses, or a module that shadows another, is reported in one line. Other programs that import the package are
not affected.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

INTERRUPTED, UNUSABLE = 130, 2  # exit statuses
_SHOWS_CURSOR = b"\x1b[?25h\n"
_PREFIXES = "JAX", "XLA", "PYTHONPATH"  # environment variables that may be the cause

_is_importing = True


def guard() -> None:
    """Guard the imports if this process is the command."""
    if _is_the_command():
        sys.excepthook = _say
        _leave_at_interrupts()


def imported() -> None:
    """Note that the command is imported: an error after this is a fault of the command, with its traceback."""
    global _is_importing
    _is_importing = False


@contextlib.contextmanager
def interrupts_end_it() -> Iterator[None]:
    """End the process on an interrupt, whatever it is doing: threads compile, and XLA cannot be unwound."""
    sys.excepthook = sys.__excepthook__
    before = _leave_at_interrupts()
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _is_the_command() -> bool:
    words = getattr(sys, "orig_argv", [])
    is_script = bool(sys.argv) and Path(sys.argv[0]).stem == "jaxtape"
    return is_script or ("-c" in words[:2] and "jaxtape.cli.main" in words[2:3][0])


def _leave_at_interrupts():
    """Replace Python's own handler; leave a custom one, or one that ignores interrupts, in place."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not in the main thread
            return signal.signal(signal.SIGINT, _leave)
    return None


def _leave(*_: object) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOWS_CURSOR)  # a progress bar hides the cursor
    os._exit(INTERRUPTED)


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print why the packages cannot be imported, or where the command failed, and exit with status 2."""
    if not _is_importing:
        sys.__excepthook__(kind, error, trace)
        sys.stderr.flush()
        os._exit(UNUSABLE)
    status = INTERRUPTED if issubclass(kind, KeyboardInterrupt) else UNUSABLE
    if status == UNUSABLE:
        given = [f"{name}={x}" for name, x in os.environ.items() if name.startswith(_PREFIXES)]
        remedy = (
            f"check the environment: {', '.join(sorted(given))}" if given else "install it again"
        )
        message = " ".join(f"jaxtape: cannot start: {kind.__name__}: {error}; {remedy}".split())
        with contextlib.suppress(Exception):
            print(message, file=sys.stderr, flush=True)
    os._exit(status)
