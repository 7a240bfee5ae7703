"""Limits of a service: sizes, counts and times."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceLimits:
    """The bounds of a service.

    Attributes:
        body_bytes: The maximum bytes of a request's body.
        body_seconds: The maximum seconds for the head, and for the body, of a request to arrive.
        trades: The maximum number of rows in a book.
        books: The maximum number of stored books.
        requests: The maximum number of concurrent requests; more are refused.
        queue: The maximum number of waiting and running valuations; more are refused.
        workers: The number of books valued at once, each in its own thread.
        request_seconds: The maximum seconds for a request to wait for its valuation, and for a client to read
            the answer.
        connections: The maximum number of open connections.
        stop_seconds: The seconds that running requests have when the service stops.
        states: The maximum number of states at which one request evaluates a solution.
        move: The largest move of a quote in one request: as a share of a price or a vol, of 10 points (1,000
            basis points) of a rate or a future, and of 1 of a correlation.
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
