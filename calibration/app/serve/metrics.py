"""Prometheus metrics of a service."""

import functools
from typing import Any

import jax.monitoring
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_COMPILED = "/jax/core/compile/backend_compile_duration"


class Metrics:
    """The metrics of one service; `text` is the content of `/metrics`."""

    def __init__(self):
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        own: dict[str, Any] = {"registry": self._registry}
        self.requests = Counter(
            "jaxtape_requests", "Requests answered.", ("method", "route", "status"), **own
        )
        self.request_seconds = Histogram(
            "jaxtape_request_seconds",
            "Seconds from a request to its answer.",
            ("route",),
            buckets=_BUCKETS,
            **own,
        )
        self.in_work = Gauge("jaxtape_requests_in_work", "Requests in progress.", **own)
        self.valuations = Counter(
            "jaxtape_valuations",
            "Valuations by outcome: computed; cached or joined (of another request); failed, refused or late.",
            ("outcome",),
            **own,
        )
        self.valuation_seconds = Histogram(
            "jaxtape_valuation_seconds", "Seconds of a computed valuation.", buckets=_BUCKETS, **own
        )
        self.queue = Gauge("jaxtape_valuations_in_work", "Valuations that wait or run.", **own)
        self.ready = Gauge("jaxtape_ready", "1 once the programs are compiled.", **own)
        self.books = Gauge("jaxtape_books", "Stored books.", **own)
        self.market_version = Gauge("jaxtape_market_version", "Version of the quotes.", **own)
        self.failed = Gauge(
            "jaxtape_trades_failed",
            "Trades without figures in the last valuation.",
            ("book",),
            **own,
        )
        compiled = Gauge(
            "jaxtape_programs_compiled",
            "Programs that JAX compiled or read from its cache.",
            **own,
        )
        compiled.set_function(_count_of_programs().__len__)

    def text(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        return generate_latest(self._registry)


@functools.cache
def _count_of_programs() -> list[float]:
    """Return a list that grows by one entry for each program that JAX compiles."""
    found: list[float] = []

    def compiled(event: str, duration_secs: float, **_) -> None:
        if event == _COMPILED:
            found.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(compiled)
    return found
