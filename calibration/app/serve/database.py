"""Store the books and the moved quotes of a service in one SQLite table that survives a crash."""

import contextlib
import errno
import json
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .session_state import NAME, StoredBook

_FILE = "state.sqlite"
_APPLICATION = 0x6A787470  # marks a database of this service
_QUOTES = "."  # the row of the quotes; not a valid name of a book
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")


class Unusable(Exception):
    """A folder that cannot be used; the message has the reason and a remedy."""


class KeptQuotes(NamedTuple):
    """The moved quotes of a market: the digest of its file, their version, and quote id -> number."""

    market: str = ""
    version: int = 0
    quotes: Mapping[str, float] = {}


class Store:
    """The folder for the books and moved quotes of a service; writes are on disk when they return.

    Args:
        folder: The folder, which is made if there is none.

    Raises:
        Unusable: If the folder cannot be written, is writable by others, or contains a file of another program.
    """

    def __init__(self, folder: Path):
        self.folder, self._file = folder, folder / _FILE
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_private(folder, "another --state")
        except OSError as error:
            place, reason = error.filename or folder, error.strerror or str(error)
            raise Unusable(f"{place}: cannot be written: {reason}; give another --state") from None
        self._connection = sqlite3.connect(
            self._file, timeout=0.0, isolation_level=None, check_same_thread=False
        )
        with self._usable():
            (found,) = self._connection.execute("PRAGMA application_id").fetchone()
            tables = self._connection.execute("SELECT name FROM sqlite_master").fetchall()
            if found != _APPLICATION and tables:
                raise self._foreign("it is a database of another application")
            self._connection.execute(f"PRAGMA application_id={_APPLICATION}")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")  # a commit is on disk
            columns = "name TEXT PRIMARY KEY, format TEXT NOT NULL, text TEXT NOT NULL"
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS kept ({columns})")

    def __del__(self):
        if connection := vars(self).get("_connection"):
            connection.close()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder; `Unusable` is raised if another service has it locked."""
        place = self.folder / "lock"
        with contextlib.closing(sqlite3.connect(place, timeout=0.0, isolation_level=None)) as lock:
            with self._usable():
                lock.execute("BEGIN EXCLUSIVE")  # until the connection is closed
            yield

    def books(self) -> dict[str, StoredBook]:
        """Return the stored books by name; `Unusable` is raised if no service wrote the file."""
        with self._usable():
            rows = self._connection.execute("SELECT * FROM kept ORDER BY name").fetchall()
        books = {row[0]: StoredBook(*row) for row in rows if row[0] != _QUOTES}
        for name, book in books.items():
            if not NAME.fullmatch(name) or book.format not in ("csv", "json"):
                raise self._foreign(f"it holds the book {name!r}, of format {book.format!r}")
        return books

    def quotes(self) -> KeptQuotes:
        """Return the stored moved quotes."""
        with self._usable():
            query = "SELECT text FROM kept WHERE name = ?"
            row = self._connection.execute(query, (_QUOTES,)).fetchone()
        try:
            return KeptQuotes(*json.loads(row[0])) if row else KeptQuotes()
        except (TypeError, ValueError) as error:
            raise self._foreign(str(error)) from None

    def keep_book(self, stored: StoredBook) -> None:
        """Write a book, replacing one of the same name."""
        self._write("REPLACE INTO kept VALUES (?, ?, ?)", stored.name, stored.format, stored.text)

    def drop_book(self, name: str) -> None:
        """Remove a book."""
        self._write("DELETE FROM kept WHERE name = ?", name)

    def keep_quotes(self, quotes: KeptQuotes) -> None:
        """Replace the moved quotes."""
        self._write("REPLACE INTO kept VALUES (?, 'json', ?)", _QUOTES, json.dumps(quotes))

    def _write(self, statement: str, *values: str) -> None:
        """Write one row.

        Raises:
            OSError: If it cannot be written to disk.
        """
        try:
            self._connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            is_full = error.sqlite_errorname == "SQLITE_FULL"
            number = errno.ENOSPC if is_full else errno.EIO
            raise OSError(number, os.strerror(number), str(self._file)) from error

    def _foreign(self, reason: str) -> Unusable:
        return Unusable(f"{self._file}: is not what a service writes ({reason}); move it away")

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Translate the errors of SQLite.

        Raises:
            Unusable: If there was one.
        """
        try:
            yield
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(_BUSY):
                message = "another service keeps its books there; give another --state"
                raise Unusable(f"{self.folder}: {message}") from None
            if isinstance(error, sqlite3.OperationalError):
                raise Unusable(
                    f"{self._file}: cannot be written: {error}; give another --state"
                ) from None
            raise self._foreign(str(error)) from None


def check_private(folder: Path, remedy: str) -> None:
    """Check that nobody else may write a folder of a service or the files in it.

    `remedy` names an alternative to the folder.

    Raises:
        Unusable: If others may write the folder, or a file in it.
    """
    if os.name == "nt":
        return
    for place in (folder, *sorted(folder.glob("*"))):
        found = place.stat()
        if found.st_uid not in (os.geteuid(), 0):
            why, mend = "belongs to another user", "run chown on it"
        elif stat.S_IMODE(found.st_mode) & 0o022:
            why, mend = "others may write it", "run chmod go-w on it"
        else:
            continue
        raise Unusable(f"{place}: {why}; {mend}, or give {remedy}")
