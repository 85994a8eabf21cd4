"""The outbox of a process's connection: keeps what cannot be written now, and sends it later.

Every connection to a server sends what waits in its state directory. Only a program that asked for
it (`Mesh.open(offline=True)`) has its submits and messages kept: others are told by an error, as
they expect.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.messages import envelope as envelopes
from antiphon.core.policy.backoff import backoff_ms
from antiphon.errors import (
    AntiphonError,
    CircuitOpen,
    EngineDenied,
    Held,
    InboxFull,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.runtime.messages.message_client import client_of
from antiphon.runtime.outbox.outbox_item import NO_JOBS, OutboxItem, Send, Submit
from antiphon.runtime.outbox.outbox_sender import OutboxSender
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from antiphon.assembly import MeshConnection
    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_sender import Archived

T = TypeVar("T")

FOLDER: Final = "outbox"
LOOK_S: Final = 1.0
"""How often to look whether the engine is back, or another process has sent an item."""

log = LazyLogger(__name__)


class Connected(Protocol):
    """What an outbox needs of its connection."""

    @property
    def opened(self) -> MeshConnection:
        """The session and the key."""

    @property
    def session(self) -> Session:
        """The session."""

    @property
    def is_connected(self) -> bool:
        """Whether it has an engine."""

    async def reconnect(self) -> None:
        """Connect, if it was opened without an engine."""


def is_away(problem: AntiphonError) -> bool:
    """Whether an error says that the engine cannot be reached, and not that it refused."""
    refusals = (EngineDenied, RateLimited, InboxFull)
    return isinstance(problem, Unavailable) and not isinstance(problem, refusals)


class ConnectionOutbox:
    """The outbox of the state directory that a connection uses."""

    def __init__(self, connection: Connected, home: Path, archived: Archived) -> None:
        """Nothing is read yet."""
        self.store = OutboxStore(home / FOLDER)
        self._connection = connection
        self._archived = archived
        self._sending = asyncio.Lock()
        self._news = asyncio.Event()

    # --- keeping ------------------------------------------------------------------------------

    def keep_submit(self, body: ScheduleBody, *, sent_ms: int = 0) -> OutboxItem:
        """Keep a job; it is on disk when this returns. `Rejected` if no mesh would accept it."""
        author = self._connection.session.author
        hlc = author.draft(JobSchedule, body, prev=0, auth=()).op.hlc
        return self._keep(Submit(body), (hlc[0], hlc[1]), sent_ms)

    def keep_message(self, sender: str, body: MessageBody, *, sent_ms: int = 0) -> OutboxItem:
        """Keep a message."""
        hlc = self._connection.session.author.tick()
        return self._keep(Send(sender, body), (hlc[0], hlc[1]), sent_ms)

    def _keep(self, what: Submit | Send, hlc: tuple[int, int], sent_ms: int) -> OutboxItem:
        session = self._connection.session
        item = OutboxItem(
            what=what,
            author=session.author.did,
            hlc=hlc,
            at_ms=session.wall.now_ms(),
            sent_ms=sent_ms,
        )
        self.store.put(item)
        self._news.set()
        return item

    # --- sending ------------------------------------------------------------------------------

    async def write_or_keep(
        self,
        write: Callable[[], Awaitable[T]],
        keep: Callable[[int], OutboxItem],
        needs: frozenset[tuple[str, str]] = NO_JOBS,
    ) -> T | OutboxItem:
        """Write something behind everything that waits; keep it if the engine is unreachable.

        It is also kept while a job that it `needs` waits here. `keep` is told since when it may
        have been sent; 0: it was not.
        """
        if not self._connection.is_connected:
            return keep(0)
        began_ms, sent_ms = self._connection.session.author.now().wall_ms, 0
        try:
            await self.send()
            if not needs & self._tentative_jobs():
                sent_ms = began_ms
                return await write()
        except Unavailable as problem:
            if not is_away(problem):
                raise
            if isinstance(problem, CircuitOpen):
                sent_ms = 0
        return keep(sent_ms)

    def _tentative_jobs(self) -> set[tuple[str, str] | None]:
        return {one.job() for one in self.store.items() if one.is_tentative}

    @property
    def _waits(self) -> bool:
        """Whether something waits that this process can send."""
        did = self._connection.session.author.did
        return self.store.has_items and any(
            one.state == "waiting" and one.may_be_sent_by(did) for one in self.store.items()
        )

    async def send(self) -> list[OutboxItem]:
        """Send what waits; what ended by it. Nothing while another process is sending."""
        async with self._sending:
            if not self.store.has_items:
                return []
            try:
                lock = self.store.lock()
            except Held:
                return []
            try:
                ended = await self._sender().send()
            finally:
                lock.release()
        for one in ended:
            tell = log.info if one.state == "held" else log.warning
            tell(f"outbox_{one.state}", item=one.id, what=one.what.words, why=one.why)
        return ended

    def _sender(self) -> OutboxSender:
        connection, session = self._connection, self._connection.session

        async def deliver(body: MessageBody) -> None:
            keyring = connection.opened.keyring
            signed = envelopes.sign(
                body,
                (keyring.did, keyring.sign),
                mesh=session.mesh,
                at_ms=session.wall.now_ms(),
            )
            client = client_of(session, keyring, body.sender)
            try:
                await client.put(body.to, signed)
            finally:
                await client.close()

        return OutboxSender(self.store, session, deliver=deliver, archived=self._archived)

    async def run(self) -> None:
        """Send whatever waits, and connect again where there is no connection, until cancelled."""
        attempt = 0
        while True:
            connected = self._connection.is_connected
            if connected and not self._waits:
                attempt = 0
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._connection.reconnect()
                await self.send()
            except AntiphonError as problem:
                log.debug("outbox_not_sent", problem=problem.message)
            else:
                if not self._waits:
                    continue
            await self._rest(attempt)
            attempt += 1

    async def _rest(self, attempt: int) -> None:
        """Wait before the next try; less if the engine is back."""
        chance = self._connection.session.entropy.random()
        left_s = backoff_ms(attempt, chance=chance) / 1000
        before = self._connection.session.engine.reconnects
        while left_s > 0 and self._connection.session.engine.reconnects == before:
            await asyncio.sleep(min(left_s, LOOK_S))
            left_s -= LOOK_S

    # --- ends ---------------------------------------------------------------------------------

    async def committed(self, item: OutboxItem) -> None:
        """Wait until the mesh has an item; `Rejected` if it was dropped.

        `Unavailable` if a person has to decide.
        """
        while True:
            found = self.store.reread(item)
            if found is None or found.state == "held":
                return
            if found.state == "dropped":
                raise Rejected(f"{item.what.words} was dropped: {found.why}", reason="dropped")
            if found.state == "asks":
                raise Unavailable(
                    f"{item.what.words} waits for your decision: {found.why}",
                    hint=f"antiphon outbox retry {item.id}, or antiphon outbox drop {item.id}",
                )
            await asyncio.sleep(LOOK_S)
