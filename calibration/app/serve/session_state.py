"""State of a service: books by name, a market with a version, and the conditions of a change."""

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pricing.market import Market
from pricing.portfolio.book import Book

from .problems import HTTPProblem

Format = Literal["csv", "json"]
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
NAME_REMEDY = (
    "take at most 100 lower-case letters, digits, points, hyphens and underscores, no sign first"
)


@dataclass(frozen=True)
class StoredBook:
    """A book as it was submitted.

    Attributes:
        name: Name of the book.
        format: The format of its text, csv or json.
        text: The trades, as they came.
    """

    name: str
    format: Format
    text: str = field(repr=False)

    @functools.cached_property
    def version(self) -> str:
        """A digest of the text: two books of one version are the same."""
        return hashlib.sha256(f"{self.format}\n{self.text}".encode()).hexdigest()[:16]

    @functools.cached_property
    def book(self) -> Book:
        """The rows, and all that is wrong with them."""
        return Book.from_text(self.text, f"{self.name}.{self.format}")


@dataclass(frozen=True)
class QuotedMarket:
    """A market as its quotes have moved.

    Attributes:
        base: The market of the file.
        digest: Digest of that file.
        version: The number of changes so far; no other state of the quotes has the same number.
        moves: Quote id -> its number, of the quotes that have moved.
        market: The market as it stands.
    """

    base: Market = field(repr=False)
    digest: str
    version: int
    moves: Mapping[str, float]
    market: Market = field(repr=False)


class Precondition(NamedTuple):
    """The headers If-Match and If-None-Match of a request that changes something."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, version: str | None, what: str) -> None:
        """Check the condition against the present version, None for nothing.

        Raises:
            HTTPProblem: It asks for another version (412), or names none where there is one (428).
        """
        is_new = (self.if_none_match or "").strip() == "*"
        is_there = version is not None
        if is_there and self.if_match is None and not is_new:
            remedy = f'send the header If-Match: "{version}", or * for any version'
            detail = f"{what} exists, of version {version}, and the request has no If-Match"
            raise HTTPProblem(428, "no-condition", detail, remedy, version=version)
        named = re.findall(r'(?<!W/)"([^"]*)"', self.if_match or "")
        is_any = (self.if_match or "").strip() == "*"
        is_wanted = self.if_match is None or (is_there and (is_any or version in named))
        if not is_wanted or (is_new and is_there):
            present = f"is of version {version}" if is_there else "does not exist"
            remedy = "read it again, and decide again"
            raise HTTPProblem(412, "changed", f"{what} {present} by now", remedy, version=version)
