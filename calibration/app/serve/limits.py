"""Limits of a service: sizes, counts and times."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceLimits:
    """The bounds of a service.

    Attributes:
        body_bytes: The bytes of a request's body.
        body_seconds: The seconds in which a request arrives, its head and its body each.
        trades: The rows of a book.
        books: The books that are kept.
        requests: The requests that are in work at once; one more is refused.
        queue: The valuations that wait or run; one more is refused.
        workers: The books that are valued at once, each in a thread of its own.
        request_seconds: The seconds that a request waits for its valuation, and an answer for its reader.
        connections: The connections that are open at once.
        stop_seconds: The seconds that requests in work have when the service stops.
        states: The states at which one request evaluates a solution.
        move: The most that one request moves a quote: as a share of a price or a vol, of 10 points (1,000 basis
            points) of a rate or a future, and of 1 of a correlation.
    """

    body_bytes: int = 2**22
    body_seconds: float = 10.0
    trades: int = 10_000
    books: int = 256
    requests: int = 64
    queue: int = 32
    request_seconds: float = 30.0
    connections: int = 512
    stop_seconds: float = 20.0
    workers: int = 4
    states: int = 1_000
    move: float = 0.5
