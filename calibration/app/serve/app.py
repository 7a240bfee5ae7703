"""The service as an ASGI application: paths, preconditions, responses."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from .auth import Auth
from .documents import (
    PARTS,
    BookEntry,
    BookList,
    Quotes,
    QuotesUpdated,
    SolutionFigures,
    SolutionList,
)
from .limits import ServiceLimits
from .metrics import Metrics
from .problems import HTTPProblem, ProblemDetails, busy
from .request_limits import RequestLimiter, answer_of, body_of
from .session import Session
from .session_state import Format, Precondition, StoredBook
from .solutions import ServedSolution
from .valuations import ValuationQueue

_log = logging.getLogger("jaxtape.serve")
Result = TypeVar("Result")

_FORMATS: dict[str, Format] = {"text/csv": "csv", "application/json": "json"}
_MEDIA_TYPES = {name: media for media, name in _FORMATS.items()}
_LOCAL = ["127.0.0.1", "localhost", "::1", "[::1]"]
_STATUSES = (400, 401, 404, 408, 409, 412, 413, 415, 422, 428, 503, 504, 507)
_PROBLEMS: dict[int | str, Any] = {status: {"model": ProblemDetails} for status in _STATUSES}
_BOOK = {"content": {media: {"schema": {"type": "string"}} for media in _FORMATS}}
_MOVE = {
    "type": "object",
    "required": ["quotes"],
    "properties": {
        "quotes": {"type": "object", "additionalProperties": {"type": "number"}},
        "confirmed": {"type": "boolean"},
    },
}
_STATES = {
    "type": "object",
    "required": ["t", "states"],
    "properties": {
        "t": {"type": "number"},
        "states": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    },
}
_Name = Annotated[str, Path(description="The name of a book.")]
_IfMatch = Annotated[str | None, Header(description="The version to change, or *.")]
_IfNoneMatch = Annotated[str | None, Header(description="*: only if there is none yet.")]


class Service:
    """The request handlers of a service.

    Args:
        session: The books and the market.
        valuations: The valuation queue.
        auth: The access rule.
        limits: The bounds.
        metrics: Prometheus metrics of the service.
        warm: The books whose programs are compiled before the service is ready.
        settings: A digest of everything that figures depend on, except books and quotes.
        solutions: The solutions of backward equations that can be evaluated, by name.
    """

    def __init__(
        self,
        session: Session,
        valuations: ValuationQueue,
        auth: Auth,
        limits: ServiceLimits,
        metrics: Metrics,
        warm: tuple[StoredBook, ...] = (),
        settings: str = "",
        solutions: Mapping[str, ServedSolution] | None = None,
    ):
        self._session, self._valuations, self._warm = session, valuations, warm
        self._settings, self._solutions = settings, dict(solutions or {})
        self._evaluator = ThreadPoolExecutor(1, "solutions")
        self._auth, self._limits, self._metrics = auth, limits, metrics
        self._writer = ThreadPoolExecutor(1, "writer")
        self._is_ready = False
        self._count()

    @property
    def is_computing(self) -> bool:
        """Whether a valuation is running."""
        return self._valuations.is_computing

    def application(self) -> FastAPI:
        """Return the application."""
        gate = Middleware(RequestLimiter, limits=self._limits, metrics=self._metrics)
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_LOCAL, www_redirect=False)
        app = FastAPI(
            title="jaxtape serve",
            description="Values and sensitivities of books in a market whose quotes move.",
            version="1",
            docs_url=None,  # that page loads scripts from elsewhere
            redoc_url=None,
            lifespan=self._life,
            middleware=[gate, hosts] if self._auth.is_local else [gate],
            exception_handlers=dict.fromkeys(
                (HTTPProblem, HTTPException, RequestValidationError), _on_error
            ),
        )
        read = {"dependencies": [Depends(self._may_read)], "responses": _PROBLEMS}
        write = {"dependencies": [Depends(self._may_write)], "responses": _PROBLEMS}
        book = "/v1/books/{name}"
        app.get("/v1/quotes", response_model=Quotes, **read)(self.quotes)
        body = {"requestBody": {"content": {"application/json": {"schema": _MOVE}}}}
        app.patch("/v1/quotes", response_model=QuotesUpdated, openapi_extra=body, **write)(
            self.move
        )
        app.get("/v1/books", response_model=BookList, **read)(self.books)
        extra = {"requestBody": _BOOK}
        app.put(book, response_model=BookEntry, openapi_extra=extra, **write)(self.submit)
        app.get(book, response_class=Response, **read)(self.book)
        app.delete(book, status_code=204, **write)(self.delete)
        for part, kind in PARTS.items():
            figures = functools.partial(self._figures, part)
            path, shown = f"{book}/{part}", {"response_model": kind, "name": part}
            app.get(path, summary=f"The {part} of a book", **shown, **read)(_endpoint(figures))
        app.get("/v1/solutions", response_model=SolutionList, **read)(self.solutions)
        body = {"requestBody": {"content": {"application/json": {"schema": _STATES}}}}
        app.post(
            "/v1/solutions/{name}", response_model=SolutionFigures, openapi_extra=body, **read
        )(self.evaluate)
        app.get("/health/live")(self.live)
        app.get("/health/ready")(self.ready)
        app.get("/health")(self.ready)
        app.get("/metrics", dependencies=read["dependencies"], response_class=Response)(
            self.metrics
        )
        return app

    @contextlib.asynccontextmanager
    async def _life(self, app: FastAPI):
        """Compile the programs of the first requests in the background; on shutdown, take no more requests."""
        del app
        warming = asyncio.create_task(self._warmed())
        yield
        self._is_ready = False
        self._metrics.ready.set(0)
        warming.cancel()
        self._valuations.close()
        self._writer.shutdown(wait=False)
        self._evaluator.shutdown(wait=False, cancel_futures=True)

    async def _warmed(self) -> None:
        for stored in self._warm:
            try:
                await self._valuations.warm(stored, self._session.market)
            except Exception as error:
                _log.warning("no figures", extra={"book": stored.name, "error": repr(error)})
        self._is_ready = True
        self._metrics.ready.set(1)
        _log.info("ready", extra={"books": len(self._session.books)})

    def _count(self) -> None:
        self._metrics.books.set(len(self._session.books))
        self._metrics.market_version.set(self._session.market.version)

    def _may_write(self, authorization: Annotated[str | None, Header()] = None) -> None:
        self._auth.check(authorization)

    def _may_read(self, authorization: Annotated[str | None, Header()] = None) -> None:
        if self._auth.guards_reads:
            self._auth.check(authorization)

    async def _written(self, change: Callable[..., Result], *arguments: Any) -> Result:
        """Change the session in the writer thread, and wait for it.

        Raises:
            busy: If it takes too long, and may or may not be done; an `HTTPProblem`.
            HTTPProblem: If it could not be written.
        """
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._writer, change, *arguments)
        try:
            return await asyncio.wait_for(asyncio.shield(writing), self._limits.request_seconds)
        except TimeoutError:
            detail = "the change is not on disk yet, and may still be made: read the state first"
            raise busy(detail, status=504) from None
        except OSError as error:
            reason = error.strerror or str(error)
            detail = f"the change could not be written ({reason}), and was not made"
            raise HTTPProblem(
                507, "not-kept", detail, "make room in the folder of --state"
            ) from error
        finally:
            self._count()

    async def quotes(self, response: Response) -> Quotes:
        """Return every quote of the market, and their version."""
        state = self._session.market
        response.headers["etag"] = f'"{state.version}"'
        return Quotes.of(state)

    async def move(
        self,
        request: Request,
        response: Response,
        if_match: _IfMatch = None,
    ) -> QuotesUpdated:
        """Move all of the named quotes or none."""
        content = await body_of(request, self._limits)
        condition = Precondition(if_match)
        state = await self._written(self._session.move, content, condition)
        response.headers["etag"] = f'"{state.version}"'
        return QuotesUpdated(version=state.version, moved=len(state.moves))

    async def books(self) -> BookList:
        """Return the stored books."""
        stored = sorted(self._session.books.items())
        return BookList(books=[BookEntry.of(book) for _, book in stored])

    async def submit(
        self,
        name: _Name,
        request: Request,
        response: Response,
        if_match: _IfMatch = None,
        if_none_match: _IfNoneMatch = None,
    ) -> BookEntry:
        """Store a book, new or in place of another version.

        Raises:
            HTTPProblem: If the format is unknown.
        """
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in _FORMATS:
            remedy = f"send one of {', '.join(_FORMATS)} as Content-Type"
            detail, close = f"the body is {media or 'of no known type'}", {"connection": "close"}
            raise HTTPProblem(415, "unknown-format", detail, remedy, headers=close)
        content = await body_of(request, self._limits)
        condition, submit = Precondition(if_match, if_none_match), self._session.submit
        stored, is_new = await self._written(submit, name, _FORMATS[media], content, condition)
        response.status_code = 201 if is_new else 200
        response.headers["etag"] = f'"{stored.version}"'
        return BookEntry.of(stored)

    async def book(self, name: _Name) -> Response:
        """Return the text of a book as submitted."""
        stored = self._session.book(name)
        headers = {"etag": f'"{stored.version}"'}
        return Response(stored.text, headers=headers, media_type=_MEDIA_TYPES[stored.format])

    async def delete(self, name: _Name, if_match: _IfMatch = None) -> None:
        """Remove a book."""
        loop, condition = asyncio.get_running_loop(), Precondition(if_match)

        def delete() -> None:
            self._session.delete(name, condition)
            loop.call_soon_threadsafe(self._valuations.forget, name)

        await self._written(delete)

    async def _figures(self, part: str, name: str, known: str | None) -> Response:
        """Return a document of a book at the market's current version, or a newer one."""
        stored, state = self._session.book(name), self._session.market
        version = self._tag(stored.version, state.version)
        if version in (known or ""):
            return Response(status_code=304, headers={"etag": version})
        valued = await self._valuations.of(stored, state)
        _, book, quotes = valued.key
        headers = {"etag": self._tag(book, quotes)}
        return Response(valued.documents[part], headers=headers, media_type="application/json")

    def _tag(self, book: str, quotes: int) -> str:
        return f'"{book}-{quotes}-{self._settings}"'

    async def solutions(self) -> SolutionList:
        """Return every solution that can be evaluated."""
        return SolutionList(solutions=[one.entry for _, one in sorted(self._solutions.items())])

    async def evaluate(
        self, name: Annotated[str, Path(description="The name of a solution.")], request: Request
    ) -> SolutionFigures:
        """Return the figures of a solution at a time and states.

        Raises:
            HTTPProblem: If there is no solution of that name, or it has no figures there.
            busy: If it takes too long; an `HTTPProblem`.
        """
        if (found := self._solutions.get(name)) is None:
            detail = f"there is no solution {name[:100]!r}"
            raise HTTPProblem(404, "not-found", detail, "GET /v1/solutions lists them")
        content = await body_of(request, self._limits)
        evaluated = asyncio.get_running_loop().run_in_executor(
            self._evaluator, found.evaluated, content, self._limits.states
        )
        try:
            return await asyncio.wait_for(evaluated, self._limits.request_seconds)
        except TimeoutError:
            raise busy("the solution is busy with other requests; give fewer states") from None

    async def live(self) -> dict[str, bool]:
        """Return {"live": true}: the process responds."""
        return {"live": True}

    async def ready(self, response: Response) -> dict[str, bool]:
        """Return the readiness; the status is 503 until the programs of the first valuation are compiled."""
        response.status_code = 200 if self._is_ready else 503
        return {"live": True, "ready": self._is_ready}

    async def metrics(self) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")


def _endpoint(figures: Callable[..., Any]) -> Callable[..., Any]:
    async def endpoint(name: _Name, if_none_match: _IfNoneMatch = None) -> Response:
        return await figures(name, if_none_match)

    return endpoint


async def _on_error(request: Request, error: Exception) -> Response:
    """Answer a failed request with problem details (RFC 9457)."""
    remedy = "GET /openapi.json lists the paths, with the form of each request"
    if isinstance(error, RequestValidationError):
        detail = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        error = HTTPProblem(400, "bad-request", detail, remedy)
    elif isinstance(error, HTTPException):
        status, kinds = error.status_code, {404: "not-found", 405: "method-not-allowed"}
        kind, detail = kinds.get(status, "bad-request"), str(error.detail)
        error = HTTPProblem(status, kind, detail, remedy, headers=error.headers)
    assert isinstance(error, HTTPProblem)
    return answer_of(error, request.url.path)
