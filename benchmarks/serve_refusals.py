"""Requests that a service must refuse, each with the required status."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from .serve_process import Served, refused_to_start

_GOOD = b"id,type,underlying,option,strike,expiry\nE1,european,DAX,call,4400,2003-03-18\n"
_BOOK, _QUOTES, _MOVE = "/v1/books/attack", "/v1/quotes", b'{"quotes": {"EQUITY/PRICE/DAX": 4400}}'
_CSV, _ANY = {"content-type": "text/csv"}, {"if-match": "*"}

Answer = tuple[int, str]


@dataclass(frozen=True)
class Refusal:
    """A request that must be refused: the required status, the actual one, and the seconds it took."""

    case: str
    wanted: int
    found: int
    seconds: float
    said: str

    @property
    def holds(self) -> bool:
        return self.wanted == self.found


def refusals(served: Served, max_body: int, body_seconds: float) -> list[Refusal]:
    """Send every request that must be refused to a service with these limits, and return the outcomes."""
    own = {"authorization": f"Bearer {served.token}"}
    other = {"authorization": "Bearer of-another-service"}
    large = _GOOD + b"#" * max_body
    asked: list[tuple[str, int, str, str, bytes, Mapping[str, str]]] = [
        ("a book without a token", 401, "PUT", _BOOK, _GOOD, _CSV),
        ("a book with another token", 401, "PUT", _BOOK, _GOOD, _CSV | other),
        ("a move without a token", 401, "PATCH", _QUOTES, _MOVE, _ANY),
        ("a removal without a token", 401, "DELETE", "/v1/books/desk-0", b"", _ANY),
        ("a book of too many bytes", 413, "PUT", _BOOK, large, _CSV | own),
        ("a book with a bad strike", 422, "PUT", _BOOK, _GOOD.replace(b"4400", b"-1"), _CSV | own),
        ("an unknown underlying", 422, "PUT", _BOOK, _GOOD.replace(b"DAX", b"DAXX"), _CSV | own),
        ("bytes that are not text", 422, "PUT", _BOOK, b"\xff\xfe\x00", _CSV | own),
        ("no known format", 415, "PUT", _BOOK, _GOOD, {"content-type": "image/png"} | own),
        ("a name that is a path", 404, "PUT", "/v1/books/..%2F..%2Fetc", _GOOD, _CSV | own),
        ("a name that is hidden", 400, "PUT", "/v1/books/.hidden", _GOOD, _CSV | own),
        ("a move that is not JSON", 422, "PATCH", _QUOTES, b"{", _ANY | own),
        ("a spot below zero", 422, "PATCH", _QUOTES, _MOVE.replace(b"4400", b"-1"), _ANY | own),
        ("an unknown quote", 422, "PATCH", _QUOTES, _MOVE.replace(b"DAX", b"X"), _ANY | own),
        ("a move without its version", 428, "PATCH", _QUOTES, _MOVE, own),
        ("a move of an old version", 412, "PATCH", _QUOTES, _MOVE, {"if-match": '"0"'} | own),
        ("a name of another host", 400, "GET", "/v1/books", b"", {"host": "evil.example"}),
        ("an unknown method", 405, "POST", _QUOTES, b"", own),
    ]
    with httpx2.Client(base_url=served.url, timeout=30.0) as http:

        def ask(method: str, path: str, content: object, headers: Mapping[str, str]) -> Answer:
            found = http.request(method, path, content=content, headers=dict(headers))
            return found.status_code, found.text

        found = [
            _timed(case, wanted, lambda rest=rest: ask(*rest)) for case, wanted, *rest in asked
        ]
        stream = lambda: ask("PUT", _BOOK, _chunks(large), _CSV | own)
        found.append(_timed("a stream of too many bytes", 413, stream))
    slowly = f"PUT {_BOOK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
    slowly += f"Authorization: {own['authorization']}\r\nContent-Length: 900\r\n\r\n"
    patience = 3.0 * body_seconds + 5.0
    nobody = "--host", "0.0.0.0"
    return [
        *found,
        _timed("no HTTP at all", 400, lambda: _told(served, b"\x16\x03\x01\r\n\r\n", patience)),
        _timed("a body that drips", 408, lambda: _told(served, slowly.encode(), patience, b"#")),
        _timed(
            "a head that drips (cut off)", 0, lambda: _told(served, b"GET / HT", patience, b"T")
        ),
        _timed(
            "to listen to all without a token (exit)", 2, lambda: refused_to_start(served, *nobody)
        ),
    ]


def _timed(case: str, wanted: int, call: Callable[[], Answer]) -> Refusal:
    start = time.perf_counter()
    status, said = call()
    return Refusal(case, wanted, status, time.perf_counter() - start, said.strip()[:200])


def _chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 2**16):
        yield content[start : start + 2**16]


def _told(served: Served, sent: bytes, patience: float, drip: bytes = b"") -> Answer:
    """Return the status of the answer to these bytes, 0 if the connection is closed without one.

    `drip` is sent twice a second after them.
    """
    address = urlsplit(served.url)
    end, found = time.monotonic() + patience, b""
    with socket.create_connection((address.hostname, address.port)) as one:
        one.sendall(sent)
        one.settimeout(0.5)
        while time.monotonic() < end:
            try:
                part = one.recv(2**16)
            except TimeoutError:
                if drip:
                    one.sendall(drip)
                continue
            except ConnectionResetError:
                part = b""
            found += part
            if not part:
                head = found.split(b" ", 2)
                return int(head[1]) if found else 0, found.decode(errors="replace")
    return -1, f"the connection was still open after {patience:g} s"
