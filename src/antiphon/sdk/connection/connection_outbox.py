"""The outbox of a process's connection: keeps what cannot be written now, and sends it later.

Every connection to a server sends what waits in its state directory. Only a program that asked for
it (`Mesh.open(offline=True)`) has what it writes kept: others are told by an error, as they
expect.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec.structs import replace

from antiphon.assembly.artifact_store import blobs_of
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.messages import envelope as envelopes
from antiphon.core.policy.backoff import backoff_ms
from antiphon.errors import AntiphonError, CircuitOpen, Held, Rejected, Unavailable, is_away
from antiphon.runtime.messages.message_client import client_of
from antiphon.runtime.outbox.outbox_item import (
    NO_JOBS,
    Form,
    LaneWrite,
    OutboxItem,
    Put,
    Send,
    Store,
    Submit,
    What,
)
from antiphon.runtime.outbox.outbox_sender import OF_SESSION, OutboxSender
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from antiphon.assembly import MeshConnection
    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.families.memory.writing import Wanted
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.core.proof.output import Output
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_sender import Archived

T = TypeVar("T")
K = TypeVar("K")

FOLDER: Final = "outbox"
LOOK_S: Final = 1.0
"""How often to look whether the engine is back, or another process has sent an item."""
OTHERS_S: Final = 30.0
"""How often to look for what other processes leave, and what a person has sent again."""

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


class ConnectionOutbox:
    """The outbox of the state directory that a connection uses."""

    def __init__(self, connection: Connected, home: Path, archived: Archived) -> None:
        """Nothing is read yet."""
        self.store = OutboxStore(home / FOLDER)
        self._connection = connection
        self._archived = archived
        self._sending = asyncio.Lock()
        self._news = asyncio.Event()
        self._stopped: AntiphonError | None = None
        """Why nothing is sent any more."""

    # --- keeping ------------------------------------------------------------------------------

    def keep_submit(self, body: ScheduleBody, *, sent_ms: int = 0) -> OutboxItem:
        """Keep a job; it is on disk when this returns. `Rejected` if no mesh would accept it."""
        author = self._connection.session.author
        hlc = author.draft(JobSchedule, body, prev=0, auth=()).op.hlc
        return self._keep(Submit(body), (hlc[0], hlc[1]), sent_ms=sent_ms)

    def keep_submits(self, bodies: Sequence[ScheduleBody], *, sent_ms: int = 0) -> list[OutboxItem]:
        """Keep jobs, in their order; `Unavailable` before the first if there is no room for all."""
        self.store.check_room(len(bodies))
        return [self.keep_submit(one, sent_ms=sent_ms) for one in bodies]

    def keep_message(self, sender: str, body: MessageBody, *, sent_ms: int = 0) -> OutboxItem:
        """Keep a message."""
        hlc = self._connection.session.author.tick()
        return self._keep(Send(sender, body), (hlc[0], hlc[1]), sent_ms=sent_ms)

    def keep_file(self, output: Output) -> None:
        """Keep a file whose content waits here, if it does."""
        if self.store.blobs.has(output.hash):
            hlc = self._connection.session.author.tick()
            self._keep(Store(output.name, output.hash), (hlc[0], hlc[1]))

    def keep_put(self, wanted: Wanted, sent: Sequence[Form] = ()) -> OutboxItem:
        """Keep a value for a document, in place of one that waits here and was not sent.

        There is one for each document: a second has no revision yet that it could be made from.
        """
        what, did = Put(wanted), self._connection.session.author.did
        with self._changing() as store:
            for one in store.items():
                if one.what.name != what.name or not isinstance(one.what, Put):
                    continue
                if not one.is_tentative or one.author != did:
                    continue
                if sent or one.forms:
                    raise Unavailable(
                        f"another value of {wanted.key!r} in {wanted.space} waits here, and may"
                        " have been sent",
                        hint=f"antiphon outbox drop {one.id} removes it",
                    )
                wanted = replace(wanted, base=one.what.wanted.base)
                item = replace(one, what=Put(wanted))
                store.update(item)
                return item
        return self.keep_lane_write(what, sent)

    def keep_lane_write(self, what: LaneWrite, sent: Sequence[Form] = ()) -> OutboxItem:
        """Keep an op of a lane, with the forms of it that may have been sent."""
        hlc = self._connection.session.author.tick()
        return self._keep(what, (hlc[0], hlc[1]), forms=tuple(sent))

    def _keep(
        self,
        what: What,
        hlc: tuple[int, int],
        *,
        sent_ms: int = 0,
        forms: tuple[Form, ...] = (),
    ) -> OutboxItem:
        session = self._connection.session
        item = OutboxItem(
            what=what,
            author=session.author.did,
            hlc=hlc,
            at_ms=session.wall.now_ms(),
            sent_ms=sent_ms,
            forms=forms,
        )
        self.store.put(item)
        self._news.set()
        return item

    @contextmanager
    def _changing(self) -> Iterator[OutboxStore]:
        """The right to change items; `Unavailable` while another process is sending."""
        try:
            lock = self.store.lock()
        except Held as held:
            raise Unavailable(held.message, hint="try again in a moment") from held
        try:
            yield self.store
        finally:
            lock.release()

    # --- sending ------------------------------------------------------------------------------

    async def write_or_keep(
        self,
        write: Callable[[], Awaitable[T]],
        keep: Callable[[int], K],
        needs: frozenset[tuple[str, str]] = NO_JOBS,
        content: object = None,
        *,
        to: str = "",
    ) -> T | K:
        """Write something behind everything that waits; keep it if the engine is unreachable.

        It is also kept while a job that it `needs`, a blob that its `content` names, or a message
        that goes `to` the same receiver waits here.
        `keep` is told since when it may have been sent; 0: it was not.
        """
        if not self._connection.is_connected:
            return keep(0)
        began_ms, sent_ms = self._connection.session.author.now().wall_ms, 0
        try:
            await self.send()
            waits = needs & self._tentative_jobs() or self.store.blobs.waiting(content)
            if not waits and not (to and self._has_message(to)):
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

    def _has_message(self, to: str) -> bool:
        return any(
            isinstance(one.what, Send) and one.what.body.to == to and one.state == "waiting"
            for one in self.store.items()
        )

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

        return OutboxSender(
            self.store,
            session,
            deliver=deliver,
            archived=self._archived,
            blobs=blobs_of(connection.opened),
        )

    def begin(self) -> asyncio.Task[None]:
        """Begin `run` in a task; if it ends, the log says why."""
        sending = asyncio.create_task(self.run())
        sending.add_done_callback(_say_why)
        return sending

    async def run(self) -> None:
        """Send whatever waits, and connect again where there is no connection, until cancelled."""
        attempt = 0
        while True:
            try:
                if self._connection.is_connected and not self._waits:
                    attempt = 0
                    await self._idle()
                    continue
                await self._connection.reconnect()
                await self.send()
                if not self._waits:
                    continue
            except OF_SESSION as problem:
                log.warning("outbox_stopped", problem=problem.message, hint=problem.hint)
                self._stopped = problem
                return
            except (AntiphonError, OSError) as problem:
                is_waiting = isinstance(problem, AntiphonError) and is_away(problem)
                tell = log.debug if is_waiting else log.warning
                tell("outbox_not_sent", problem=str(problem))
            await self._rest(attempt)
            attempt += 1

    async def _idle(self) -> None:
        """Wait until something is kept here, or it is time to look for what others keep."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(OTHERS_S):
                await self._news.wait()

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
            if found is None:
                found = await self._gone(item)
            if found.state == "held":
                return
            if found.state == "dropped":
                raise Rejected(f"{item.what.words} was dropped: {found.why}", reason="dropped")
            if found.state == "asks":
                raise Unavailable(
                    f"{item.what.words} waits for your decision: {found.why}",
                    hint=f"antiphon outbox retry {item.id}, or antiphon outbox drop {item.id}",
                )
            if self._stopped is not None:
                raise self._stopped
            await asyncio.sleep(LOOK_S)

    async def _gone(self, item: OutboxItem) -> OutboxItem:
        """What became of an item without a file: the mesh has it, or a person dropped it.

        Whoever was told of an end has removed it, and too many that nobody asked for are removed.
        """
        job = item.job()
        if job is None:
            return replace(item, state="held")
        try:
            view = await self._connection.session.read_lane(*job)
        except Unavailable as problem:
            if not is_away(problem):
                raise
            return item
        if view.lane.job is not None or await self._archived(*job):
            return replace(item, state="held")
        return replace(item, state="dropped", why="somebody removed it")


def _say_why(sending: asyncio.Task[None]) -> None:
    problem = None if sending.cancelled() else sending.exception()
    if problem is not None:
        log.error("outbox_stopped", problem=repr(problem), hint="antiphon outbox")
