"""Registers of messages: the server's side and a connection's."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from antiphon.engines.memory.connection import Connection
from antiphon.errors import LostRace, Rejected
from antiphon.ports import MessageEntry, MessageNote, MessageTold

MessageRows = dict[str, tuple[MessageEntry, int]]
"""Key to its entry and the millisecond at which it ends; 0 for none."""


class MessageRegisters:
    """The registers of one mesh. The newest are last."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._revision = 0
        self._rows: MessageRows = {}
        self.watchers: dict[_Watcher, None] = {}

    def get(self, key: str) -> MessageEntry | None:
        """The living entry."""
        row = self._rows.get(key)
        if row is None:
            return None
        if 0 < row[1] <= self._now_ms():
            del self._rows[key]
            return None
        return row[0]

    def write(self, key: str, value: bytes, note: bytes, expected: int, ttl_ms: int) -> int:
        """Replace what is at the expected revision."""
        if not all(key.split(".")) or any(sign in key for sign in "*> \t\r\n"):
            raise Rejected(f"{key!r} is not a key", reason="key")
        present = self.get(key)
        if (present.revision if present is not None else 0) != expected:
            raise LostRace(f"{key} is not at revision {expected}")
        self._revision += 1
        self._rows.pop(key, None)
        ends_ms = self._now_ms() + -(-ttl_ms // 1000) * 1000 if ttl_ms else 0
        self._rows[key] = (MessageEntry(key, self._revision, note, value), ends_ms)
        for watcher in list(self.watchers):
            if key.startswith(watcher.stem):
                watcher.tell(key, self._revision, note)
        return self._revision

    def under(self, prefix: str, after: int, limit: int) -> tuple[list[MessageNote], bool]:
        """Living entries under a prefix, in the order of their revisions."""
        now = self._now_ms()
        self._rows = {key: row for key, row in self._rows.items() if not 0 < row[1] <= now}
        stem = f"{prefix}."
        found = [row[0] for key, row in self._rows.items() if key.startswith(stem)]
        first = bisect_right(found, after, key=lambda entry: entry.revision)
        page = [
            MessageNote(one.key, one.revision, one.note) for one in found[first : first + limit]
        ]
        return page, len(found) > first + limit

    def image(self) -> tuple[int, MessageRows]:
        """A copy of everything that would be on disk."""
        return self._revision, self._rows.copy()

    def load(self, image: tuple[int, MessageRows]) -> None:
        """Restore an image."""
        self._revision, rows = image
        self._rows = rows.copy()
        for watcher in list(self.watchers):
            watcher.tell("", 0, b"")


class _Watcher:
    """One subscription. It is an end of its connection (`connection.End`)."""

    def __init__(self, connection: Connection, stem: str, told: MessageTold) -> None:
        self.stem = stem
        self._connection = connection
        self._told = told
        self._due_s = 0.0

    def tell(self, key: str, revision: int, note: bytes) -> None:
        """A register was written: a connection that is cut or paused misses it."""
        faults = self._connection.faults
        if faults is None:
            self._pass_on(key, revision, note)
            return
        loop = asyncio.get_running_loop()
        # News may be late, and comes in the order in which it was written.
        self._due_s = max(self._due_s, loop.time() + faults.notice().delay_s)
        if self._due_s <= loop.time():
            self._pass_on(key, revision, note)
        else:
            loop.call_at(self._due_s, self._pass_on, key, revision, note)

    def _pass_on(self, key: str, revision: int, note: bytes) -> None:
        if self._connection.is_attached and not self._connection.is_paused:
            self._told(key, revision, note)

    def attach(self) -> None:
        self._told("", 0, b"")

    def detach(self) -> None:
        """Nothing is told meanwhile."""

    def finish(self) -> None:
        """Nothing was taken."""

    def wake(self) -> None:
        self._told("", 0, b"")


class MemoryMessages:
    """`ports.MessageStore` over one connection."""

    def __init__(self, connection: Connection, store: MessageRegisters) -> None:
        self._connection = connection
        self._store = store

    async def write(
        self, key: str, value: bytes, *, note: bytes, expected: int, ttl_ms: int = 0
    ) -> int:
        """See `ports.MessageStore.write`."""
        work = partial(self._store.write, key, value, note, expected, ttl_ms)
        return await self._connection.write("messages.write", work)

    async def get(self, key: str) -> MessageEntry | None:
        """See `ports.MessageStore.get`."""
        return await self._connection.read("messages.get", partial(self._store.get, key))

    async def list(
        self, prefix: str, *, after: int = 0, limit: int = 512
    ) -> tuple[list[MessageNote], bool]:
        """See `ports.MessageStore.list`."""
        work = partial(self._store.under, prefix, after, limit)
        return await self._connection.read("messages.list", work)

    @contextmanager
    def watch(self, prefix: str, told: MessageTold) -> Iterator[None]:
        """See `ports.MessageStore.watch`."""
        watcher = _Watcher(self._connection, f"{prefix}.", told)
        self._store.watchers[watcher] = None
        self._connection.ends[watcher] = None
        try:
            yield
        finally:
            self._store.watchers.pop(watcher, None)
            self._connection.ends.pop(watcher, None)
