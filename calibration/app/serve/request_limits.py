"""Limit and log requests: bounds on number, size and time, and one line of JSON per request."""

import asyncio
import logging
import secrets
import time
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .limits import ServiceLimits
from .metrics import Metrics
from .problems import MEDIA_TYPE, HTTPProblem, busy

_log = logging.getLogger("jaxtape.serve")
_CLOSE = {"connection": "close"}
_METHODS = {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"}
_WRITES = {"PUT", "PATCH", "DELETE"}
_SHOWN = 200  # characters of a path in the log


def answer_of(problem: HTTPProblem, path: str) -> Response:
    """Return the answer to a request that cannot be served."""
    found = problem.document(path)
    text = found.model_dump_json(exclude={"version"} if found.version is None else None)
    return Response(text, problem.status, problem.headers, MEDIA_TYPE)


async def body_of(request: Request, limits: ServiceLimits) -> bytes:
    """Return the body of a request.

    A body that is too large is read to its end and discarded, so that the client receives the answer.

    Raises:
        HTTPProblem: If it is too large (413) or slow (408), or the client is gone; the connection is closed.
    """
    most, parts, size = limits.body_bytes, [], 0
    declared = request.headers.get("content-length", "")
    try:
        async with asyncio.timeout(limits.body_seconds):
            if "expect" in request.headers and declared.isdigit() and int(declared) > most:
                size = int(declared)  # the client waits for "100 Continue"
            else:
                async for part in request.stream():
                    size += len(part)
                    if size <= most:
                        parts.append(part)
    except ClientDisconnect:
        detail = f"the client disconnected after {size:,} bytes of the body"
        raise HTTPProblem(400, "bad-request", detail, headers=_CLOSE) from None
    except TimeoutError:
        if size <= most:
            detail = f"{size:,} bytes of the body came in {limits.body_seconds:g} s"
            raise HTTPProblem(
                408, "slow-request", detail, "send it at once", headers=_CLOSE
            ) from None
    if size > most:
        detail = f"the body has more than {most:,} bytes"
        raise HTTPProblem(413, "too-large", detail, "split it, or raise --max-body", headers=_CLOSE)
    return b"".join(parts)


class RequestLimiter:
    """ASGI middleware that limits the number of concurrent requests, refuses the others, and logs each.

    Health checks and metrics are always admitted. An answer that the client does not read in time is cut off.
    """

    def __init__(self, app: ASGIApp, limits: ServiceLimits, metrics: Metrics):
        self._app, self._limits, self._metrics, self._inside = app, limits, metrics, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            CancelledError: If the service stops in the middle of an answer.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, name = time.perf_counter(), secrets.token_hex(8)
        status = 0

        async def numbered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", name.encode()))
            async with asyncio.timeout(self._limits.request_seconds):
                await send(message)

        try:
            await self._admitted(scope, receive, numbered)
        except (Exception, asyncio.CancelledError) as error:
            problem = _failure(error, name, scope["method"])
            if status:  # close the connection: half an answer is useless
                raise
            await answer_of(problem, scope["path"])(scope, receive, numbered)
        finally:
            self._tell(scope, status, time.perf_counter() - start, name)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        if self._inside >= self._limits.requests:
            problem = busy(f"{self._inside} requests are in progress, and no more are admitted")
            problem.headers |= _CLOSE
            await answer_of(problem, scope["path"])(scope, receive, send)
            return
        self._inside += 1
        self._metrics.in_work.set(self._inside)
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
            self._metrics.in_work.set(self._inside)

    def _tell(self, scope: Scope, status: int, seconds: float, name: str) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        facts: dict[str, Any] = {
            "request": name,
            "method": method,
            "path": scope["path"][:_SHOWN],
            "status": status,
            "ms": round(1e3 * seconds, 2),
        }
        level = logging.DEBUG if not scope["path"].startswith("/v1/") else logging.INFO
        _log.log(logging.ERROR if status == 500 else level, "request", extra=facts)


def _failure(error: BaseException, name: str, method: str) -> HTTPProblem:
    """Return the problem to report for a failed request, including one cancelled when the service stops."""
    if isinstance(error, asyncio.CancelledError):
        detail = "the service stopped before the answer was ready"
        if method in _WRITES:
            return busy(f"{detail}; the change may still be made: read the state first", status=504)
        return busy(detail)
    _log.error("a request failed", exc_info=error, extra={"request": name})
    remedy = f"look for {name} in the log of the service"
    return HTTPProblem(500, "internal", "the service has failed at this request", remedy)
