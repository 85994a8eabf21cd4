"""One inbox in a gate's memory: read once, then kept up to date by what the store tells.

The index decides nothing alone: every change is a compare-and-set on a message's register, so an
index that is behind costs a retry. Order within a thread is the exception, since it is about two
registers. Therefore whoever wrote waits until the index has heard of that write (`caught_up`):
then it has heard of every write before it, by whatever gate.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from antiphon.core.messages.inbox import Inbox
from antiphon.core.messages.register import read_note
from antiphon.core.record.ids import name_of_key

if TYPE_CHECKING:
    from antiphon.core.messages.register import Note
    from antiphon.ports import MailEntry, MailStore

PAGE: Final = 512
HEARD_WITHIN_S: Final = 2.0
NO_THREAD: Final = "-"


def box_prefix(inbox: str) -> str:
    """The registers of an inbox's messages."""
    return f"box.{inbox}"


def dead_prefix(inbox: str) -> str:
    """The registers of its dead letters."""
    return f"dead.{inbox}"


def register_key(prefix: str, thread: str, id_: str) -> str:
    """One message's register."""
    return f"{prefix}.{name_of_key(thread) if thread else NO_THREAD}.{id_}"


class InboxIndex:
    """The index of one inbox."""

    def __init__(self, store: MailStore, name: str) -> None:
        self.name = name
        self.prefix = box_prefix(name)
        self.inbox = Inbox()
        self.users = 0
        """How many requests use it now."""
        self._store = store
        self._stack = ExitStack()
        self._loading: asyncio.Task[None] | None = None
        self._is_current = False
        self._has_missed = False
        self._heard = 0
        self._changed: asyncio.Future[None] | None = None

    async def ready(self) -> Inbox:
        """The inbox, read from the store if that is needed."""
        while not self._is_current:
            if self._loading is None:
                self._loading = asyncio.ensure_future(self._load())
            await asyncio.shield(self._loading)
        return self.inbox

    async def _load(self) -> None:
        try:
            self._stack.close()
            self._has_missed = False
            self._stack.enter_context(self._store.watch(self.prefix, self._on_write))
            inbox, more = Inbox(), True
            self.inbox = inbox
            after = 0
            while more:
                page, more = await self._store.list(self.prefix, after=after, limit=PAGE)
                for entry in page:
                    self._take(entry)
                after = page[-1].revision if page else after
                self._heard = max(self._heard, after)
            self._is_current = not self._has_missed
            self._wake()
        except BaseException:
            self._stack.close()
            raise
        finally:
            self._loading = None

    def _take(self, entry: MailEntry) -> None:
        note = read_note(entry.note)
        if note is not None:
            self.inbox.apply(entry.key.rpartition(".")[2], entry.revision, note)

    def _on_write(self, key: str, revision: int, note: bytes) -> None:
        if not key:
            self._is_current, self._has_missed = False, True
        else:
            opened = read_note(note)
            if opened is not None:
                self.inbox.apply(key.rpartition(".")[2], revision, opened)
            self._heard = max(self._heard, revision)
        self._wake()

    def apply(self, id_: str, revision: int, note: Note) -> None:
        """This gate wrote a register."""
        self.inbox.apply(id_, revision, note)
        self._wake()

    def put_back(self, *ids: str) -> None:
        """These were taken and not handed out."""
        for id_ in ids:
            self.inbox.put_back(id_)
        if ids:
            self._wake()

    async def caught_up(self, revision: int) -> None:
        """Return once every write up to this one is known."""
        try:
            async with asyncio.timeout(HEARD_WITHIN_S):
                while self._heard < revision and self._is_current:
                    await self.changed()
        except TimeoutError:
            self._is_current = False
        if not self._is_current:
            await self.ready()

    async def changed(self) -> None:
        """Wait for the next change."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def close(self) -> None:
        """Hear nothing more."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self._is_current = False
        self._stack.close()
        self._wake()
