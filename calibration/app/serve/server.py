"""Run the application as a process: socket, log, signals and shutdown."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from datetime import UTC, datetime
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from .database import Unusable
from .limits import ServiceLimits

_BACKLOG = 256  # connections waiting to be accepted
_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """Format a log record as one line of JSON: time, level, event, and its extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Send the logs of the service and of uvicorn to stderr, one line of JSON per record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in {"jaxtape.serve": logging.INFO, "uvicorn.error": logging.WARNING}.items():
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host and port.

    Raises:
        Unusable: If it cannot.
    """
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unusable(
            f"{host}:{port}: cannot listen there: {reason}; give another --port or --host"
        ) from None
    return found


def url_of(host: str, listening: socket.socket) -> str:
    """Return the address of a service."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


class _Punctual(H11Protocol):
    """HTTP/1.1 that closes a connection if the head of a request does not arrive in time."""

    head_seconds: float = 10.0
    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start to wait for a head, or stop once it has arrived."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._closing is None and self.timeout_keep_alive_task is None:
            self._closing = self.loop.call_later(self.head_seconds, self.transport.close)

    def _unwatch(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


def run(app: FastAPI, listening: socket.socket, limits: ServiceLimits, banner: str) -> None:
    """Serve until SIGTERM or SIGINT; then refuse new requests, and finish running ones within a time limit.

    `banner` is the line to print once the service responds.
    """
    protocol = type("Protocol", (_Punctual,), {"head_seconds": limits.body_seconds})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=max(1, round(limits.stop_seconds)),
    )
    server = uvicorn.Server(config)

    def stop(*_) -> None:
        """Stop even before uvicorn handles signals; it raises them again once it has stopped."""
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    print(banner, flush=True)
    server.run(sockets=[listening])


def leave_at_once() -> None:
    """End the process with status 0, whatever its threads are doing: accepted changes are on disk."""
    logging.getLogger("jaxtape.serve").info("stopped in the middle of a valuation")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
