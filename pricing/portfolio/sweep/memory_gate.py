"""A gate that limits the total memory of concurrent threads."""

import contextlib
import threading
from collections.abc import Iterator


class MemoryGate:
    """A gate that admits work while the bytes held by all admitted work stay within `total`.

    Work that asks for more than `total` waits until it is alone.
    """

    def __init__(self, total: int):
        self._total, self._taken = total, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Wait until `size` bytes are free, hold them within the `with` block, and release them at its end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + size <= self._total)
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()
