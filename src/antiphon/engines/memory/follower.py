"""A follower: one node's endless read of the log.

It learns of records by notices, which may be lost or late; what it yields it always reads from
the log behind its cursor, so a gap closes itself with the next notice, a reconnect, or a read a
little later. No notice, no work: waiting costs nothing.
"""

from __future__ import annotations

import asyncio

from antiphon.engines.memory.connection import Connection, Feed
from antiphon.engines.memory.filters import SubjectFilter
from antiphon.engines.memory.server import MeshState
from antiphon.errors import LogReplaced
from antiphon.ports import Record

REPAIR_S = 2.0
"""How long after a lost notice the follower reads by itself."""


class Follow(Feed[list[Record]]):
    """The context and the iterator of `OpLog.follow`."""

    def __init__(
        self,
        connection: Connection,
        mesh: MeshState,
        wanted: SubjectFilter,
        *,
        after: int,
        max_batch: int,
    ) -> None:
        super().__init__(connection)
        self._mesh = mesh
        self._log = mesh.log
        self._wanted = wanted
        self._cursor = after
        self._last: Record | None = None
        """What was yielded last: what the log must still show there."""
        self._is_rewound = False
        self._max_batch = max_batch
        self._visible = 0
        """The newest sequence that this node has heard of."""
        self._repair: asyncio.TimerHandle | None = None

    def _next(self) -> list[Record] | None:
        if not self._connection.is_attached:
            return None
        self._check()
        page = self._log.page(self._wanted, self._cursor, self._visible, self._max_batch)
        if not page.records:
            return None
        self._last = page.records[-1]
        self._cursor = self._last.seq
        return page.records

    def _check(self) -> None:
        """`LogReplaced` if this is not the log that was read before."""
        if self._log.last_seq < self._cursor:
            ends = self._log.last_seq
            raise LogReplaced(f"the log ends at {ends}, before the cursor {self._cursor}")
        if self._is_rewound and self._last is not None:
            now = self._log.at(self._last.seq)
            if now is not None and now != self._last:
                raise LogReplaced(f"the log shows another record at {now.seq} than before")
            self._is_rewound = False

    # --- as a follower of the mesh ----------------------------------------------------------

    def notice(self, record: Record) -> None:
        """A record was committed."""
        if not self._wanted.selects(record.subject):
            return
        faults = self._connection.faults
        if faults is None:
            self._see(record.seq)
            return
        fate = faults.notice()
        loop = asyncio.get_running_loop()
        if fate.lost:
            if self._repair is None:
                self._repair = loop.call_later(REPAIR_S, self._look)
        elif fate.delay_s > 0:
            loop.call_later(fate.delay_s, self._see, record.seq)
        else:
            self._see(record.seq)

    def rewound(self) -> None:
        """The log was replaced by another copy."""
        self._is_rewound = True
        if self._connection.is_attached:
            self._look()

    # --- as an end of the connection --------------------------------------------------------

    def attach(self) -> None:
        """Learn of everything that was missed, perhaps from another copy of the log."""
        self._mesh.followers[self] = None
        self._is_rewound = True
        self._look()

    def detach(self) -> None:
        """Receive nothing more."""
        self._mesh.followers.pop(self, None)
        if self._repair is not None:
            self._repair.cancel()
            self._repair = None

    def _look(self) -> None:
        self._repair = None
        self._visible = self._log.last_seq
        self._signal.fire()

    def _see(self, seq: int) -> None:
        if seq > self._visible:
            self._visible = seq
            self._signal.fire()
