"""A client of the service with typed results, and with retries while the service is busy."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from .auth import is_loopback
from .documents import (
    BookEntry,
    BookGreeks,
    BookList,
    BookRisk,
    BookSensitivities,
    BookValue,
    Quotes,
    QuotesUpdated,
    SolutionEntry,
    SolutionFigures,
    SolutionList,
)
from .problems import ProblemDetails
from .session_state import Format
from .session_state import StoredBook as StoredBook

_MEDIA_TYPES = {"csv": "text/csv", "json": "application/json"}
_REPEATABLE = ("GET", "PUT")  # idempotent methods
Document = TypeVar("Document", bound=BaseModel)


class ServiceError(Exception):
    """An error reported by the service, or a missing answer.

    Attributes:
        status: The HTTP status: 401 for a wrong token, 404 for an unknown book, 412 or 428 if the book or the
            quotes have changed (`problem.version`), 422 for invalid input (`problem.errors`), 503 or 504 if the
            service was busy after every retry; 0 if there was no answer.
        problem: The service's description of the error.

    Examples:
        >>> from calibration.app.serve.problems import ProblemDetails
        >>> problem = ProblemDetails(type="", title="", status=404, detail="no book", remedy="list them")
        >>> str(ServiceError(problem))
        'no book; list them (404)'
    """

    def __init__(self, problem: ProblemDetails):
        remedy = f"; {problem.remedy}" if problem.remedy else ""
        status = f" ({problem.status})" if problem.status else ""
        super().__init__(f"{problem.detail}{remedy}{status}")
        self.status, self.problem = problem.status, problem


class RiskClient(AbstractContextManager):
    """A connection to a service, not thread-safe.

    After a 503, the request is repeated after the number of seconds in the answer. A request without an answer
    is repeated if it is idempotent.

    Args:
        url: Address of the service, such as http://127.0.0.1:8117.
        token: Token for writes.
        timeout: Maximum seconds for an answer.
        retries: Maximum number of retries of a request.
        transport: Transport of the requests; the default is the network.

    Examples:
        >>> with RiskClient("http://127.0.0.1:8117", token="...") as client:
        ...     client.url
        'http://127.0.0.1:8117'
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 40.0,
        retries: int = 5,
        transport: httpx2.BaseTransport | None = None,
    ):
        self.url, self._retries = url, retries
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        settings: dict[str, Any] = {"headers": headers, "timeout": timeout, "transport": transport}
        is_here = is_loopback(httpx2.URL(url).host)  # a loopback address needs no proxy
        self._http = httpx2.Client(base_url=url, trust_env=not is_here, **settings)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def submit(
        self, name: str, text: str, format: Format = "csv", *, version: str | None = None
    ) -> BookEntry:
        """Store a book under a name, and return its entry.

        Args:
            name: Name of the book.
            text: The trades.
            format: The format of the text.
            version: The version to replace, or "*" for any; a new book needs none.
        """
        headers = {"content-type": _MEDIA_TYPES[format], **_if_match(version)}
        return self._asked(BookEntry, "PUT", f"/v1/books/{name}", text.encode(), headers)

    def books(self) -> tuple[BookEntry, ...]:
        """Return the stored books."""
        return tuple(self._asked(BookList, "GET", "/v1/books").books)

    def text(self, name: str) -> str:
        """Return the text of a book as submitted."""
        return self._answer("GET", f"/v1/books/{name}").text

    def delete(self, name: str, *, version: str = "*") -> None:
        """Remove a book, of one version or of any."""
        self._answer("DELETE", f"/v1/books/{name}", headers=_if_match(version))

    def value(self, name: str) -> BookValue:
        """Return the value of a book."""
        return self._asked(BookValue, "GET", f"/v1/books/{name}/value")

    def greeks(self, name: str) -> BookGreeks:
        """Return the figures of every trade of a book."""
        return self._asked(BookGreeks, "GET", f"/v1/books/{name}/greeks")

    def sensitivities(self, name: str) -> BookSensitivities:
        """Return the sensitivities of the value of a book to every quote."""
        return self._asked(BookSensitivities, "GET", f"/v1/books/{name}/sensitivities")

    def risk(self, name: str) -> BookRisk:
        """Return value, Greeks and sensitivities, at one version of the quotes."""
        return self._asked(BookRisk, "GET", f"/v1/books/{name}/risk")

    def quotes(self) -> Quotes:
        """Return every quote of the market, and their version."""
        return self._asked(Quotes, "GET", "/v1/quotes")

    def move(
        self,
        quotes: Mapping[str, float],
        *,
        version: int | Literal["*"],
        confirmed: bool = False,
    ) -> QuotesUpdated:
        """Move all of the named quotes or none.

        Args:
            quotes: Quote id -> its new value.
            version: The version of the quotes on which the move is based, or "*" for any.
            confirmed: Whether to take numbers that are probably in another unit, such as a vol of five times
                its neighbours.
        """
        content = json.dumps({"quotes": dict(quotes), "confirmed": confirmed}).encode()
        headers = {"content-type": "application/json", **_if_match(str(version))}
        return self._asked(QuotesUpdated, "PATCH", "/v1/quotes", content, headers)

    def solutions(self) -> tuple[SolutionEntry, ...]:
        """Return the solutions of backward equations that can be evaluated."""
        return tuple(self._asked(SolutionList, "GET", "/v1/solutions").solutions)

    def evaluate(self, name: str, t: float, states: Sequence[Sequence[float]]) -> SolutionFigures:
        """Return the figures of a solution at a time and at each of some states."""
        content = json.dumps({"t": t, "states": [list(x) for x in states]}).encode()
        headers = {"content-type": "application/json"}
        path = f"/v1/solutions/{name}"
        return self._asked(SolutionFigures, "POST", path, content, headers)

    def is_ready(self) -> bool:
        """Return True if the service answers and has compiled its programs."""
        try:
            return self._http.get("/health/ready").status_code == 200
        except httpx2.TransportError:
            return False

    def wait(self, seconds: float = 600.0) -> None:
        """Wait until the service is ready.

        Raises:
            _no_answer: If it is not ready in time; a `ServiceError`.
        """
        end = time.monotonic() + seconds
        while not self.is_ready():
            if time.monotonic() > end:
                raise _no_answer(f"{self.url} is not ready after {seconds:g} s", "look at its log")
            time.sleep(0.05)

    def _asked(self, kind: type[Document], method: str, path: str, *sent: Any) -> Document:
        return kind.model_validate_json(self._answer(method, path, *sent).content)

    def _answer(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Return a successful answer.

        Raises:
            ServiceError: If it reports an error.
            _no_answer: If there is none; a `ServiceError`.
        """
        for left in range(self._retries, -1, -1):
            try:
                found = self._http.request(method, path, content=content, headers=headers)
            except httpx2.TransportError as error:
                if not (left and method in _REPEATABLE):
                    message = f"{self.url} did not answer: {error!r}"
                    raise _no_answer(message, "is it up?") from error
                time.sleep(0.2)
                continue
            if found.status_code == 503 and left:
                time.sleep(_seconds(found.headers.get("retry-after", "")))
                continue
            break
        if found.is_success:
            return found
        raise ServiceError(_problem_of(found))


def _no_answer(detail: str, remedy: str) -> ServiceError:
    title = "No answer"
    problem = ProblemDetails(
        type="about:blank", title=title, status=0, detail=detail, remedy=remedy
    )
    return ServiceError(problem)


def _if_match(version: str | None) -> dict[str, str]:
    if version is None:
        return {}
    return {"if-match": "*" if version == "*" else f'"{version}"'}


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 1.0


def _problem_of(found: httpx2.Response) -> ProblemDetails:
    """Return the problem in an answer, even one that did not come from the service."""
    try:
        return ProblemDetails.model_validate_json(found.content)
    except ValidationError:
        return ProblemDetails(
            type="about:blank",
            title=found.reason_phrase,
            status=found.status_code,
            detail=found.text[:200],
        )
