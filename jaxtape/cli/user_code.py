"""Load user code given as FILE.py:NAME; report its exceptions in one line: kind, place and remedy."""

import contextlib
import importlib
import importlib.util
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST = 500  # characters of an exception's message
_TRACEBACK = "Traceback (most recent call last)"
_NOT_THE_CALLERS = (
    *(str(Path(path)) for path in set(sysconfig.get_paths().values())),
    str(Path(__file__).parents[1]),  # `jaxtape`
)


@contextlib.contextmanager
def as_value_error(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever the block raises, `SystemExit` too, into one `ValueError`; let an interrupt through.

    `what` starts the message, such as "mine.py:case: cannot be read"; `remedy` ends it.

    Raises:
        KeyboardInterrupt: If the user interrupted it.
        ValueError: If the block failed.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"{what}: {describe_error(error)}; {remedy}") from error


def describe_error(error: BaseException) -> str:
    """Return the type of an exception, its message, and the innermost line of user code in its traceback.

    For an exception raised by a callback, XLA keeps the traceback as text; the exception is its last lines.
    """
    try:
        text = str(error)
    except Exception:
        text = ""
    raised = text.rpartition("\n  File ")[2].partition("\n")[2] if _TRACEBACK in text else ""
    kind = "" if raised else type(error).__name__
    text = " ".join((raised or text).split()).rstrip(".")
    message = ": ".join(filter(None, [kind, textwrap.shorten(text, _MOST)]))
    if isinstance(error, SyntaxError):  # its message names the line
        return message
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if _is_the_callers(frame.filename)]
    return (
        f"{message} ({Path(user_frames[-1].filename).name}, line {user_frames[-1].lineno})"
        if user_frames
        else message
    )


def _is_the_callers(file: str) -> bool:
    return not file.startswith(("<", *_NOT_THE_CALLERS))


def load_object(place: str) -> Any:
    """Return the object at FILE.py:NAME or module:NAME; ValueError if it cannot be read."""
    where, _, name = place.rpartition(":")
    with as_value_error(f"{place}: cannot be read", "give FILE.py:NAME or module:NAME"):
        return getattr(_module_of(where), name)


def _module_of(where: str) -> Any:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = Path(where).resolve()
    if path.exists() and not path.is_file():
        raise ValueError(f"{where} is not a file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
