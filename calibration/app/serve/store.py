"""Files that survive a crash: each book and the moved quotes in its own file, written aside and renamed."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from jaxtape.output_folder import AtomicOutput, read_bytes

from .state import NAME, Format, StoredBook

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_QUOTES = "quotes.json"
Record = TypeVar("Record", bound=BaseModel)


class Unusable(Exception):
    """A folder that cannot be used; the message has the reason and a remedy."""


class KeptQuotes(BaseModel, extra="forbid"):
    """The moved quotes of a market.

    Attributes:
        market: The digest of the market's file.
        version: The version of the quotes.
        quotes: Quote id -> number.
    """

    market: str = ""
    version: int = 0
    quotes: dict[str, float] = {}


class _KeptBook(BaseModel, extra="forbid"):
    name: str
    format: Format
    text: str


class Store:
    """The folder for the books and moved quotes of a service; writes are on the disk when they return.

    Args:
        folder: The folder; it is made if there is none.

    Raises:
        Unusable: The folder cannot be written, or others may write it.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from calibration.app.serve.state import StoredBook
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Store(Path(folder)).keep_book(StoredBook("desk", "csv", "id,type"))
        ...     Store(Path(folder)).books()["desk"].text
        'id,type'
    """

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_private(folder)
            self._books, self._own = AtomicOutput(folder / "books"), AtomicOutput(folder)
        except OSError as error:
            place, reason = error.filename or folder, error.strerror or str(error)
            raise Unusable(f"{place}: cannot be written: {reason}; give another --state") from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder: a second service may not.

        Raises:
            Unusable: Another service holds it.
        """
        with (self.folder / "lock").open("a", encoding="utf-8") as lock:
            try:
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                message = (
                    f"{self.folder}: another service keeps its books there; give another --state"
                )
                raise Unusable(message) from None
            yield

    def books(self) -> dict[str, StoredBook]:
        """Return the books that are kept, by name.

        Raises:
            Unusable: A file is not one that a service writes.
        """
        files = sorted((self.folder / "books").glob("*.json"))
        kept = [_read(file, _KeptBook) for file in files]
        for file, book in zip(files, kept, strict=True):
            if not NAME.fullmatch(book.name) or file.stem != book.name:
                raise Unusable(
                    f"{file}: holds the book {book.name!r}; rename the file, or move it away"
                )
        return {book.name: StoredBook(**book.model_dump()) for book in kept}

    def quotes(self) -> KeptQuotes:
        """Return the moved quotes that are kept."""
        file = self.folder / _QUOTES
        return _read(file, KeptQuotes) if file.exists() else KeptQuotes()

    def keep_book(self, stored: StoredBook) -> None:
        """Write a book, in the place of one of its name."""
        kept = _KeptBook(name=stored.name, format=stored.format, text=stored.text)
        _write(self._books, f"{stored.name}.json", kept)

    def drop_book(self, name: str) -> None:
        """Remove a book."""
        with AtomicOutput(self.folder / "books", names=(f"{name}.json",)).written():
            pass  # nothing takes its place

    def keep_quotes(self, quotes: KeptQuotes) -> None:
        """Write the moved quotes, in the place of the last ones."""
        _write(self._own, _QUOTES, quotes)


def _check_private(folder: Path) -> None:
    """Check that nobody else may write the folder of a service or the files in it.

    Raises:
        Unusable: Others may write the folder, or a file in it.
    """
    if os.name == "nt":
        return
    for place in (folder, *sorted(folder.glob("*")), *sorted(folder.glob("books/*"))):
        found = place.stat()
        if found.st_uid not in (os.geteuid(), 0):
            why, remedy = "belongs to another user", "run chown on it"
        elif stat.S_IMODE(found.st_mode) & 0o022:
            why, remedy = "others may write it", "run chmod go-w on it"
        else:
            continue
        raise Unusable(f"{place}: {why}; {remedy}, or give another --state")


def _write(files: AtomicOutput, name: str, record: BaseModel) -> None:
    with files.written() as aside:
        (aside / name).write_text(record.model_dump_json(indent=1), encoding="utf-8")


def _read(file: Path, kind: type[Record]) -> Record:
    """Return the record in a file.

    Raises:
        Unusable: It holds none.
    """
    try:
        return kind.model_validate_json(read_bytes(file))
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise Unusable(f"{file}: is not what a service writes ({reason}); move it away") from None
