"""Unload the compiled programs that were used least recently, before a process runs out of memory maps.

XLA maps each kernel of a program on a CPU three times, and Linux allows a process 65,530 maps
(`vm.max_map_count`). Beyond that, LLVM aborts the process.
"""

import sys
import threading
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any

_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_FULL, _KEPT = 0.6, 0.4  # a program takes up to 3,000 maps, and several threads load them


class LoadedPrograms:
    """The loaded programs of a process, the least recently used first."""

    def __init__(self):
        self._programs: OrderedDict[int, weakref.ref[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def used(self, program: Any) -> None:
        """Note that a program is used now; its `unload` must leave it usable."""
        with self._lock:
            self._programs[id(program)] = weakref.ref(program)
            self._programs.move_to_end(id(program))

    def make_room(self) -> None:
        """Unload programs if the process has more than 60 % of its maps, until it has at most 40 %."""
        limit = map_limit()
        if limit is None or map_count() <= _FULL * limit:
            return
        with self._lock:
            oldest = [*self._programs][:-1]
            share = 1 + len(oldest) // 8
            while oldest and map_count() > _KEPT * limit:
                for name in oldest[:share]:
                    program = self._programs.pop(name)()
                    if program is not None:
                        program.unload()
                oldest = oldest[share:]


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
