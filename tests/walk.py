"""Which rooms (folders) a run passes: recorded by a profiler, as a stranger would follow the calls."""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLACK_BOXES = {"lacks", "samples", "calibrate", "fitted", "fit_sections"}
"""Where the way of a book ends: a method, a fit and its picture know one contract or one market, no books."""


@dataclass
class Walk:
    """`rooms`: in the order in which they are entered; `calls`: by file, the rooms of the functions it calls.

    A move is the call of a room's function by its name, or of a black box, whose own calls are none. Methods of
    the objects that a function is given, and the making of objects, are no moves.
    """

    packages: tuple[str, ...]
    rooms: list[str] = field(default_factory=list)
    calls: dict[str, list[str]] = field(default_factory=dict)
    _thread: threading.local = field(default_factory=threading.local)

    def __call__(self, frame, event: str, _) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not _file_in(self.packages, code.co_filename):
            return
        depth = getattr(self._thread, "depth", 0)
        is_black_box = code.co_name in BLACK_BOXES
        self._thread.depth = depth + is_black_box * (1 if event == "call" else -1)
        is_method = code.co_varnames[:1] == ("self",) or "<" in code.co_qualname
        if event == "call" and not depth and (is_black_box or not is_method):
            self._move(frame)

    def _move(self, frame) -> None:
        before = frame.f_back
        while before is not None and not self._file(before):
            before = before.f_back
        caller = "" if before is None else self._file(before)
        room = _folder(self._file(frame))
        if _folder(caller) != room:
            called = self.calls.setdefault(caller, [])
            if called[-1:] != [room]:
                called.append(room)
            if room not in self.rooms:
                self.rooms.append(room)

    def _file(self, frame) -> str:
        return _file_in(self.packages, frame.f_code.co_filename)


@functools.cache
def _file_in(packages: tuple[str, ...], name: str) -> str:
    """The file within the repository, if it is one of these packages; else an empty text."""
    path = Path(name)
    if path.suffix != ".py" or not path.is_relative_to(ROOT):
        return ""
    path = path.relative_to(ROOT)
    return str(path) if path.parts[0] in packages else ""


@functools.cache
def _folder(file: str) -> str:
    return str(Path(file).parent) if file else ""


@contextlib.contextmanager
def walked(*packages: str) -> Iterator[Walk]:
    """What is called within the block, in this thread and in those that it starts."""
    walk = Walk(packages)
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
