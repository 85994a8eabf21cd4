"""Who is signed in to the dashboard: a link that works once gives a browser its session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from antiphon.core.bounded_cache import BoundedCache
from antiphon.files import replace_file

SESSION_S: Final = 12 * 3600
SESSIONS: Final = 64
"""Browsers at once; the oldest has to sign in again."""
LINK_S: Final = 3600
"""How long a link works: nobody can use what a terminal or a log kept."""
LINK_AGAIN_S: Final = 30
"""A link that does not work any more has a new one made, this often at most."""


class Session(Struct, frozen=True):
    """What a browser that has signed in has: neither is of use without the other."""

    secret: str
    """In its cookie."""
    room: str
    """In the address of its pages. A browser sends a cookie to all ports of a machine, but only
    below its path: whoever serves another port does not know this one, and cannot ask for it."""


class LinkFile:
    """The newest link, in a private file of the state directory, for as long as a block runs.

    For commands without a terminal: what they print may be a log that others read.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / "dashboard-link"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    def keep(self, link: str) -> str:
        """Keep a link; where it is."""
        replace_file(self._path, f"{link}\n".encode())
        return str(self._path)


class SignIn:
    """The links and the sessions, in memory: they end with the process."""

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = lambda _secret: None
        """Called with the secret of a new link, when one was used or came too late."""
        self._links = BoundedCache[bytes, float](most=SESSIONS, most_bytes=SESSIONS)
        """When each was made, by its digest: how long a look takes tells nothing about a secret.
        0: it was used."""
        self._newest_s = 0.0
        self._sessions = BoundedCache[bytes, float](most=SESSIONS, most_bytes=SESSIONS)

    def link(self) -> str:
        """A new secret for a link; it works once."""
        secret, self._newest_s = secrets.token_urlsafe(24), time.monotonic()
        self._links.put(_digest(secret), self._newest_s, 1)
        return secret

    def enter(self, secret: str) -> Session | None:
        """The session for a link's secret; None if it is none, was used, or is too old."""
        link, now_s = _digest(secret), time.monotonic()
        made_s = self._links.get(link)
        if made_s is None:
            return None
        is_good = bool(made_s) and now_s - made_s < LINK_S
        self._links.put(link, 0.0, 1)
        if is_good or now_s - self._newest_s >= LINK_AGAIN_S:
            self.tell(self.link())
        if not is_good:
            return None
        session = Session(secrets.token_urlsafe(24), secrets.token_urlsafe(16))
        self._sessions.put(_digest(session.secret, session.room), now_s, 1)
        return session

    def is_signed_in(self, session: Session) -> bool:
        """Whether this is a session, and not too old."""
        since = self._sessions.get(_digest(session.secret, session.room))
        return since is not None and time.monotonic() - since < SESSION_S


def _digest(*words: str) -> bytes:
    return sha256("\0".join(words).encode()).digest()
