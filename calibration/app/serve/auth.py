"""Access control: a token for writes, and for reads if the service is open to a network."""

import ipaddress
import os
import secrets
import stat
import tempfile
from pathlib import Path

from jaxtape.output_folder import read_bytes

from .database import Unusable
from .problems import HTTPProblem

_LEAST = 16  # characters of a token


class Auth:
    """The access rule of a service.

    Args:
        token: Token that writes must carry.
        is_local: Whether only programs of this machine reach the service.
        guards_reads: Whether reading needs the token, too; it does where others reach the service.
    """

    def __init__(self, token: str, *, is_local: bool, guards_reads: bool = False):
        self._token, self.is_local = token.encode(), is_local
        self.guards_reads = guards_reads or not is_local

    def check(self, authorization: str | None) -> None:
        """Check the header Authorization.

        Raises:
            HTTPProblem: It does not have the token.
        """
        scheme, _, given = (authorization or "").partition(" ")
        is_right = secrets.compare_digest(given.strip().encode(), self._token)
        if scheme.lower() != "bearer" or not is_right:
            what = "another token" if given else "no token"
            remedy = "send Authorization: Bearer TOKEN, with the token in the file that the service named"
            headers = {"www-authenticate": "Bearer", "connection": "close"}
            raise HTTPProblem(
                401, "unauthorized", f"the request has {what}", remedy, headers=headers
            )


def is_loopback(host: str) -> bool:
    """Return True if only programs of this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(file: Path) -> str:
    """Return the token in a file that nobody else can read.

    Raises:
        Unusable: Others can read it, or it holds no token.
    """
    try:
        mode, text = file.stat().st_mode, read_bytes(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Unusable(f"{file}: cannot be read: {reason}; give another --token-file") from None
    if os.name != "nt" and stat.S_IMODE(mode) & 0o077:
        raise Unusable(f"{file}: others may read or write it; run chmod 600 on it")
    token = text.strip()
    if len(token) < _LEAST or not (token.isascii() and token.isprintable()) or " " in token:
        raise Unusable(
            f"{file}: holds no token; write at least {_LEAST} ASCII characters without blanks to it, such as "
            "`openssl rand -hex 32` makes"
        )
    return token


def kept_token(file: Path) -> str:
    """Return the token in a file; where there is none, a new one is kept there, for the user alone."""
    if file.exists():
        return token_of(file)
    token = secrets.token_urlsafe(32)
    descriptor, aside = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)  # of mode 600
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(f"{token}\n")
        stream.flush()
        os.fsync(descriptor)
    os.replace(aside, file)
    return token
