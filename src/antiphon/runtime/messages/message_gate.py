"""The message gate: stores messages for agents and hands them out (spec §10).

It carries out what the core decides: who may send and read (`send_right`), what comes next
(`inbox`), how a message changes (`register`), how fast one may send (`send_rate`). Its books are
registers in the engine. So it can end at any moment and be started again, and several can run.

Every step of a message is one compare-and-set on its register:

    put   absent      → waiting      a repeated put finds the register, and changes nothing
    read  waiting     → handed out   with a lease that ends
    ack   handed out  → done
    nack  handed out  → waiting      after a pause

Control is read from the log before each of them: what a revoked key asks for after its revocation
was committed is refused.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.messages import envelope as envelopes
from antiphon.core.messages import register, send_right
from antiphon.core.messages.inbox import Pick
from antiphon.core.messages.register import Note, read_note, write_note
from antiphon.core.messages.send_rate import REGISTER_BYTES, SENDING, STORED, STORED_BYTES
from antiphon.core.record.ids import split_address
from antiphon.core.record.verdict import Verdict
from antiphon.errors import (
    AntiphonError,
    Held,
    InboxFull,
    LostRace,
    OutcomeUnknown,
    RateLimited,
    Rejected,
)
from antiphon.runtime.messages.control_reads import ControlReads
from antiphon.runtime.messages.dead_letter_store import DeadLetter, DeadLetterStore
from antiphon.runtime.messages.fair_queue import FairQueue
from antiphon.runtime.messages.open_inboxes import OpenInboxes
from antiphon.runtime.messages.register_index import register_key
from antiphon.runtime.rate_books import RateBooks
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.core.messages.inbox import Inbox, InboxItem, ThreadSummary
    from antiphon.ports import MessageStore
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.messages.open_inboxes import OpenInbox

CACHED: Final = 4096
CACHED_BYTES: Final = 32 * 1024 * 1024
"""Messages that are remembered between put and read."""
READ_AT_ONCE: Final = 64
SHORTEST_LEASE_MS: Final = 1_000
ANSWER_BYTES: Final = 384 * 1024
MAX_WAIT_MS: Final = 60_000
LONGEST_MS: Final = 60_000
"""How long a wait for a change lasts before the inbox is looked at again."""

_WHO_MAY: Final = "'antiphon who' shows who may do what; 'message' is the permission to send"

log = LazyLogger(__name__)


class PutAnswer(Struct, frozen=True):
    """A message is stored."""

    id: str
    is_duplicate: bool = False
    """Whether it was before."""


class Reading(Struct, frozen=True, kw_only=True):
    """What a reader asks for."""

    address: str = ""
    """Whose inbox; a client reads its own."""
    session: str
    """`register.session_name` of the process that reads."""
    limit: int = 1
    lease_ms: int = register.LEASE_MS
    wait_ms: int = 0
    thread: str = ""
    """Only messages of this thread."""
    holding: frozenset[str] | None = None
    """After a lost answer: the messages that the reader has. What else it was handed is again."""


class HandedMessage(Struct, frozen=True):
    """A message in the hands of its reader, until the lease ends."""

    id: str
    revision: int
    attempt: int
    lease_ms: int
    """When the lease ends, by the gate's clock."""
    envelope: bytes


