"""The mesh's log on one JetStream stream: appending by compare-and-set, and reading back.

Owns what an acknowledgement means. A write ends in a sequence, `LostRace`, `IdTaken` or
`OutcomeUnknown`; `Unavailable` only where it is certain that nothing was stored. Following is in
`follower`, queues in `pull_queue`, lanes in `lane_pages`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

import msgspec
from msgspec import Struct

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.record import subjects
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.requester import Reply, Requester
from antiphon.engines.nats.log.direct_get import MAX_BATCH, DirectGet
from antiphon.engines.nats.log.follower import Follower
from antiphon.engines.nats.log.hints import LiveHints
from antiphon.engines.nats.log.lane_pages import lane_pages, short_lanes
from antiphon.engines.nats.log.pull_queue import LOAN_S, PullQueue
from antiphon.engines.nats.log.streams import MAX_RECORD_BYTES, ApiError, Streams, log_name
from antiphon.errors import (
    AntiphonError,
    Corrupt,
    EngineDenied,
    IdTaken,
    LostRace,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)
from antiphon.ports import Append, Hints, Page, Record, Told, WorkQueue

_WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
_TOO_LARGE = frozenset({10054, 10097})
_UNDECIDED = frozenset({10077, 10158})
"""The store failed, or a twin of this write is being decided."""
_NO_RESPONDERS = 503
PROBE_TIMEOUT_S = 5.0
BATCH_FROM = 40
"""Records from which on a batch costs the server less than single writes: its fixed cost is about
10 ms, and it syncs the disk once."""
COPIED_BATCH_FROM = 16
"""The same on a log with several copies, where a batch is one entry for all of them to agree on."""
BATCH_BYTES = 1024 * 1024
BATCH_PAUSE_S = 5.0
"""After the server had no room for a batch, records go one by one for this long. Any member can
keep all batches open that the server admits; trying each time would send every record twice."""


class _PubAck(Struct, frozen=True, gc=False):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    count: int = 0
    """Of the records of a batch."""
    error: ApiError | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


class NatsLog:
    """`ports.OpLog` on JetStream."""

    def __init__(
        self,
        connection: Connection,
        requester: Requester,
        mesh: str,
        *,
        replicas: int,
        loan_s: float = LOAN_S,
    ) -> None:
        self._connection = connection
        self._requester = requester
        self._mesh = mesh
        self._replicas = replicas
        self._loan_s = loan_s
        self.stream = log_name(mesh)
        self.records = DirectGet(requester, self.stream)
        self._streams = Streams(requester)
        self._everything = f"{subjects.root(mesh)}.>"
        self._known_subject = ""
        self._held = (0, 0)
        self._batches_from_s = 0.0
        """When the server may have room for a batch again."""

    # --- writing ----------------------------------------------------------------------------

    async def append(
        self,
        subject: str,
        payload: bytes,
        *,
        message_id: str,
        expected_last: int,
        timeout_s: float = 5.0,
    ) -> int:
        """See `ports.OpLog.append`."""
        record = Append(subject, payload, message_id, expected_last)
        reply = await self._requester.write(*self._request(record), timeout_s=timeout_s)
        return await self._stored(record, reply)

    async def append_many(
        self, records: Sequence[Append], *, timeout_s: float = 5.0
    ) -> list[int | AntiphonError]:
        """See `ports.OpLog.append_many`."""
        requests: list[tuple[bytes, bytes, bytes]] = []
        found: list[int | AntiphonError | None] = []
        for record in records:
            try:
                requests.append(self._request(record))
                found.append(None)
            except Rejected as problem:
                found.append(problem)
        sent = [one for one, known in zip(records, found, strict=True) if known is None]
        if self._is_batch(sent):
            stored = await self._stored_as_batch(requests, timeout_s)
            if stored:
                left = iter(stored)
                return [next(left) if known is None else known for known in found]
        replies = iter(await self._requester.write_all(requests, timeout_s=timeout_s))
        return [
            await self._answered(record, next(replies)) if known is None else known
            for record, known in zip(records, found, strict=True)
        ]

    def _is_batch(self, records: list[Append]) -> bool:
        """Whether these records are worth a batch, and the server is likely to have room for it."""
        least = BATCH_FROM if self._replicas == 1 else COPIED_BATCH_FROM
        if len(records) < least or asyncio.get_running_loop().time() < self._batches_from_s:
            return False
        return sum(len(one.payload) for one in records) <= BATCH_BYTES

    async def _stored_as_batch(
        self, requests: list[tuple[bytes, bytes, bytes]], timeout_s: float
    ) -> list[int | AntiphonError]:
        """Store all of them in one step; empty if the engine stored none, whatever the reason.

        Then they go one by one: that tells which of them it was. Without an answer, the outcome of
        each is unknown.
        """
        batch, last = secrets.token_hex(12).encode(), len(requests)
        marked = [
            (
                subject,
                payload,
                b"%bNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b\r\n"
                % (header[:-2], batch, at, b"Nats-Batch-Commit: 1\r\n" if at == last else b""),
            )
            for at, (subject, payload, header) in enumerate(requests, start=1)
        ]
        try:
            reply = await self._requester.write_batch(marked, timeout_s=timeout_s)
        except Unavailable as problem:
            return [problem] * last
        if reply.header and wire.status_of(reply.header) == _NO_RESPONDERS:
            return []
        ack = _decode_ack(reply.payload)
        if ack.error is not None:
            if ack.error.err_code not in _WRONG_LAST_SEQUENCE:
                self._batches_from_s = asyncio.get_running_loop().time() + BATCH_PAUSE_S
            return []
        if ack.stream != self.stream or ack.count != last:
            raise Corrupt(f"of {last} records the engine stored {ack.count} in {ack.stream}")
        self._saw(ack.seq)
        return [*range(ack.seq - last + 1, ack.seq + 1)]

    async def _answered(self, record: Append, reply: Reply | AntiphonError) -> int | AntiphonError:
        if isinstance(reply, AntiphonError):
            return reply
        try:
            return await self._stored(record, reply)
        except AntiphonError as problem:
            return problem

    def _request(self, record: Append) -> tuple[bytes, bytes, bytes]:
        """Subject, payload and header of the publish that stores a record."""
        subject, payload = record.subject, record.payload
        if len(payload) > MAX_RECORD_BYTES - 1024:
            raise Rejected(f"a record of {len(payload)} bytes is too large", reason="too_large")
        if not subject.startswith(self._everything[:-1]):
            raise Rejected(f"{subject!r} is not in the log of this mesh", reason="subject")
        header = (
            b"NATS/1.0\r\nNats-Msg-Id: %b\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n"
            % (wire.check_message_id(record.message_id), record.expected_last)
        )
        return wire.check_subject(subject), payload, header

    async def _stored(self, record: Append, reply: Reply) -> int:
        """What the engine's answer to a publish means."""
        subject, payload = record.subject, record.payload
        if reply.header and wire.status_of(reply.header) == _NO_RESPONDERS:
            raise Unavailable(
                f"the engine stores no records on {subject} (no responders): nothing was stored",
                hint="the mesh's stream is missing or its leader is being elected",
            )
        ack = _decode_ack(reply.payload)
        if ack.error is not None:
            return await self._refused(ack.error, record)
        if ack.stream != self.stream:
            raise Corrupt(f"{subject} was stored in the stream {ack.stream}, not {self.stream}")
        if ack.duplicate:
            await self._check_duplicate(ack.seq, subject, payload)
        self._saw(ack.seq)
        return ack.seq

    async def _refused(self, error: ApiError, record: Append) -> int:
        """What an error answer means: nothing was stored by *this* attempt."""
        if error.err_code in _WRONG_LAST_SEQUENCE:
            # A single server looks at the sequence before the message id, so our own earlier
            # write looks like a rival's.
            earlier = await self._earlier(record)
            if earlier:
                return earlier
            raise LostRace(
                f"{record.subject} is no longer at {record.expected_last}: {error.description}"
            )
        if error.err_code in _UNDECIDED:
            raise OutcomeUnknown(f"the engine could not finish the write: {error.description}")
        if error.err_code in _TOO_LARGE:
            raise Rejected(
                f"the record is too large for the engine: {error.description}", reason="too_large"
            )
        raise Unavailable(
            f"the engine did not store the record: {error.description} ({error.err_code})"
        )

    async def _earlier(self, record: Append) -> int:
        """Where these bytes are stored under this id already; `IdTaken` if others are."""
        subject, payload, message_id = record.subject, record.payload, record.message_id
        try:
            known = await self._probe(subject, message_id)
            if known:
                await self._check_duplicate(known, subject, payload)
                return known
            # Beyond the engine's duplicate window: if it was stored with this compare-and-set,
            # it is the first record behind the one that it named.
            held = await self.records.held_after(record.expected_last, subject)
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            raise OutcomeUnknown(
                f"the race is lost, unless it was against our own earlier attempt: {error.message}"
            ) from error
        if held is None or held.record.payload != payload:
            return 0
        return held.record.seq if wire.message_id(held.header) == message_id.encode() else 0

    async def _probe(self, subject: str, message_id: str) -> int:
        """The sequence that the engine remembers for a message id, or 0.

        A publish that can never be stored: the engine answers a known id before it looks at the
        two conditions that no record of this log fulfils.
        """
        header = (
            b"NATS/1.0\r\nNats-Msg-Id: %b\r\nNats-Expected-Last-Msg-Id: %b\r\n"
            b"Nats-Rollup: sub\r\n\r\n"
            % (message_id.encode(), b"never-" + secrets.token_hex(16).encode())
        )
        reply = await self._requester.write(
            subject.encode(), b"", header, timeout_s=PROBE_TIMEOUT_S
        )
        if wire.status_of(reply.header) == _NO_RESPONDERS:
            raise Unavailable("the engine does not serve the log (no responders)")
        ack = _decode_ack(reply.payload)
        return ack.seq if ack.duplicate and ack.error is None else 0

    async def _check_duplicate(self, seq: int, subject: str, payload: bytes) -> None:
        try:
            stored = await self._certain_at(seq)
        except Unavailable as error:
            raise OutcomeUnknown(
                f"the engine holds this message id at {seq}, which could not be read back"
            ) from error
        if stored is None:
            raise OutcomeUnknown(f"the engine holds this message id at {seq}, which is not there")
        if stored.subject != subject or stored.payload != payload:
            raise IdTaken(f"the message id is already stored at {seq} with other bytes")

    # --- reading ----------------------------------------------------------------------------

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """See `ports.OpLog.read`."""
        limit = min(limit, MAX_BATCH)
        if limit <= 0:
            return Page([], more=False)
        if self._is_everything(subject):
            batch = await self.records.batch(after + 1, limit=limit)
            return self._page(batch.records, batch.pending)
        first = await self.records.batch(after + 1, limit=1, subject=wire.check_filter(subject))
        if not first.records or not first.pending or limit == 1:
            return self._page(first.records, first.pending)
        if after == 0:
            # Again from the start: there the server counts by its index, not by walking.
            wanted = min(limit, 1 + first.pending)
            batch = await self.records.batch(1, limit=wanted, subject=subject)
            return self._page(batch.records, batch.pending)
        wanted = min(limit - 1, first.pending)
        rest = await self.records.batch(first.records[0].seq + 1, limit=wanted, subject=subject)
        return self._page(first.records + rest.records, rest.pending)

    def read_lane(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Record]]:
        """See `ports.OpLog.read_lane`."""
        checked = tuple(dict.fromkeys(filters))
        for one in checked:
            wire.check_filter(one)
        return lane_pages(self, checked, after=after)

    async def read_lanes(self, lanes: Sequence[Sequence[str]]) -> list[list[Record] | None]:
        """See `ports.OpLog.read_lanes`."""
        for one in (subject for lane in lanes for subject in lane):
            wire.check_subject(one)
        self._connection.require_up()
        return await short_lanes(self.records, lanes)

    async def newest(self, subjects: Sequence[str]) -> list[Record]:
        """See `ports.OpLog.newest`."""
        for one in subjects:
            wire.check_subject(one)
        self._connection.require_up()
        found = await self.records.newest_of_each(tuple(subjects)) if subjects else []
        if found is None:  # together they are too large for one answer
            each = [await self.records.newest_of_each((one,)) for one in subjects]
            found = [held for heads in each for held in heads or ()]
        return [held.record for held in found]

    def hints(self, told: Told) -> AbstractContextManager[Hints]:
        """See `ports.OpLog.hints`."""
        return LiveHints(self._connection, told, lambda pattern: (pattern,))

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """See `ports.OpLog.confirm`."""
        wire.check_filter(subject)
        self._connection.require_up()
        await self._require_held(upto)
        found: list[Record] = []
        at = after
        while at < upto:
            record = await self.next_certain(at, subject)
            if record is None or record.seq > upto:
                break
            found.append(record)
            at = record.seq
        return found

    async def fetch(self, seq: int, *, newest_on: str = "") -> Record | None:
        """See `ports.OpLog.fetch`."""
        self._connection.require_up()
        if newest_on:
            for held in await self.records.newest_of_each((wire.check_filter(newest_on),)) or ():
                if held.record.seq == seq:
                    return held.record
        return await self.records.at(seq) if seq > 0 else None

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """See `ports.OpLog.fetch_many`."""
        self._connection.require_up()
        found = await asyncio.gather(*map(self._certain_at, seqs))
        return [record for record in found if record is not None]

    async def last(self) -> Record | None:
        """See `ports.OpLog.last`."""
        newest = await self.newest_seq()
        if not newest:
            return None
        record = await self.records.at(newest)
        if record is not None:
            return record
        # The newest record was purged: the one before it takes a walk over all subjects.
        held = await self.records.last_on(self._everything)
        return None if held is None else held.record

    async def newest_seq(self) -> int:
        """The newest sequence given out, purged or not; 0 on a new log."""
        for _ in range(3):
            if not self._known_subject:
                first = await self.records.after(0, self._everything)
                if first is None:
                    return await self._newest_of_nothing()
                self._known_subject = first.subject
            newest = await self.records.newest_seq(self._known_subject)
            if newest:
                self._saw(newest)
                return newest
            self._known_subject = ""  # purged since
        raise Unavailable("the log is being purged faster than it can be read")

    async def _newest_of_nothing(self) -> int:
        """Of a log without records only the stream's administration knows where it was.

        Members may not ask it; for them such a log is a new one. A mesh in use is never empty:
        its genesis is not purged.
        """
        try:
            info = await self._streams.info(self.stream)
        except EngineDenied:
            return 0
        return 0 if info is None else int(info["state"]["last_seq"])

    def follow(
        self, after: int, *, subject: str = ">", max_batch: int = 512
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Record]]]:
        """See `ports.OpLog.follow`."""
        wanted = "" if self._is_everything(subject) else wire.check_filter(subject)
        return Follower(self, self._connection, after=after, subject=wanted, max_batch=max_batch)

    def work(self, subject: str, *, name: str) -> AbstractAsyncContextManager[WorkQueue]:
        """See `ports.OpLog.work`."""
        return PullQueue(
            self._connection,
            self._streams,
            stream=self.stream,
            name=name,
            subject=wire.check_filter(subject),
            loan_s=self._loan_s,
        )

    async def purge(self, subject: str, *, upto: int) -> int:
        """See `ports.OpLog.purge`."""
        if upto <= 0:
            return 0
        wanted = self._everything if self._is_everything(subject) else wire.check_filter(subject)
        return await self._streams.purge(self.stream, subject=wanted, upto=upto)

    async def require(self) -> None:
        """`Unavailable` if there is no log, or if it cannot be read."""
        await self.fetch(1)

    # --- what is certain --------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """What it is read and written through."""
        return self._connection

    @property
    def requester(self) -> Requester:
        """Its requester."""
        return self._requester

    @property
    def mesh(self) -> str:
        """The mesh's id."""
        return self._mesh

    @property
    def reads(self) -> tuple[str, ...]:
        """See `ports.OpLog.reads`."""
        return WHOLE

    @property
    def is_replicated(self) -> bool:
        """Whether a direct get may be answered by a copy that lags behind."""
        return self._replicas > 1

    async def next_certain(self, after: int, subject: str) -> Record | None:
        """The first matching record above `after`, from the one copy or from the leader."""
        if self.is_replicated:
            return await self.records.leader_after(after, subject)
        return await self.records.after(after, subject)

    async def reaches(self, seq: int) -> bool:
        """Whether the one copy, or the leader, holds that sequence or a later one."""
        return await self.next_certain(seq - 1, self._everything) is not None

    async def _certain_at(self, seq: int) -> Record | None:
        record = await self.records.at(seq)
        if record is None and self.is_replicated:
            return await self.records.leader_at(seq)
        return record

    async def _require_held(self, upto: int) -> None:
        """`Unavailable` unless the copy that will answer is known to hold `upto`."""
        if self._held_in_this_epoch() >= upto and not self.is_replicated:
            return
        # `upto` itself may have been purged; any later record proves as much.
        if await self.next_certain(upto - 1, self._everything) is not None:
            self._saw(upto)
            return
        if self.is_replicated or await self.newest_seq() < upto:
            raise Unavailable(f"the engine does not show sequence {upto} yet")

    def _held_in_this_epoch(self) -> int:
        epoch, seq = self._held
        return seq if epoch == self._connection.epoch else 0

    def _saw(self, seq: int) -> None:
        epoch, known = self._held
        if epoch != self._connection.epoch or seq > known:
            self._held = (self._connection.epoch, seq)

    def _page(self, records: list[Record], pending: int) -> Page:
        if records:
            self._saw(records[-1].seq)
            self._known_subject = self._known_subject or records[-1].subject
        return Page(records, more=pending > 0 and bool(records))

    def _is_everything(self, subject: str) -> bool:
        return subject in {">", self._everything}
