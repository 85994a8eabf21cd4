"""`mesh.outbox`: what waits on this machine until the mesh can be reached (docs/do/offline.md).

async with Mesh.open(offline=True) as mesh:
    handle = await mesh.submit("report.daily")
    handle.is_tentative                 # True: nobody but this machine knows of it
    mesh.outbox.items()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.errors import Misconfigured, Unavailable
from antiphon.runtime.outbox.outbox_item import OfJob, OutboxItem
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.sdk.connection.connection_outbox import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.runtime.identity.state_directory import StateDirectory
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.connection.connection_outbox import ConnectionOutbox


class LocalOutbox:
    """The outbox of a state directory, without a connection."""

    def __init__(self, store: OutboxStore) -> None:
        """`of` finds it."""
        self._local = store

    @classmethod
    def of(cls, home: StateDirectory) -> LocalOutbox:
        """The outbox of this state directory."""
        return LocalOutbox(OutboxStore(home.path / FOLDER))

    @property
    def _store(self) -> OutboxStore:
        return self._local

    def items(self) -> list[OutboxItem]:
        """What waits, in the order in which it is sent, and what ended and was not told yet."""
        return self._store.items()

    def tentative_jobs(self, start: str = "") -> list[OutboxItem]:
        """The jobs that wait here; those whose id begins so."""
        return [
            one
            for one in self.items()
            if one.job() is not None and one.is_tentative and one.what.name.startswith(start)
        ]

    def retry(self, id_: str) -> OutboxItem:
        """Have an item sent that waits for a decision, even if it may have arrived before.

        One that waits for no decision is looked for before it is sent, as ever.
        """
        lock = self._store.lock()
        try:
            item = self._store.find(id_)
            again = item.tried_again()
            if again != item:
                self._store.update(again)
            return again
        finally:
            lock.release()

    def drop(self, id_: str) -> OutboxItem:
        """Remove an item; one that was not sent before never will be.

        Of what a run made, the rest that waits behind it goes along, and its worker is told.
        """
        lock = self._store.lock()
        try:
            item = self._store.find(id_)
            if item.is_tentative and isinstance(item.what, OfJob):
                self._drop_run(item)
            else:
                self._store.remove(item)
            return item
        finally:
            lock.release()

    def _drop_run(self, item: OutboxItem) -> None:
        """The item stays as dropped until that is told: its run may still be making more."""
        behind = [
            one
            for one in self._store.items()
            if one.is_tentative and one.part_of() == item.part_of() and one.hlc > item.hlc
        ]
        self._store.update(replace(item, state="dropped", why=_BY_A_PERSON))
        for one in behind:
            self._store.remove(one)

    def told(self, items: Iterable[OutboxItem]) -> None:
        """A person knows how these ended: they are removed. Those that wait stay."""
        for one in items:
            if not one.is_tentative:
                self._store.remove(one)


_BY_A_PERSON: Final = "you dropped it, so nothing more of this run is sent"


class Outbox(LocalOutbox):
    """The outbox of an open mesh."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.outbox`."""
        self._connection = connection

    @property
    def _outbox(self) -> ConnectionOutbox:
        _ = self._connection.opened
        if self._connection.outbox is None:
            raise Misconfigured("a mesh in memory has no outbox")
        return self._connection.outbox

    @property
    def _store(self) -> OutboxStore:
        return self._outbox.store

    @property
    def is_connected(self) -> bool:
        """Whether the mesh was reached; if not, jobs are listed as this machine knew them."""
        return self._connection.is_connected

    @property
    def unreachable(self) -> Unavailable | None:
        """Why the mesh was not reached; None if it was."""
        return None if self.is_connected else getattr(self._connection.engine, "why", None)

    def keeps(self, id_: str) -> bool:
        """Whether the job or the message with this id waits here."""
        return any(one.what.name == id_ and one.is_tentative for one in self.items())

    async def send(self) -> list[OutboxItem]:
        """Send what waits now; what ended by it. `Unavailable` if the mesh cannot be reached."""
        await self._connection.reconnect()
        return await self._outbox.send()


__all__ = ["LocalOutbox", "Outbox", "OutboxItem"]
