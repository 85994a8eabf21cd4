"""The address of a node's HTTP interface, and whom to believe that it is that node."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from antiphon.errors import Misconfigured

if TYPE_CHECKING:
    from pathlib import Path

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def check_url(url: str) -> str:
    """The address without a slash at its end; `Misconfigured` if others could listen there."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is none
    except ValueError:
        raise _no_address(url) from None
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise Misconfigured(
            f"{url} would send everything in the clear", hint="use https, or an address on loopback"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise _no_address(url)
    return url.rstrip("/")


def _no_address(url: str) -> Misconfigured:
    return Misconfigured(f"{url!r} is not the address of a node", hint="https://HOST:PORT")


def trusted(ca: Path | None) -> ssl.SSLContext:
    """Whose certificates count: those of the authority in this file, else the system's."""
    if ca is not None and not ca.is_file():
        raise Misconfigured(f"there is no file {ca}", hint="ca= names a file of certificates")
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except ssl.SSLError as problem:
        raise Misconfigured(f"{ca} has no certificates: {problem}") from problem
