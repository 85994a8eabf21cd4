"""Hints about what is written: republished records, told as they arrive and never read behind.

Owns the subscriptions. A hint can be lost with its connection, and a member can make the server
send something else there, so nobody may conclude more from one than that it is time to read. When
the connection comes back, one hint without a subject says that some may have been missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection, Subscription
from antiphon.errors import EngineDenied, Unavailable
from antiphon.ports import Told


class LiveHints:
    """`ports.Hints`, and its own context manager."""

    def __init__(
        self, connection: Connection, told: Told, heard: Callable[[str], Sequence[str]]
    ) -> None:
        """`heard` are the parts of a filter that may be subscribed to with the present login."""
        self._connection = connection
        self._told = told
        self._heard = heard
        self._listeners: dict[str, list[Subscription]] = {}
        self._unwatch: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._unwatch = self._connection.watch_state(self._on_state)
        return self

    def __exit__(self, *_: object) -> None:
        self._unwatch()
        for pattern in tuple(self._listeners):
            self.remove(pattern)

    def add(self, pattern: str) -> bool:
        """See `ports.Hints.add`."""
        if pattern not in self._listeners:
            self._listeners[pattern] = [
                self._connection.listen(live(part), self._on_record, denied=self._on_denied)
                for part in self._heard(wire.check_filter(pattern))
            ]
        return bool(self._listeners[pattern])

    def remove(self, pattern: str) -> None:
        """See `ports.Hints.remove`."""
        for listener in self._listeners.pop(pattern, ()):
            self._connection.unlisten(listener)

    def check(self) -> None:
        """See `ports.Hints.check`."""
        if self._connection.closed:
            raise Unavailable("the connection is closed")

    def _on_record(self, subject: bytes, _reply: bytes, payload: bytes, _header: bytes) -> None:
        self._told(f"ap{wire.read_subject(subject)[3:]}", payload)

    def _on_denied(self, _error: EngineDenied) -> None:
        self._told("", b"")  # whoever looks now and then finds the rest

    def _on_state(self, up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
        if up:
            for pattern in tuple(self._listeners):  # another login may hear other parts of it
                wanted = [live(part) for part in self._heard(pattern)]
                if wanted != [listener.subject for listener in self._listeners[pattern]]:
                    self.remove(pattern)
                    self.add(pattern)
        self._told("", b"")


def live(pattern: str) -> str:
    """Where records that match a filter are republished."""
    return f"apr.{pattern[3:]}"
