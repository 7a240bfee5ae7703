"""The current activity of the threads of this process: reading, tracing or compiling a program."""

import contextlib
from collections.abc import Iterator

_now: dict[object, str] = {}


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Register `what` as the activity of this thread within the block."""
    mark = object()
    _now[mark] = what
    try:
        yield
    finally:
        del _now[mark]


def activity() -> str:
    """Return the current activities, such as "compiling tile_sweep"; empty while programs only run."""
    return ", ".join(dict.fromkeys(list(_now.values())))
