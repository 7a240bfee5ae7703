"""Measure the peak memory of a block of code (Linux)."""

import ctypes
import sys
from pathlib import Path
from typing import Any

import jax


class Peak:
    """The peak growth of the process in bytes while the block runs; None if unavailable.

    Memory freed before, but kept by the allocator, is first returned to the system. On an accelerator, it is
    the device's memory: PyTorch's peak is that of the block; JAX's is that of the process so far, which never
    falls.
    """

    bytes: int | None = None

    def __enter__(self) -> "Peak":
        self._before, self._in_torch = None, None
        if jax.default_backend() != "cpu":
            torch = sys.modules.get("torch")
            if torch and not torch.cuda.is_available():
                return self  # it is unknown whether the memory is the host's or the device's
            self._before = _of_device("bytes_in_use")
            if torch:
                torch.cuda.reset_peak_memory_stats()
                self._in_torch = torch.cuda.memory_allocated()
            return self
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # reset the peak
            self._before = _status("VmRSS")
        except OSError:
            pass
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is None:
            return
        if jax.default_backend() == "cpu":
            self.bytes = _status("VmHWM") - self._before
            return
        grown = 0
        if self._in_torch is not None:
            grown = sys.modules["torch"].cuda.max_memory_allocated() - self._in_torch
        self.bytes = grown or _of_device("peak_bytes_in_use") - self._before


def _of_device(name: str) -> int:
    return jax.devices()[0].memory_stats()[name]


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