class MessageGate:
    """One gate for the messages of one mesh."""

    def __init__(
        self, session: Session, store: MessageStore, *, queue: FairQueue | None = None
    ) -> None:
        self._session = session
        self._store = store
        self._control = ControlReads(session)
        self._rates = RateBooks(store, session.wall.now_ms, SENDING, name="messages")
        self._stored = RateBooks(store, session.wall.now_ms, STORED, name="stored")
        self._queue = queue or FairQueue()
        self._boxes = OpenInboxes(store)
        self._dead = DeadLetterStore(store, session.wall.now_ms)
        self._bodies: BoundedCache[tuple[str, int], bytes] = BoundedCache(
            most=CACHED, most_bytes=CACHED_BYTES
        )

    async def close(self) -> None:
        """Forget everything; what is stored stays."""
        await self._rates.close()
        await self._stored.close()
        await self._boxes.close()

    # --- put ----------------------------------------------------------------------------------

    async def put(self, receiver: str, envelope: bytes, *, by: str) -> PutAnswer:
        """Store a signed message; again changes nothing.

        `by` is who asks: limits are counted by it, before anything else is looked at. So it must be
        something that nobody can make many of: a user of the engine, or a party (`party_of`).
        """
        wait_s = await self._rates.take(by)
        if wait_s:
            raise _too_fast(wait_s)
        async with self._queue.turn(by):
            return await self._put(receiver, envelope, by)

    def limit_on(self, by: str) -> RateLimited | None:
        """The error that a put of this asker would raise now because of its rate, or None."""
        wait_s = self._rates.wait_s(by)
        return _too_fast(wait_s) if wait_s else None

    async def party_of(self, sender: str) -> str:
        """For whom a key sends: a member can make keys, and they all count as its own.

        `Rejected` for a key that no chain leads to: such keys cost nothing, so nothing is kept
        about them.
        """
        now_s = self._session.wall.now_ms() // 1000
        if not self._control.rights(sender).is_member(now_s):
            await self._control.fresh()  # its delegation may be a moment old
        rights = self._control.rights(sender)
        if not rights.is_member(now_s):
            raise Rejected(
                f"this key may not send messages: {Verdict.NO_CHAIN.in_words}",
                reason=Verdict.NO_CHAIN.value,
                hint=_WHO_MAY,
            )
        return rights.party

    async def _put(self, receiver: str, envelope: bytes, by: str) -> PutAnswer:
        node, _ = split_address(receiver)
        now_ms = self._session.wall.now_ms()
        message = envelopes.open_arriving(
            envelope, receiver, mesh=self._session.mesh, now_ms=now_ms
        )
        body, sender = message.body, message.author
        await self._control.fresh()
        rights, now_s = self._control.rights(sender), now_ms // 1000
        fault = send_right.fault(rights, body, now_s)
        if fault is not None:
            raise Rejected(
                f"this key may not send {body.kind!r} messages: {fault.in_words}",
                reason=fault.value,
                hint=_WHO_MAY,
            )
        if not self._control.rights(node).is_member(now_s):
            raise Rejected(
                f"{receiver} is not on this mesh",
                reason="receiver",
                hint="'antiphon who' lists its members",
            )
        id_ = envelopes.id_of(message)
        async with self._boxes.use(receiver, by) as box:
            inbox = await box.inbox.ready()
            if id_ in inbox.entries or id_ in inbox.done:
                return PutAnswer(id_, is_duplicate=True)
            full = inbox.fullness(rights.party, len(envelope))
            if full:
                raise InboxFull(
                    f"the inbox of {receiver} is full: {full}",
                    hint="try again when its reader has caught up",
                )
            note = Note(
                sender=envelopes.sender_of(message),
                party=rights.party,
                thread=body.thread,
                priority=body.priority,
                size=len(envelope),
                put_ms=now_ms,
                expires_ms=register.expiry_ms(body.ttl_ms, now_ms),
            )
            key = register_key(box.inbox.prefix, body.thread, id_)
            if await self._stored.take(note.party, _weight(note)):
                raise InboxFull(
                    f"{STORED_BYTES // 2**20} MiB of this sender wait in inboxes of this mesh",
                    hint="try again when their readers have caught up",
                )
            try:
                revision = await self._write(key, envelope, note, expected=0)
            except OutcomeUnknown:
                raise  # it may be stored, and counts
            except AntiphonError as problem:
                await self._stored.give_back(note.party, _weight(note))
                if isinstance(problem, LostRace):
                    return PutAnswer(id_, is_duplicate=True)  # another gate stored it
                raise
            box.inbox.apply(id_, revision, note)
            return PutAnswer(id_)

    # --- read ---------------------------------------------------------------------------------

    async def read(self, asked: Reading, *, by: str) -> list[HandedMessage]:
        """Hand out the next messages; waits for one up to `wait_ms`, and then returns none."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(asked.wait_ms, MAX_WAIT_MS) / 1000
        async with self._boxes.use(asked.address, by) as box:
            asks_first = True
            while True:
                async with self._queue.turn(by):
                    # Of many that were woken by one message, all but one find nothing.
                    handed = list[HandedMessage]()
                    if asks_first or self._left_ms(await box.inbox.ready(), asked) == 0:
                        await self._check_reader(asked.address)
                        handed = await self._hand_out(box, asked, asks_first=asks_first)
                asks_first = False
                left_s = until_s - loop.time()
                if handed or left_s <= 0:
                    return handed
                await self._wait(box, asked, left_s)

    def _left_ms(self, inbox: Inbox, asked: Reading) -> int | None:
        """How long until there may be something for this reader; None: until something changes."""
        now_ms = self._session.wall.now_ms()
        due_ms = inbox.due_ms(asked.session, now_ms, thread=asked.thread)
        return None if due_ms is None else max(due_ms - now_ms, 0)

    async def _wait(self, box: OpenInbox, asked: Reading, left_s: float) -> None:
        """Return when there may be something for this reader, or its time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                while (left_ms := self._left_ms(await box.inbox.ready(), asked)) != 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout((left_ms or LONGEST_MS) / 1000):
                            await box.inbox.changed()
        await asyncio.sleep(0)

    async def _hand_out(
        self, box: OpenInbox, asked: Reading, *, asks_first: bool
    ) -> list[HandedMessage]:
        inbox = await box.inbox.ready()
        if asks_first and asked.holding is not None:
            inbox.release_unheld(asked.session, asked.holding)
        limit = max(1, min(asked.limit, READ_AT_ONCE))
        now_ms = self._session.wall.now_ms()
        picks = inbox.take(asked.session, now_ms, limit, thread=asked.thread)
        left = {pick.entry.id for pick in picks}

        async def settle(pick: Pick) -> HandedMessage | None:
            left.discard(pick.entry.id)
            return await self._settle(box, pick, asked)

        size, chosen = 0, list[Pick]()
        try:
            for pick in picks:
                if pick.dead:  # one by one: they are counted
                    await settle(pick)
                    continue
                size += pick.entry.note.size
                if not chosen or size <= ANSWER_BYTES:
                    chosen.append(pick)
            steps = await asyncio.gather(*map(settle, chosen), return_exceptions=True)
        finally:
            box.put_back(*left)  # what does not fit, and what was not begun
        handed = [one for one in steps if isinstance(one, HandedMessage)]
        failed = [one for one in steps if isinstance(one, BaseException)]
        if failed and not handed:
            raise failed[0]
        return handed

    async def _settle(self, box: OpenInbox, pick: Pick, asked: Reading) -> HandedMessage | None:
        """Lease a message that was picked, or bury it."""
        entry = pick.entry
        try:
            if pick.dead:
                await self._bury(box, entry, pick.dead)
                return None
            return await self._lease(box, entry, asked)
        except LostRace:
            box.put_back(entry.id)
            await self._look_again(box, entry)
            return None
        except BaseException:
            box.put_back(entry.id)
            raise

    async def _lease(
        self, box: OpenInbox, entry: InboxItem, asked: Reading
    ) -> HandedMessage | None:
        key, revision = register_key(box.inbox.prefix, entry.note.thread, entry.id), entry.revision
        body = await self._body(key, revision)
        now_ms = self._session.wall.now_ms()
        lease_ms = _within_bounds(asked.lease_ms)
        note = register.leased(
            entry.note, revision, session=asked.session, now_ms=now_ms, lease_ms=lease_ms
        )
        held = await self._write(key, body, note, expected=revision)
        box.inbox.apply(entry.id, held, note)
        await box.inbox.caught_up(held)
        present = box.inbox.contents.entries.get(entry.id)
        if present is None or present.revision != held:
            return None  # another session of this reader has taken it over
        if not box.inbox.contents.is_next(present):
            # Another gate stored or gave back an earlier one of the thread.
            back = register.untaken(note)
            box.inbox.apply(entry.id, await self._write(key, body, back, expected=held), back)
            return None
        return HandedMessage(entry.id, held, note.attempts, note.lease_ms, body)

    async def _look_again(self, box: OpenInbox, entry: InboxItem) -> None:
        """The index was behind: take what the store has."""
        key = register_key(box.inbox.prefix, entry.note.thread, entry.id)
        present = await self._store.get(key)
        note = None if present is None else read_note(present.note)
        if present is None or note is None:
            box.inbox.contents.drop(entry.id)
        else:
            box.inbox.apply(entry.id, present.revision, note)

    # --- ends ---------------------------------------------------------------------------------

    async def ack(self, address: str, id_: str, revision: int = 0, *, by: str) -> None:
        """The message was handled: remove it. Again changes nothing.

        `Held` if the lease ended and the message was handed out again. Without a revision the
        reader means the message as it is now.
        """
        async with self._read_by(address, by) as box:
            entry = await self._entry(box, id_, revision)
            if entry is None:
                return
            note = register.finished(entry.note, entry.revision)
            await self._change(box, entry, note, b"")

    async def nack(
        self,
        address: str,
        id_: str,
        revision: int,
        *,
        by: str,
        delay_ms: int | None = None,
        error: str = "",
    ) -> None:
        """Give the message back: it is handed out again after a pause, or is dead."""
        async with self._read_by(address, by) as box:
            entry = await self._entry(box, id_, revision)
            if entry is None:
                return
            now_ms, chance = self._session.wall.now_ms(), self._session.entropy.random()
            note = register.given_back(
                entry.note, now_ms=now_ms, delay_ms=delay_ms, error=error, chance=chance
            )
            await self._change(box, entry, note, None)

    async def extend(
        self, address: str, id_: str, revision: int, *, by: str, lease_ms: int
    ) -> HandedMessage:
        """Its reader needs longer; the message with its new revision."""
        async with self._read_by(address, by) as box:
            entry = await self._entry(box, id_, revision)
            if entry is None:
                raise Held(f"message {id_} has ended")
            now_ms = self._session.wall.now_ms()
            note = register.extended(entry.note, now_ms=now_ms, lease_ms=_within_bounds(lease_ms))
            held = await self._change(box, entry, note, None)
            return HandedMessage(id_, held, note.attempts, note.lease_ms, b"")

    async def _entry(self, box: OpenInbox, id_: str, revision: int) -> InboxItem | None:
        """A message of the inbox at this revision; None if it is done."""
        inbox = await box.inbox.ready()
        if revision:
            await box.inbox.caught_up(revision)  # another gate may have leased it
            inbox = box.inbox.contents
        entry = inbox.entries.get(id_)
        if entry is None and id_ in inbox.done:
            return None
        if entry is None:
            raise Rejected(f"there is no message {id_} in this inbox", reason="message")
        if revision and entry.revision != revision:
            raise _handed_out_again(id_)
        return entry

    async def _change(
        self, box: OpenInbox, entry: InboxItem, note: Note, body: bytes | None
    ) -> int:
        key = register_key(box.inbox.prefix, entry.note.thread, entry.id)
        if body is None:
            body = await self._body(key, entry.revision)
        try:
            held = await self._write(key, body, note, expected=entry.revision)
        except LostRace as lost:
            await self._look_again(box, entry)
            if note.done and entry.id in box.inbox.contents.done:
                return entry.revision
            raise _handed_out_again(entry.id) from lost
        box.inbox.apply(entry.id, held, note)
        if note.done:  # a dead letter is still there, and counts until its time is over
            await self._stored.give_back(entry.note.party, _weight(entry.note))
        return held

    # --- looking ------------------------------------------------------------------------------

    async def threads(self, address: str, *, by: str) -> list[ThreadSummary]:
        """The threads of an inbox that have messages."""
        async with self._read_by(address, by) as box:
            return (await box.inbox.ready()).threads()

    async def dead(self, address: str, *, by: str, limit: int = 64) -> list[DeadLetter]:
        """The newest dead letters of an inbox, oldest first."""
        async with self._read_by(address, by) as box:
            return await self._dead.newest(box, min(limit, READ_AT_ONCE), ANSWER_BYTES)

    async def _bury(self, box: OpenInbox, entry: InboxItem, reason: str) -> None:
        """Keep it as a dead letter first, and then end it: a crash between leaves both."""
        key = register_key(box.inbox.prefix, entry.note.thread, entry.id)
        body = await self._body(key, entry.revision)
        await self._dead.add(box, entry.id, body, entry.note, reason)
        ended = register.finished(entry.note, entry.revision)
        revision = await self._write(key, b"", ended, expected=entry.revision)
        box.inbox.apply(entry.id, revision, ended)
        log.info("message_dead", id=entry.id, reason=reason, attempts=entry.note.attempts)

    # --- inside -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _read_by(self, address: str, by: str) -> AsyncIterator[OpenInbox]:
        """Its inbox, for a request of a reader. Nothing is opened for one that is refused."""
        async with self._queue.turn(by):
            await self._check_reader(address)
            async with self._boxes.use(address, by) as box:
                yield box

    async def _check_reader(self, address: str) -> None:
        node, _ = split_address(address)
        await self._control.fresh()
        if not self._control.rights(node).is_member(self._session.wall.now_ms() // 1000):
            raise Rejected(
                "this key is not on the mesh, or was revoked",
                reason="reader",
                hint="'antiphon who' shows who may do what",
            )

    async def _body(self, key: str, revision: int) -> bytes:
        known = self._bodies.get((key, revision))
        if known is not None:
            return known
        entry = await self._store.get(key)
        if entry is None or entry.revision != revision:
            raise LostRace(f"{key} is no longer at revision {revision}")
        return entry.value

    async def _write(self, key: str, body: bytes, note: Note, *, expected: int) -> int:
        """Change a register; `LostRace` if it is at another revision.

        An unknown outcome is looked up: the same note and body are this write.
        """
        text = write_note(note)
        ttl_ms = register.DONE_MS if note.done else 2 * register.RETENTION_MS
        try:
            revision = await self._store.write(
                key, body, note=text, expected=expected, ttl_ms=ttl_ms
            )
        except OutcomeUnknown:
            present = await self._store.get(key)
            if present is None or (present.note, present.value) != (text, body):
                raise
            revision = present.revision
        if not note.done:
            self._bodies.put((key, revision), body, len(body))
        return revision


def _weight(note: Note) -> int:
    return note.size + REGISTER_BYTES


def _within_bounds(lease_ms: int) -> int:
    return max(SHORTEST_LEASE_MS, min(lease_ms, register.MAX_LEASE_MS))


def _handed_out_again(id_: str) -> Held:
    return Held(f"the lease on message {id_} ended, and it was handed out again")


def _too_fast(wait_s: float) -> RateLimited:
    return RateLimited(
        "this machine sends more messages than the mesh takes from one", retry_s=wait_s
    )
