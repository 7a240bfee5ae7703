"""Files and folders in an object store by URL, gs://bucket/out or s3://bucket/out, through pyarrow."""

import contextlib
import errno
import functools
import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")  # a Path keeps one of the two slashes
_STORES = "gs", "s3"
_RETRY_LIMIT = "retry_limit_seconds"  # an option of URLs of Google's store
_COPY_BYTES = 2**22  # bytes of a copy held in memory
_PERMANENT = re.compile(
    "DENIED|FORBIDDEN|UNAUTHENTICATED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY|SIGNATURE|bucket does not exist|"
    "[Bb]ucket .* not found|status 40[0134]"
)
"""Errors of a store that a retry cannot fix."""


@dataclass(frozen=True)
class StoredPath:
    """A file or a folder of an object store, with the methods of `pathlib.Path` that this library needs.

    An object is replaced as a whole. A folder is a prefix of names, and exists as soon as an object has it.
    `ConnectionError` is raised if the store cannot be reached, and `PermissionError` if it denies access; both
    are subclasses of `OSError`.

    Attributes:
        scheme: The kind of store: "gs" or "s3".
        key: The bucket and the name within it, such as "bucket/out/run.json".
        options: The options of the URL, for pyarrow: "endpoint_override=localhost:9000&scheme=http".
        user: The user of the URL, such as "anonymous" for a public bucket.
        num_bytes: The size of an object, if `files` returned it; else 0.
    """

    scheme: str
    key: str
    options: str = ""
    user: str = ""
    num_bytes: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __fspath__(self) -> str:
        return str(self)

    def __truediv__(self, name: str) -> "StoredPath":
        return replace(self, key=f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of the name."""
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        """The last part of the name, without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return PurePosixPath(self.key).suffix

    def exists(self) -> bool:
        """Whether there is an object of this name, or one in this folder."""
        return self._kind() != "NotFound"

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        return self._kind() == "File"

    def is_dir(self) -> bool:
        """Whether there is an object in this folder."""
        return self._kind() == "Directory"

    def is_symlink(self) -> bool:
        """False: a store has no links."""
        return False

    def _kind(self) -> str:
        with self._opened() as store:
            return store.get_file_info(self.key).type.name

    def iterdir(self) -> Iterator["StoredPath"]:
        """Yield the objects and folders in this folder."""
        return iter(
            [replace(self, key=found.path.strip("/")) for found in self._listed(recursive=False)]
        )

    def files(self) -> list["StoredPath"]:
        """Return the objects in this folder and in those below it."""
        found = self._listed(recursive=True)
        return [
            replace(self, key=info.path.strip("/")) for info in found if info.type.name == "File"
        ]

    def _listed(self, *, recursive: bool) -> list[Any]:
        selector = arrow("pyarrow.fs").FileSelector(
            self.key, allow_not_found=True, recursive=recursive
        )
        with self._opened() as store:
            return store.get_file_info(selector)

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        with self._opened() as store, store.open_input_stream(self.key) as stream:
            return stream.read()

    def copy_to(self, file: Path) -> None:
        """Write the content of the object to a local file."""
        opened = self._opened()
        with opened as store, store.open_input_stream(self.key) as stream, file.open("wb") as copy:
            shutil.copyfileobj(stream, copy, _COPY_BYTES)

    def write_bytes(self, content: bytes) -> None:
        """Write the object, and replace an older one."""
        with self._opened() as store, store.open_output_stream(self.key) as stream:
            stream.write(content)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; with `missing_ok` there may be none."""
        ignored = (FileNotFoundError,) if missing_ok else ()
        with contextlib.suppress(*ignored), self._opened() as store:
            store.delete_file(self.key)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """Yield pyarrow's file system of the bucket; its errors name the URL.

        Raises:
            FileNotFoundError: If there is no such object.
            PermissionError: If the store denies access.
            ConnectionError: If the store cannot be reached, or fails.
        """
        try:
            bucket = self.key.partition("/")[0]
            yield _file_system(self.scheme, f"{self.user}@{bucket}".lstrip("@"), self.options)
        except FileNotFoundError:
            reason = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, reason, str(self)) from None
        except (OSError, arrow("pyarrow").ArrowException) as error:
            reason = " ".join(str(error).split())
            if _PERMANENT.search(reason):
                raise PermissionError(errno.EACCES, reason, str(self)) from None
            raise ConnectionError(errno.EIO, reason, str(self)) from None


Place = Path | StoredPath


def place_of(path: str | os.PathLike) -> Place:
    """Return the place at a path or at the URL of an object store.

    Raises:
        ValueError: If it is another kind of URL, or contains a password.
    """
    if isinstance(path, StoredPath):
        return path
    found = _URL.match(text := os.fspath(path))
    if not found:
        return Path(path)
    scheme, rest = found[1], text[found.end() :]
    if scheme not in _STORES or not rest.strip("/"):
        raise ValueError(
            f"{text}: is a URL; give a local path, gs://BUCKET/NAME or s3://BUCKET/NAME"
        )
    if urlsplit(f"{scheme}://{rest}").password:
        raise ValueError(
            f"{scheme}://...: contains a password, which files would record; give it in the "
            f"environment"
        )
    arrow("pyarrow.fs")
    name, _, options = rest.partition("?")
    bucket, slash, below = name.partition("/")
    user, _, bucket = bucket.rpartition("@")
    return StoredPath(scheme, f"{bucket}{slash}{below}".strip("/"), options, user)


@functools.cache
def _file_system(scheme: str, bucket: str, options: str) -> Any:
    """Return pyarrow's file system of a bucket; the store may be asked for the bucket's region."""
    given = [options] * bool(options)
    if scheme == "gs" and _RETRY_LIMIT not in options:
        given.append(f"{_RETRY_LIMIT}=60")  # Google's own limit is 15 minutes
    return arrow("pyarrow.fs").FileSystem.from_uri(f"{scheme}://{bucket}?{'&'.join(given)}")[0]


def is_url(path: str | os.PathLike) -> bool:
    """Return True if a path is a URL of any kind."""
    return _URL.match(os.fspath(path)) is not None


@contextlib.contextmanager
def local_copy(place: Place) -> Iterator[Path]:
    """Yield a local file: the file itself, or a copy of the object that lasts as long as the block."""
    if isinstance(place, Path):
        yield place
        return
    folder = Path(tempfile.mkdtemp(prefix="jaxtape-"))
    try:
        place.copy_to(folder / place.name)
        yield folder / place.name
    finally:  # also if the block raises
        shutil.rmtree(folder, ignore_errors=True)


def arrow(module: str) -> Any:
    """Return a module of pyarrow.

    Raises:
        ImportError: If pyarrow is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError("tables and URLs need pyarrow: pip install 'jaxtape[many]'") from error


def arrow_table(frame: Any) -> Any:
    """Return the Arrow table of a data frame; the columns are shared where the frame has them in Arrow.

    Args:
        frame: A `pyarrow.Table` or `RecordBatch`, or any frame that exports Arrow's streams
            (`__arrow_c_stream__`): of pandas from 2.2, polars, DuckDB.

    Returns:
        A `pyarrow.Table`.

    Raises:
        TypeError: If it is not such a frame.
    """
    pyarrow = arrow("pyarrow")
    if not isinstance(frame, pyarrow.Table | pyarrow.RecordBatch) and not hasattr(
        frame, "__arrow_c_stream__"
    ):
        raise TypeError(
            f"a {type(frame).__name__} is not a data frame: give one of pandas (2.2 or later), "
            f"polars, pyarrow or "
            "another that has __arrow_c_stream__"
        )
    return pyarrow.table(frame)
