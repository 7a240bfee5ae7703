"""The status of the threads of this process: reading, tracing or compiling a program."""

import contextlib
from collections.abc import Iterator

_now: dict[object, str] = {}


@contextlib.contextmanager
def report_status(what: str) -> Iterator[None]:
    """Report `what` as the status of this thread within the block."""
    mark = object()
    _now[mark] = what
    try:
        yield
    finally:
        del _now[mark]


def current_status() -> str:
    """Return the status of all threads, such as "compiling tile_sweep"; empty while programs only run."""
    return ", ".join(dict.fromkeys(list(_now.values())))
