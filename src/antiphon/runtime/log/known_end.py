"""Whether the log is still the one that was read before (spec §3).

An engine that is restored from an older copy has fewer records, or others in their places. It
restarts for that, so every connection to it is lost. A session remembers the newest record that it
saw, and looks for it once after each reconnect, before it uses what it remembers. In between that
costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from antiphon.errors import LogReplaced

if TYPE_CHECKING:
    from antiphon.ports import Engine, OpLog, Record

LOOKS: Final = 6
"""How often a log is asked for a record before it counts as cut off."""

Pause = Callable[[int], Awaitable[None]]
"""Waits before another try, the longer the more there were."""


async def find_end(log: OpLog, seq: int, pause: Pause) -> Record | None:
    """The record at a sequence that the log had; None if it was archived since.

    `LogReplaced` if the log ends before it. A copy that lags looks like a log that was cut off, and
    a new leader may not have everything at once: so its leader is asked, and more than once.
    """
    for attempt in range(LOOKS):
        if attempt:
            await pause(attempt)
        record = await log.fetch(seq)
        if record is not None:
            return record
        if await log.reaches(seq):
            found = await log.fetch_many([seq])
            return found[0] if found else None
    newest = await log.last()
    raise LogReplaced(
        f"the log ends at {newest.seq if newest else 0}, but record {seq} was read from it before:"
        " it was restored from an older copy",
    )


class KnownEnd:
    """The newest record that one session saw."""

    def __init__(self, engine: Engine, pause: Pause) -> None:
        """None was seen yet."""
        self._engine = engine
        self._pause = pause
        self.line = engine.reconnects
        """The connection on which it was seen, or looked for: on another one nothing is certain."""
        self.seq = 0
        self._payload = b""
        self._looking = asyncio.Lock()

    def saw(self, seq: int, payload: bytes) -> None:
        """Remember a record if it is the newest.

        Not after a reconnect: what is seen then may be of another log.
        """
        if seq > self.seq and self.line == self._engine.reconnects:
            self.seq, self._payload = seq, payload

    async def check(self) -> None:
        """Look for the record after a reconnect; `LogReplaced` if it is not there any more."""
        async with self._looking:
            line = self._engine.reconnects
            if self.line == line:
                return
            if self.seq:
                found = await find_end(self._engine.log, self.seq, self._pause)
                if found is not None and found.payload != self._payload:
                    raise LogReplaced(
                        f"the log shows another record at {self.seq} than was read there before:"
                        " it was restored from an older copy",
                    )
            self.line = line
