"""Dead letters in the store: kept, shown, and removed when others need the room.

Their number and size are known from their notes. Of their content only as much is read as is shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.messages import register
from antiphon.core.messages.register import read_note, write_note
from antiphon.errors import LostRace
from antiphon.runtime.messages.register_index import register_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.messages.register import Note
    from antiphon.ports import MessageStore
    from antiphon.runtime.messages.open_inboxes import OpenInbox

_REMOVED_MS = 1_000


class DeadLetter(Struct, frozen=True):
    """A message that was not handled."""

    id: str
    reason: str
    attempts: int
    error: str
    put_ms: int
    envelope: bytes


class DeadLetterStore:
    """Those of all inboxes of a mesh."""

    def __init__(self, store: MessageStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    async def add(self, box: OpenInbox, id_: str, body: bytes, note: Note, reason: str) -> None:
        """Keep a message as a dead letter; again changes nothing. The oldest make room."""
        letters = await box.dead.ready()
        for old in letters.surplus(note.size):
            key = register_key(box.dead.prefix, old.thread, old.id)
            await self._write(key, b"", register.REMOVED, old.revision)
            letters.drop(old.id)
        buried = register.buried(note, reason, self._now_ms())
        key = register_key(box.dead.prefix, note.thread, id_)
        revision = await self._write(key, body, buried, 0)
        if revision:
            box.dead.apply(id_, revision, buried)

    async def newest(self, box: OpenInbox, limit: int, most_bytes: int) -> list[DeadLetter]:
        """The newest of an inbox that fit into an answer, oldest first."""
        letters = await box.dead.ready()
        shown = letters.newest(limit, most_bytes, self._now_ms())
        keys = [register_key(box.dead.prefix, one.thread, one.id) for one in shown]
        found: list[DeadLetter] = []
        stored = await asyncio.gather(*map(self._store.get, keys))
        for item, entry in zip(shown, stored, strict=True):
            note = None if entry is None else read_note(entry.note)
            if entry is None or note is None or note.done:
                letters.drop(item.id)
                continue
            told = (note.dead, note.attempts, note.error, note.put_ms)
            found.append(DeadLetter(item.id, *told, entry.value))
        return found

    async def _write(self, key: str, body: bytes, note: Note, expected: int) -> int:
        """Change a register; 0 if another gate did."""
        ttl_ms = _REMOVED_MS if note.done else register.DEAD_MS
        try:
            return await self._store.write(
                key, body, note=write_note(note), expected=expected, ttl_ms=ttl_ms
            )
        except LostRace:
            return 0
