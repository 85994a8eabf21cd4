"""Hints about what is written: notices, passed on as they come."""

from __future__ import annotations

import asyncio
from typing import Self

from antiphon.engines.memory.connection import Connection
from antiphon.engines.memory.filters import SubjectFilter
from antiphon.engines.memory.follower import REPAIR_S
from antiphon.engines.memory.server import MeshState
from antiphon.errors import Unavailable
from antiphon.ports import Record, Told


class MemoryHints:
    """`ports.Hints`, and its own context manager."""

    def __init__(self, connection: Connection, mesh: MeshState, told: Told) -> None:
        self._connection = connection
        self._mesh = mesh
        self._told = told
        self._subjects: set[str] = set()
        self._filters: dict[str, SubjectFilter] = {}

    def __enter__(self) -> Self:
        self._connection.ends[self] = None
        if self._connection.is_attached:
            self._mesh.followers[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.ends.pop(self, None)
        self.detach()

    def add(self, pattern: str) -> bool:
        """See `ports.Hints.add`."""
        if "*" in pattern or ">" in pattern:
            self._filters[pattern] = SubjectFilter(pattern)
        else:
            self._subjects.add(pattern)
        return True

    def remove(self, pattern: str) -> None:
        """See `ports.Hints.remove`."""
        self._subjects.discard(pattern)
        self._filters.pop(pattern, None)

    def check(self) -> None:
        """See `ports.Hints.check`."""
        if self._connection.is_closed:
            raise Unavailable("the connection is closed")

    # --- as a follower of the mesh ----------------------------------------------------------

    def notice(self, record: Record) -> None:
        """A record was committed."""
        subject = record.subject
        if subject not in self._subjects and not any(
            one.selects(subject) for one in self._filters.values()
        ):
            return
        faults = self._connection.faults
        fate = faults.notice() if faults is not None else None
        if fate is None or (not fate.lost and fate.delay_s <= 0):
            self._told(subject, record.payload)
        elif fate.lost:
            asyncio.get_running_loop().call_later(REPAIR_S, self._told, "", b"")
        else:
            later = asyncio.get_running_loop().call_later
            later(fate.delay_s, self._told, subject, record.payload)

    def rewound(self) -> None:
        """The log was replaced by another copy."""
        self._told("", b"")

    # --- as an end of the connection --------------------------------------------------------

    def attach(self) -> None:
        """Some may have been missed."""
        self._mesh.followers[self] = None
        self._told("", b"")

    def detach(self) -> None:
        """Receive nothing more."""
        self._mesh.followers.pop(self, None)

    def finish(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """The connection was closed or resumed: look again."""
        self._told("", b"")
