"""Who is signed in to the dashboard: a link that works once gives a browser its session."""

from __future__ import annotations

import secrets
import time
from typing import Final

from antiphon.core.bounded_cache import BoundedCache

SESSION_S: Final = 12 * 3600
SESSIONS: Final = 64
"""Browsers at once; the oldest has to sign in again."""


class SignIn:
    """The links and the sessions, in memory: they end with the process."""

    def __init__(self) -> None:
        self._links: set[str] = set()
        self._sessions = BoundedCache[str, float](most=SESSIONS, most_bytes=SESSIONS)

    def link(self) -> str:
        """A new secret for a link; it works once."""
        secret = secrets.token_urlsafe(24)
        self._links.add(secret)
        return secret

    def enter(self, secret: str) -> str:
        """The session for a link's secret; empty if it is none, or was used."""
        if secret not in self._links:
            return ""
        self._links.discard(secret)
        session = secrets.token_urlsafe(24)
        self._sessions.put(session, time.monotonic(), 1)
        return session

    def is_signed_in(self, session: str) -> bool:
        """Whether this is a session, and not too old."""
        since = self._sessions.get(session)
        return since is not None and time.monotonic() - since < SESSION_S
