"""Unload some compiled programs before a process runs out of memory maps.

XLA maps each kernel of a program on a CPU three times, and Linux allows a process 65,530 maps
(`vm.max_map_count`). Beyond that, LLVM aborts the process.
"""

import functools
import logging
import random
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

_LOGGER = logging.getLogger(__name__)
_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_FULL, _KEPT = 0.75, 0.7  # a program takes up to 3,000 maps, and several threads load them


class LoadedPrograms:
    """The loaded programs of a process.

    Those to unload are drawn at random. A book's programs are used in turn: if they do not all fit, unloading
    those used least recently would unload each of them before its next use.
    """

    def __init__(self):
        self._programs: dict[int, weakref.ref[Any]] = {}
        self._lock, self._dice = threading.Lock(), random.Random(0)

    def used(self, program: Any) -> None:
        """Note that a program is used now; its `unload` must leave it usable."""
        with self._lock:
            self._programs.pop(id(program), None)
            self._programs[id(program)] = weakref.ref(program)  # the last one is in use

    def make_room(self) -> None:
        """Unload programs if the process has more than 75 % of its maps, until it has at most 70 %."""
        limit = map_limit()
        if limit is None or map_count() <= _FULL * limit:
            return
        _warn_once(limit)
        with self._lock:
            drawn = [*self._programs][:-1]
            self._dice.shuffle(drawn)
            share = 1 + len(drawn) // 32
            while drawn and map_count() > _KEPT * limit:
                for name in drawn[:share]:
                    program = self._programs.pop(name)()
                    if program is not None:
                        program.unload()
                drawn = drawn[share:]


@functools.cache
def _warn_once(limit: int) -> None:
    _LOGGER.warning(
        "compiled programs fill the %d memory maps of this process: some are unloaded, and read again at their "
        "next use; raise the limit to keep all, with sysctl -w vm.max_map_count=262144",
        limit,
    )


def map_count() -> int:
    """Return the memory maps of this process."""
    with _MAPS.open("rb") as lines:
        return sum(1 for _ in lines)


def map_limit() -> int | None:
    """Return the memory maps that a process may have, or None where that is not known."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


LOADED = LoadedPrograms()
