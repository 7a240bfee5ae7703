"""The session of a service: changes are serialized, and on disk before they become visible."""

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pricing.ingestion.errors import InputError, UnreadableFile
from pricing.ingestion.files import parse_json, read_text, text_of
from pricing.market import Market
from pricing.market.moves import moved
from pricing.portfolio.trade_table import count_rows

from .database import KeptQuotes, Store, Unusable
from .limits import ServiceLimits
from .problems import HTTPProblem, refused
from .session_state import (
    NAME,
    NAME_REMEDY,
    Format,
    Precondition,
    QuotedMarket,
    StoredBook,
)


class Session:
    """The books and the market of a service.

    `books` and `market` are immutable values that are replaced, so that a reader of either sees one state. A
    change is on disk first.

    Args:
        store: The folder that stores books and quotes.
        market: The market's file.
        limits: The bounds of the service.
        forget_quotes: Whether to forget quotes that moved in another market, or that this one refuses.

    Raises:
        Unusable: If the store holds such quotes, and `forget_quotes` is False.
        UnreadableFile: If nothing in the market can be used.
    """

    def __init__(
        self, store: Store, market: Path, limits: ServiceLimits, *, forget_quotes: bool = False
    ):
        self.file, self._store, self._limits = str(market), store, limits
        text = read_text(market)
        base, kept = Market.from_text(text, self.file), store.quotes()
        digest = hashlib.sha256(text.encode()).hexdigest()
        is_same = kept.market == digest
        found, errors = moved(base, kept.quotes, confirmed=True) if is_same else (base, ())
        moves, version = kept.quotes, kept.version
        if errors or not is_same:
            if moves and not forget_quotes:
                other = f"{len(moves):,} quotes were moved in another market than {self.file}"
                why = errors[0] if errors else f"{other}; give that file"
                raise Unusable(f"{store.folder}: {why}, another --state, or --forget-quotes")
            moves, version = {}, max(version + 1, _first_version())
            store.keep_quotes(KeptQuotes(market=digest, version=version))
        self.market = QuotedMarket(base, digest, version, moves, found)
        self.books: Mapping[str, StoredBook] = store.books()
        for stored in self.books.values():
            _ = stored.book  # parse it now, not at the first request
        self._changing = threading.Lock()

    def book(self, name: str) -> StoredBook:
        """Return a book.

        Raises:
            HTTPProblem: If there is no book of that name.
        """
        if (found := self.books.get(name)) is None:
            raise HTTPProblem(
                404, "not-found", f"there is no book {name!r}", "GET /v1/books lists them"
            )
        return found

    def submit(
        self, name: str, format: Format, content: bytes, condition: Precondition
    ) -> tuple[StoredBook, bool]:
        """Store a book; return it, and whether its name is new.

        Submitting the same book again changes nothing, whatever the condition.

        Raises:
            HTTPProblem: If it has errors, there is no room for it, or the condition does not hold.
        """
        stored = self._read(name, format, content)
        with self._changing:
            before = self.books.get(name)
            if before is not None and before.version == stored.version:
                return before, False
            condition.check(before and before.version, f"the book {name}")
            if before is None and len(self.books) >= self._limits.books:
                detail = f"{len(self.books):,} books are stored, which is the limit"
                raise HTTPProblem(409, "too-many", detail, "delete one, or raise --max-books")
            self._store.keep_book(stored)
            self.books = {**self.books, name: stored}
        return stored, before is None

    def _read(self, name: str, format: Format, content: bytes) -> StoredBook:
        """Return a book after checking that the market can serve all of its trades.

        Raises:
            refused: If it has errors; an `HTTPProblem`.
            HTTPProblem: If it has too many trades, or the name is invalid.
        """
        if not NAME.fullmatch(name):
            detail = f"{name[:100]!r} is not a valid name of a book"
            raise HTTPProblem(400, "bad-request", detail, NAME_REMEDY)
        file, most = f"{name}.{format}", self._limits.trades
        try:
            stored = StoredBook(name, format, text_of(content, file))
            if (count := count_rows(stored.text, file)) > most:
                detail = f"the book has {count:,} trades, and at most {most:,} are allowed"
                raise HTTPProblem(413, "too-large", detail, "split it, or raise --max-trades")
            book = stored.book
        except UnreadableFile as error:
            raise refused("book-refused", [error.error]) from None
        if errors := book.checked(self.market.market).errors:
            raise refused("book-refused", errors)
        return stored

    def delete(self, name: str, condition: Precondition) -> None:
        """Remove a book; `HTTPProblem` is raised if there is none, or the condition does not hold."""
        with self._changing:
            condition.check(self.book(name).version, f"the book {name}")
            self._store.drop_book(name)
            self.books = {other: book for other, book in self.books.items() if other != name}

    def move(self, content: bytes, condition: Precondition) -> QuotedMarket:
        """Move all of the named quotes or none, and return the market of the next version.

        Raises:
            refused: If they cannot move like this, or the condition does not hold; an `HTTPProblem`.
        """
        values, confirmed = _values(content)
        with self._changing:
            before = self.market
            condition.check(str(before.version), "the market")
            market, errors = moved(
                before.market, values, most=self._limits.move, confirmed=confirmed
            )
            if errors:
                raise refused("move-refused", errors)
            numbers = market.by_quote(market)
            moves = {**before.moves, **{quote: numbers[quote] for quote in values}}
            after = replace(before, version=before.version + 1, moves=moves, market=market)
            kept = KeptQuotes(market=after.digest, version=after.version, quotes=moves)
            self._store.keep_quotes(kept)
            self.market = after
        return after


def _first_version() -> int:
    """Return a version that no other folder has used: the clock's milliseconds."""
    return time.time_ns() // 1_000_000


def _values(content: bytes) -> tuple[dict[str, object], bool]:
    """Return quote id -> value from the body of a move, and whether odd ones are confirmed.

    Raises:
        refused: If it has another form; an `HTTPProblem`.
    """
    file, remedy = "quotes.json", 'give {"quotes": {"EQUITY/PRICE/DAX": 4500.0, ...}}'
    try:
        document = parse_json(text_of(content, file), file)
    except UnreadableFile as error:
        raise refused("move-refused", [error.error]) from None
    found = dict(document) if isinstance(document, dict) else {}
    values, confirmed = found.pop("quotes", None), found.pop("confirmed", False)
    if not isinstance(values, dict) or not values or found or not isinstance(confirmed, bool):
        message = 'a move is an object of quotes by id, and perhaps of "confirmed": true'
        raise refused("move-refused", [InputError(file, None, None, "", "", message, remedy)])
    return values, confirmed
