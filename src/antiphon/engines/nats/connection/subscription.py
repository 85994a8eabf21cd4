"""A live subscription of a connection."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from antiphon.errors import EngineDenied


class Subscription(Struct, frozen=True):
    """A live subscription; `denied` is called if the server refuses it."""

    sid: int
    subject: str
    denied: Callable[[EngineDenied], None] | None = None
    queue: str = ""
    limit: int = 0
    """How many messages the server sends before it forgets the subscription; 0: any number."""

    @property
    def frame(self) -> bytes:
        """What asks the server for it."""
        target = f"{self.subject} {self.queue}" if self.queue else self.subject
        asking = b"SUB %b %d\r\n" % (target.encode(), self.sid)
        return asking + b"UNSUB %d %d\r\n" % (self.sid, self.limit) if self.limit else asking
