"""Memory that a block of a program takes at its peak (Linux)."""

import ctypes
from pathlib import Path
from typing import Any


class Peak:
    """Bytes that the process grows by, at its peak, while the block runs; None where that is not told.

    What was freed before, and is kept for later by the allocator, is given back first.
    """

    bytes: int | None = None

    def __enter__(self) -> "Peak":
        self._before = None
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
            self._before = _status("VmRSS")
        except OSError:
            pass
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            self.bytes = _status("VmHWM") - self._before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
