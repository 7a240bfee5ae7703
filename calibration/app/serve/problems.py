"""Error answers of a service: problem details (RFC 9457)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from jaxtape.cli.escaping import escaped
from pricing.ingestion.errors import InputError, listed

MEDIA_TYPE = "application/problem+json"
_MOST = 1000  # errors listed in an answer
_TITLES = {
    "unauthorized": "A token is required",
    "not-found": "Not found",
    "method-not-allowed": "Method not allowed",
    "slow-request": "The request arrived too slowly",
    "book-refused": "The book has errors",
    "move-refused": "The quotes cannot move like this",
    "state-refused": "The solution has no figures there",
    "too-large": "The request is too large",
    "too-many": "There are too many",
    "changed": "It has changed since",
    "no-condition": "A precondition is required",
    "unknown-format": "The format is unknown",
    "bad-request": "The request is malformed",
    "no-models": "No models were fitted to these quotes",
    "busy": "The service is busy",
    "unknown-outcome": "The outcome is not yet known",
    "not-kept": "It could not be written to disk",
    "internal": "The service has failed",
}


class ProblemDetails(BaseModel):
    """The body of an error answer.

    Attributes:
        type: The kind of problem, a URN.
        title: A description of the kind.
        status: The HTTP status.
        detail: Description of this request's error.
        instance: The path of the request.
        remedy: Suggested correction.
        errors: Each error in the input.
        version: The current version of the book or the quotes, if the request was for another.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    remedy: str = ""
    errors: list[InputError] = []
    version: str | None = None


class HTTPProblem(Exception):
    """A request that cannot be served; `kind` is a key of the titles."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        remedy: str = "",
        *,
        errors: Sequence[InputError] = (),
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(detail)
        self.status, self.kind, self.detail, self.remedy = status, kind, detail, remedy
        self.errors, self.version, self.headers = errors, version, dict(headers or {})

    def document(self, instance: str) -> ProblemDetails:
        """Return the body of the answer to a request for this path."""
        return ProblemDetails(
            type=f"urn:jaxtape:problem:{self.kind}",
            title=_TITLES[self.kind],
            status=self.status,
            detail=escaped(self.detail),
            instance=instance,
            remedy=self.remedy,
            errors=[_printable(error) for error in self.errors],
            version=self.version,
        )


def _printable(error: InputError) -> InputError:
    """Return an error with its texts escaped so that they can be encoded."""
    texts = {name: escaped(fact) for name, fact in vars(error).items() if isinstance(fact, str)}
    return replace(error, **texts)


def refused(kind: str, errors: Sequence[InputError]) -> HTTPProblem:
    """Return the problem of invalid input; it lists at most the first thousand errors."""
    count = f"{len(errors):,} mistakes: " if len(errors) > 1 else ""
    errors = errors[:_MOST]
    return HTTPProblem(
        422, kind, count + listed(errors, 3), "correct what errors names", errors=errors
    )


def busy(detail: str, seconds: float = 1.0, status: int = 503) -> HTTPProblem:
    """Return the problem of a request that must be retried later, with the time to wait."""
    headers: dict[str, Any] = {"retry-after": f"{max(1, round(seconds))}"}
    kind = "busy" if status == 503 else "unknown-outcome"
    return HTTPProblem(
        status, kind, detail, f"ask again after {headers['retry-after']} s", headers=headers
    )
