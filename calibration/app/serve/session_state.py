"""The state of a service: books by name, a market with a version, and preconditions of changes."""

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
    "use at most 100 lower-case letters, digits, dots, hyphens and underscores, a letter or digit "
    "first"
)


@dataclass(frozen=True)
class StoredBook:
    """A book as it was submitted.

    Attributes:
        name: Name of the book.
        format: The format of its text, csv or json.
        text: The trades, as submitted.
    """

    name: str
    format: Format
    text: str = field(repr=False)

    @functools.cached_property
    def version(self) -> str:
        """A digest of the text: books with the same version are the same."""
        return hashlib.sha256(f"{self.format}\n{self.text}".encode()).hexdigest()[:16]

    @functools.cached_property
    def book(self) -> Book:
        """The rows, and all errors in them."""
        return Book.from_text(self.text, f"{self.name}.{self.format}")


@dataclass(frozen=True)
class QuotedMarket:
    """A market with moved quotes.

    Attributes:
        base: The market of the file.
        digest: Digest of that file.
        version: The version of the quotes, which increases with every change; no other state has the same.
        moves: Quote id -> value, for the quotes that have moved.
        market: The market with these moves.
    """

    base: Market = field(repr=False)
    digest: str
    version: int
    moves: Mapping[str, float]
    market: Market = field(repr=False)


class Precondition(NamedTuple):
    """The If-Match and If-None-Match headers of a request that changes something."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, version: str | None, what: str) -> None:
        """Check the condition against the current version, None if there is none.

        Raises:
            HTTPProblem: If it asks for another version (412), or names none although there is one (428).
        """
        is_new = (self.if_none_match or "").strip() == "*"
        is_there = version is not None
        if is_there and self.if_match is None and not is_new:
            remedy = f'send the header If-Match: "{version}", or * for any version'
            detail = f"{what} exists, with version {version}, and the request has no If-Match"
            raise HTTPProblem(428, "no-condition", detail, remedy, version=version)
        named = re.findall(r'(?<!W/)"([^"]*)"', self.if_match or "")
        is_any = (self.if_match or "").strip() == "*"
        is_wanted = self.if_match is None or (is_there and (is_any or version in named))
        if not is_wanted or (is_new and is_there):
            present = f"has version {version}" if is_there else "does not exist"
            remedy = "read it again, and base the change on that"
            raise HTTPProblem(412, "changed", f"{what} now {present}", remedy, version=version)
