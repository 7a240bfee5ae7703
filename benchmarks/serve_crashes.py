"""Crashes of a service that is written to: everything that it had accepted must be there when it is back."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from calibration.serving.client import RiskClient, ServiceError, Unreachable
from calibration.serving.state import StoredBook

from .serve_process import Served

_NAMES, _QUOTE = 12, "EQUITY/PRICE/DAX"


@dataclass
class Written:
    """What was sent of one thing, in order, and the place of the last that was accepted."""

    sent: list[object] = field(default_factory=list)
    accepted: int = -1

    def holds(self, found: object) -> bool:
        """Whether what stands there is the last accepted, or one that was sent after it."""
        return self.accepted < 0 or found in self.sent[self.accepted :]


@dataclass(frozen=True)
class Crashes:
    """How often a service was killed, what it had accepted by then, what was lost, and how soon it was back."""

    kills: int
    accepted_books: int
    accepted_moves: int
    lost: list[str]
    restart_seconds: list[float]


def crashed(served: Served, new_text: Callable[[], str], kills: int, spot: float) -> Crashes:
    """Kill the service so many times while books are submitted and the spot is moved."""
    books = {f"crash-{place}": Written() for place in range(_NAMES)}
    spots, counts = Written(), {"books": 0, "moves": 0}
    lost: list[str] = []
    seconds: list[float] = []
    for kill in range(kills):
        is_over = threading.Event()

        def submit(client: RiskClient, step: int) -> None:
            name, text = f"crash-{step % _NAMES}", new_text()
            books[name].sent.append(StoredBook(name, "csv", text).version)
            client.submit(name, text, version="*" if books[name].accepted >= 0 else None)
            books[name].accepted = len(books[name].sent) - 1
            counts["books"] += 1

        def move(client: RiskClient, step: int) -> None:
            spots.sent.append(spot * (1.0 + 1e-6 * (len(spots.sent) + 1)))
            client.move({_QUOTE: spots.sent[-1]}, version="*")
            spots.accepted = len(spots.sent) - 1
            counts["moves"] += 1

        threads = [
            threading.Thread(target=_until, args=(is_over, served, change))
            for change in (submit, move)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.8 + 0.3 * kill)
        served.killed()
        is_over.set()
        for thread in threads:
            thread.join()
        seconds.append(served.restarted())
        with served.client() as client:
            kept = {entry.name: entry.version for entry in client.books()}
            lost += [name for name, book in books.items() if not book.holds(kept.get(name))]
            lost += [] if spots.holds(client.quotes().quotes[_QUOTE]) else [_QUOTE]
    return Crashes(kills, counts["books"], counts["moves"], lost, seconds)


def _until(is_over: threading.Event, served: Served, change: Callable[[RiskClient, int], None]):
    """Make changes until it is over, or the service is gone."""
    step = 0
    with served.client(retries=0) as client, contextlib.suppress(Unreachable, ServiceError):
        while not is_over.is_set():
            change(client, step)
            step += 1
