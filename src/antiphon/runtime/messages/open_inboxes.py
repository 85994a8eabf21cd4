"""The inboxes in a gate's memory: each one's messages and dead letters, without their content.

Any member can name as many inboxes as it likes, and each is remembered. So there is a bound for
all of them, in number and in what they remember, and one for those that one asker opened: it makes
room with its own first. An inbox that is in use stays.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from antiphon.core.messages import envelope as envelopes
from antiphon.core.messages.dead_letters import DeadLetters
from antiphon.core.messages.inbox import Inbox
from antiphon.runtime.messages.register_index import RegisterIndex

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.ports import MessageStore

MAX_OPEN: Final = 1024
MAX_OPEN_BY: Final = 256
"""Those that one asker opened."""
MAX_WEIGHT: Final = 200_000
"""Messages, ends of messages and dead letters that are remembered, in all inboxes; about 200 MB."""
WEIGH_EVERY: Final = 1024
"""Requests between two looks at how much is remembered."""


class OpenInbox:
    """One inbox."""

    def __init__(self, store: MessageStore, name: str, opened_by: str) -> None:
        self.inbox = RegisterIndex(store, f"box.{name}", Inbox)
        self.dead = RegisterIndex(store, f"dead.{name}", DeadLetters)
        self.opened_by = opened_by
        self.users = 0
        """How many requests use it now."""

    @property
    def weight(self) -> int:
        """How much is remembered."""
        return self.inbox.contents.weight + self.dead.contents.weight

    def put_back(self, *ids: str) -> None:
        """These messages were taken and not handed out."""
        for id_ in ids:
            self.inbox.contents.put_back(id_)
        if ids:
            self.inbox.wake()

    async def close(self) -> None:
        """Hear nothing more."""
        await self.inbox.close()
        await self.dead.close()


class OpenInboxes:
    """Those of one gate; one that nobody has used for longest is forgotten first."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._open: dict[str, OpenInbox] = {}
        self._by: dict[str, int] = {}
        self._until_weighed = WEIGH_EVERY

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def use(self, address: str, by: str) -> AsyncIterator[OpenInbox]:
        """The inbox of an address, for as long as the block runs."""
        name = envelopes.inbox_name(address)
        box = self._open.pop(name, None)
        if box is None:
            box = OpenInbox(self._store, name, by)
            self._by[by] = self._by.get(by, 0) + 1
        self._open[name] = box  # last: the first are forgotten first
        box.users += 1
        try:
            await self._make_room(by)
            yield box
        finally:
            box.users -= 1

    async def close(self) -> None:
        """Forget all of them."""
        for name in list(self._open):
            await self._forget(name)

    async def _make_room(self, by: str) -> None:
        if self._by.get(by, 0) > MAX_OPEN_BY:
            await self._forget_one(by)
        elif len(self._open) > MAX_OPEN:
            await self._forget_one()
        self._until_weighed -= 1
        if self._until_weighed:
            return
        self._until_weighed = WEIGH_EVERY
        weight = sum(box.weight for box in self._open.values())
        while weight > MAX_WEIGHT and (lost := await self._forget_one()):
            weight -= lost

    async def _forget_one(self, by: str = "") -> int:
        """The one that was used longest ago, of this asker's; returns what it remembered."""
        for name, box in self._open.items():
            if not box.users and by in {"", box.opened_by}:
                weight = box.weight
                await self._forget(name)
                return weight or 1
        return 0

    async def _forget(self, name: str) -> None:
        box = self._open.pop(name, None)
        if box is None:
            return
        left = self._by.pop(box.opened_by) - 1
        if left:
            self._by[box.opened_by] = left
        await box.close()
