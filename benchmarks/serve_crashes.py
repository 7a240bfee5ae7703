"""Crash a service during writes: everything that it accepted must be there after a restart."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calibration.app.serve.client import (
    RiskClient,
    ServiceError,
    StoredBook,
)

from .serve_process import Served

_NAMES, _QUOTE = 12, "EQUITY/PRICE/DAX"


@dataclass
class Written:
    """The values sent for one item, in order, and the index of the last accepted one."""

    sent: list[Any] = field(default_factory=list)
    accepted: int = -1

    def holds(self, found: object) -> bool:
        """Return True if the stored value is the last accepted one, or one sent after it."""
        return self.accepted < 0 or found in self.sent[self.accepted :]


@dataclass(frozen=True)
class Crashes:
    """The number of kills, the number of accepted writes, the losses, and the restart times."""

    kills: int
    accepted_books: int
    accepted_moves: int
    lost: list[str]
    restart_seconds: list[float]


class Writer:
    """The writes of two threads to a service: books, under a few names, and the spot."""

    def __init__(self, new_text: Callable[[], str], spot: float):
        self.new_text, self.spot = new_text, spot
        self.books = {f"crash-{place}": Written() for place in range(_NAMES)}
        self.spots, self.accepted = Written(), {"books": 0, "moves": 0}
        self.kept: set[str] = set()

    def submit(self, client: RiskClient, step: int) -> None:
        """Submit one book."""
        name, text = f"crash-{step % _NAMES}", self.new_text()
        self.books[name].sent.append(StoredBook(name, "csv", text).version)
        client.submit(name, text, version="*" if name in self.kept else None)
        self.books[name].accepted = len(self.books[name].sent) - 1
        self.kept.add(name)
        self.accepted["books"] += 1

    def move(self, client: RiskClient, step: int) -> None:
        """Move the spot."""
        del step
        self.spots.sent.append(self.spot * (1.0 + 1e-6 * (len(self.spots.sent) + 1)))
        client.move({_QUOTE: self.spots.sent[-1]}, version="*")
        self.spots.accepted = len(self.spots.sent) - 1
        self.accepted["moves"] += 1

    def write_until_killed(self, served: Served, pause: float) -> None:
        """Write until ten more of each are accepted, then kill the service during a write."""
        is_over, threads = threading.Event(), []
        enough = {kind: count + 10 for kind, count in self.accepted.items()}
        for change in (self.submit, self.move):
            threads.append(threading.Thread(target=_until, args=(is_over, served, change)))
            threads[-1].start()
        while any(self.accepted[kind] < count for kind, count in enough.items()):
            if not any(thread.is_alive() for thread in threads):
                break
            time.sleep(pause)
        served.killed()
        is_over.set()
        for thread in threads:
            thread.join()

    def lost(self, client: RiskClient) -> list[str]:
        """Return the accepted items that are missing."""
        kept = {entry.name: entry.version for entry in client.books()}
        self.kept = set(kept)
        names = [name for name, book in self.books.items() if not book.holds(kept.get(name))]
        return names + [_QUOTE] * (not self.spots.holds(client.quotes().quotes[_QUOTE]))


def crashed(served: Served, new_text: Callable[[], str], kills: int, spot: float) -> Crashes:
    """Kill the service `kills` times while books are submitted and the spot is moved."""
    writer = Writer(new_text, spot)
    lost, seconds = [], []
    for kill in range(kills):
        writer.write_until_killed(served, pause=0.003 * (kill + 1))
        seconds.append(served.restarted())
        with served.client() as client:
            lost += writer.lost(client)
    return Crashes(kills, writer.accepted["books"], writer.accepted["moves"], lost, seconds)


def _until(is_over: threading.Event, served: Served, change: Callable[[RiskClient, int], None]):
    """Make changes until `is_over`, or until the service is gone."""
    step = 0
    with served.client(retries=0) as client, contextlib.suppress(ServiceError):
        while not is_over.is_set():
            change(client, step)
            step += 1
