"""The registers below one prefix in a gate's memory: their notes, and never their values.

They are read once, and then kept up to date by what the store tells of.

The index decides nothing alone: every change is a compare-and-set on a message's register, so an
index that is behind costs a retry. Order within a thread is the exception, since it is about two
registers. Therefore whoever wrote waits until the index has heard of that write (`caught_up`):
then it has heard of every write before it, by whatever gate.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from antiphon.core.messages.register import read_note
from antiphon.core.record.ids import name_of_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.messages.register import Note
    from antiphon.ports import MessageStore

PAGE: Final = 1024
HEARD_WITHIN_S: Final = 2.0
NO_THREAD: Final = "-"


def register_key(prefix: str, thread: str, id_: str) -> str:
    """One message's register."""
    return f"{prefix}.{name_of_key(thread) if thread else NO_THREAD}.{id_}"


class Contents(Protocol):
    """What notes are kept in."""

    def apply(self, id_: str, revision: int, note: Note) -> None:
        """A register has this version. An older one than is known changes nothing."""

    @property
    def weight(self) -> int:
        """How much is remembered."""


C = TypeVar("C", bound=Contents)


class RegisterIndex(Generic[C]):
    """The index of one prefix."""

    def __init__(self, store: MessageStore, prefix: str, new: Callable[[], C]) -> None:
        """`new` makes what the notes are kept in, empty."""
        self.prefix = prefix
        self.contents = new()
        self._new = new
        self._store = store
        self._stack = ExitStack()
        self._loading: asyncio.Task[None] | None = None
        self._is_current = False
        self._has_missed = False
        self._heard = 0
        self._changed: asyncio.Future[None] | None = None

    async def ready(self) -> C:
        """What is there, read from the store if that is needed."""
        while not self._is_current:
            if self._loading is None:
                self._loading = asyncio.ensure_future(self._load())
            await asyncio.shield(self._loading)
        return self.contents

    async def _load(self) -> None:
        try:
            self._stack.close()
            self._has_missed = False
            self._stack.enter_context(self._store.watch(self.prefix, self._on_write))
            self.contents = self._new()
            more, after = True, 0
            while more:
                page, more = await self._store.list(self.prefix, after=after, limit=PAGE)
                for one in page:
                    self._take(one.key, one.revision, one.note)
                after = page[-1].revision if page else after
                self._heard = max(self._heard, after)
            self._is_current = not self._has_missed
            self.wake()
        except BaseException:
            self._stack.close()
            raise
        finally:
            self._loading = None

    def _take(self, key: str, revision: int, note: bytes) -> None:
        opened = read_note(note)
        if opened is not None:
            self.contents.apply(key.rpartition(".")[2], revision, opened)

    def _on_write(self, key: str, revision: int, note: bytes) -> None:
        if not key:
            self._is_current, self._has_missed = False, True
        else:
            self._take(key, revision, note)
            self._heard = max(self._heard, revision)
        self.wake()

    def apply(self, id_: str, revision: int, note: Note) -> None:
        """This gate wrote a register."""
        self.contents.apply(id_, revision, note)
        self.wake()

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

    def wake(self) -> None:
        """Something has changed."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def close(self) -> None:
        """Hear nothing more."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self._is_current = False
        self._stack.close()
        self.wake()
