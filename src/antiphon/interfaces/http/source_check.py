"""Whether a request was sent to this node, and not by a page of another site.

A node that listens on loopback answers only requests for a loopback name, so that a page of some
web site whose name was pointed at 127.0.0.1 gets nothing (DNS rebinding). A request that a browser
sends for a page of another site has an `Origin`, and is refused. No token is in a cookie, so a
browser adds none by itself.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from antiphon.interfaces.http.answers import Refused

if TYPE_CHECKING:
    from starlette.datastructures import Headers

LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


def check_source(headers: Headers, listening: str, *, status: int = 421) -> None:
    """Refuse what was not sent to this node by name, or was sent for another site's page."""
    host = _name_of(f"//{headers.get('host', '')}")
    if _is_loopback(listening) and not _is_loopback(host):
        raise Refused(
            status,
            "this node listens on loopback, and the request is for another host",
            "host",
            "ask http://127.0.0.1 or http://localhost",
        )
    origin = headers.get("origin")
    if origin is not None and (origin == "null" or _name_of(origin) != host):
        raise Refused(403, "pages of other sites may not ask", "origin")


def _name_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
