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

_LEAST = 16  # minimum number of characters in a token


class Auth:
    """The access rule of a service.

    Args:
        token: The token that writes require.
        is_local: Whether only programs on this machine can reach the service.
        guards_reads: Whether reads require the token, too; they do if others can reach the service.
    """

    def __init__(self, token: str, *, is_local: bool, guards_reads: bool = False):
        self._token, self.is_local = token.encode(), is_local
        self.guards_reads = guards_reads or not is_local

    def check(self, authorization: str | None) -> None:
        """Check the Authorization header.

        Raises:
            HTTPProblem: If it does not carry the token.
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
    """Return True if only programs on this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(file: Path) -> str:
    """Return the token in a file that only this user can read.

    Raises:
        Unusable: If others can read it, or it contains no token.
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
            f"{file}: contains no token; write at least {_LEAST} ASCII characters without blanks "
            f"to it, such as "
            "the output of `openssl rand -hex 32`"
        )
    return token


def kept_token(file: Path) -> str:
    """Return the token in a file; if there is none, write a new one that only this user can read."""
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
