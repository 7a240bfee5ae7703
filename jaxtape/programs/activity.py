"""What the threads of this process do for programs right now: read, trace or compile one."""

import contextlib
from collections.abc import Iterator

_now: dict[object, str] = {}


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Say what this thread does within the block."""
    mark = object()
    _now[mark] = what
    try:
        yield
    finally:
        del _now[mark]


def activity() -> str:
    """Return what is done now, such as "compiling tile_sweep"; empty while programs only run."""
    return ", ".join(dict.fromkeys(list(_now.values())))
