"""What is checked of every request beside its token: where it was sent to, by whom, how often.

A node that listens on loopback answers only requests for a loopback name, so that a page of some
web site whose name was pointed at 127.0.0.1 gets nothing (DNS rebinding). A request that a browser
sends for a page of another site has an `Origin`, and is refused. No token is in a cookie, so a
browser adds none by itself.
"""

from __future__ import annotations

import ipaddress
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from antiphon.interfaces.http.answers import Refused, too_many

if TYPE_CHECKING:
    from starlette.datastructures import Headers

LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
PER_S: Final = 50.0
"""Requests of one party, in the long run."""
BURST: Final = 100.0
PARTIES: Final = 1_024
"""Parties that are remembered: those that asked last."""


class Rates:
    """How often each party may ask: a bucket of tokens for each."""

    def __init__(self, per_s: float = PER_S, burst: float = BURST) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, party: str, now_s: float | None = None) -> None:
        """Count one request; 429 if there were too many."""
        now_s = time.monotonic() if now_s is None else now_s
        left, at_s = self._left.pop(party, (self._burst, now_s))
        left = min(self._burst, left + (now_s - at_s) * self._per_s)
        self._left[party] = (max(left - 1, 0.0) if left >= 1 else left, now_s)
        if len(self._left) > PARTIES:
            del self._left[next(iter(self._left))]
        if left < 1:
            raise too_many(
                (1 - left) / self._per_s,
                f"you have asked too often: {self._per_s:g} requests a second are answered",
                "wait, and follow a job by its events instead of asking again",
            )


def check_source(headers: Headers, listening: str) -> None:
    """Refuse what was not sent to this node by name, or was sent for another site's page."""
    host = _name_of(f"//{headers.get('host', '')}")
    if _is_loopback(listening) and not _is_loopback(host):
        raise Refused(
            421,
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
