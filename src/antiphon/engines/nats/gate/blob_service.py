"""The gate's blob service: stores and reads blobs for members, who cannot access any stream.

Only the gate writes: chunks as they come, and the index last, when the whole has the digest that
was promised. A member reads a blob by naming a job: one that it may read, and whose records name
the blob. Such a record must be another author's; by the member's own records, or those under its
grants, it reads only what these stored. Otherwise a member that may submit or complete a job could
read any blob of the mesh by naming it there.

A member never learns whether a blob that it offers is stored already: it sends the bytes anyway.

Bounds, besides those of every service (`request_guard`): transfers of one party and in all, chunks
under way, the bytes of one blob, and what one party has stored, with a fixed part for each blob. An
idle transfer ends.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from antiphon.decoding import UNREADABLE
from antiphon.engines.nats.blobs import BLOB_WEIGHT, CHUNK_BYTES, Index, NatsBlobs
from antiphon.engines.nats.connection.requester import Reply
from antiphon.engines.nats.engine import NatsEngine
from antiphon.engines.nats.gate.blob_quota import BlobLimits, BlobQuota
from antiphon.engines.nats.gate.member_requests import MemberRequests
from antiphon.engines.nats.gate.request_guard import Limits, MemberRequest, Service
from antiphon.engines.nats.gate.scoped_reads import status
from antiphon.engines.nats.member import blob_protocol as words
from antiphon.engines.nats.member.blob_protocol import BlobRequest, Taken
from antiphon.errors import AntiphonError, Corrupt, RateLimited, Rejected

IDLE_S: Final = 30.0
SWEEP_S: Final = 2.0
MAX_TRANSFER_REQUEST_BYTES: Final = 1024
BEGIN_WITHIN_S: Final = 30.0
STEP_WITHIN_S: Final = 60.0
"""The last step waits until everything is stored."""

Vouching: TypeAlias = Literal["others"] | frozenset[str]
"""`others`: another author's records name the blob. Otherwise the users one of whom stored it."""

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BlobRequest).decode


class Rights(Protocol):
    """What members may read and store."""

    def may_read(self, user: str, kind: str, job_id: str) -> bool:
        """Whether this job of this kind may be read, or whatever else has that name."""

    def may_store(self, user: str) -> bool:
        """Whether anything may be stored."""

    async def vouches(self, user: str, kind: str, job_id: str, digest: str) -> Vouching:
        """Whose accepted records on a job name the blob, as seen from this user."""


class _Chunk:
    """A chunk on its way into the store; `stored` ends when it was accepted."""

    __slots__ = ("data", "stored")

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.stored: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def end(self, failure: AntiphonError | None = None) -> None:
        if self.stored.done():
            return
        if failure is None:
            self.stored.set_result(b"")
        else:
            self.stored.set_exception(failure)
            self.stored.exception()  # nobody may wait for it


class _Put:
    """An upload under way."""

    def __init__(self, asked: MemberRequest, digest: str) -> None:
        self.user, self.party = asked.user, asked.party
        self.digest = digest
        self.used_s = 0.0
        self.size = 0
        self.next = 0
        self.early: dict[int, _Chunk] = {}
        self.ready: asyncio.Queue[_Chunk] = asyncio.Queue(words.WINDOW + 1)
        self.in_hand: _Chunk | None = None
        self.failure: AntiphonError | None = None
        """The answer to later steps, once it has failed."""
        self.last = _Chunk()
        """Has no data: everything before it is the blob."""
        self.is_over = False
        self.storing: asyncio.Task[None] | None = None

    async def take(self, number: int | None, data: bytes) -> bytes:
        """A chunk that came; returns when it was accepted."""
        has_turn = self.next <= (number or 0) < self.next + words.WINDOW and not self.is_over
        has_room = 0 < len(data) <= CHUNK_BYTES and self.ready.qsize() < words.WINDOW
        if number is None or number in self.early or not has_turn or not has_room:
            raise _Refused(words.FAILED, "a chunk out of order")
        chunk = self.early[number] = _Chunk(data)
        while self.next in self.early and self.ready.qsize() < words.WINDOW:
            self.ready.put_nowait(self.early.pop(self.next))
            self.next += 1
        return await chunk.stored

    async def finish(self) -> bytes:
        """No chunk comes after those that came; returns when all is stored."""
        if not self.is_over:
            self.is_over = True
            self._end(self.early.values(), _Refused(words.FAILED, "a chunk after the end"))
            self.early.clear()
            self.ready.put_nowait(self.last)
        return await asyncio.shield(self.last.stored)

    def fail(self, failure: AntiphonError) -> None:
        """Nothing more is stored; whoever waits is told why."""
        self.failure = failure
        waiting = [self.last, *self.early.values(), *([self.in_hand] if self.in_hand else [])]
        self.early.clear()
        while not self.ready.empty():
            waiting.append(self.ready.get_nowait())
        self._end(waiting, failure)

    def _end(self, chunks: Iterable[_Chunk], failure: AntiphonError) -> None:
        for chunk in chunks:
            chunk.end(failure)


class _Get:
    """A download under way."""

    def __init__(self, asked: MemberRequest, blob_request: BlobRequest, index: Index) -> None:
        self.user, self.party = asked.user, asked.party
        self.blob_request = blob_request
        self.index = index
        self.places = index.sequences()
        self.used_s = 0.0
        self.under_way = 0


class BlobService:
    """Serves one mesh's members. `engine` must have all permissions."""

    def __init__(
        self,
        engine: NatsEngine,
        rights: Rights,
        *,
        limits: BlobLimits | None = None,
        hearing: MemberRequests | None = None,
    ) -> None:
        self._hearing = hearing or MemberRequests(engine.log.connection, engine.log.mesh)
        self._blobs: NatsBlobs = engine.own_blobs
        self._rights = rights
        self._limits = limits or BlobLimits()
        self._name = secrets.token_hex(8)
        self._transfers: dict[str, _Put | _Get] = {}
        self._ledger = BlobQuota(self._blobs, self._hearing.guard.party_of)
        self.ready = asyncio.Event()
        """Set while it listens to members."""

    async def run(self) -> None:
        """Serve until cancelled, over reconnects."""
        async with asyncio.TaskGroup() as group, self._hearing.serving(*self._services()):
            self._group = group
            self.ready.set()
            try:
                await self._sweep()
            finally:
                self.ready.clear()
                for name in tuple(self._transfers):
                    self._drop(name)

    def _services(self) -> tuple[Service, Service]:
        most, chunks = self._limits, 2 * words.WINDOW
        begin = Limits(
            room="transfers",
            heard=words.TRANSFERS_HEARD,
            of_party=most.transfers_per_member,
            in_all=8 * most.transfers,
            request_bytes=MAX_TRANSFER_REQUEST_BYTES,
            seconds=BEGIN_WITHIN_S,
        )
        step = Limits(
            room="chunks",
            heard=words.STEPS_HEARD,
            of_party=chunks * most.transfers_per_member,
            in_all=chunks * most.transfers,
            request_bytes=CHUNK_BYTES,
            seconds=STEP_WITHIN_S,
        )
        steps = f"{words.BLOB}.{self._name}.*.*"
        return (
            Service(verbs=(words.BLOB,), answer=self._begin, told=_told, limits=begin),
            Service(  # a transfer is this gate's, and who leaves it waits for no answer
                verbs=(steps,),
                answer=self._step,
                told=_told,
                limits=step,
                is_silent=True,
                queue="",
            ),
        )

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for name, transfer in tuple(self._transfers.items()):
                if _now_s() - transfer.used_s > IDLE_S:
                    self._drop(name)

    def _drop(self, name: str) -> None:
        transfer = self._transfers.pop(name, None)
        if isinstance(transfer, _Put) and transfer.storing is not None:
            transfer.storing.cancel()
            transfer.fail(_gone())

    # --- beginnings -------------------------------------------------------------------------

    async def _begin(self, asked: MemberRequest) -> bytes:
        try:
            blob_request = _decode(asked.payload)
        except UNREADABLE as problem:
            raise _Refused(words.FAILED, "the gate cannot read this request") from problem
        if blob_request.do == "put":
            put = _Put(asked, blob_request.digest)
            await self._require_room(put)
            name = self._new_transfer(put)
            put.storing = self._group.create_task(self._store(name, put))
            return _encode(Taken(gate=self._name, blob_request=name))
        index = await self._admitted(asked.user, blob_request)
        if blob_request.do == "has":
            return _encode(Taken())
        name = self._new_transfer(_Get(asked, blob_request, index))
        chunks = sum(count for _, count in index.runs)
        return _encode(Taken(gate=self._name, blob_request=name, chunks=chunks))

    def _new_transfer(self, transfer: _Put | _Get) -> str:
        mine = [one for one in self._transfers.values() if one.party == transfer.party]
        puts = sum(isinstance(one, _Put) for one in mine)
        if (
            len(self._transfers) >= self._limits.transfers
            or len(mine) >= self._limits.transfers_per_member
            or (isinstance(transfer, _Put) and puts >= self._limits.puts_per_member)
        ):
            raise _Refused(words.BUSY, "too much is under way")
        name = secrets.token_hex(8)
        transfer.used_s = _now_s()
        self._transfers[name] = transfer
        return name

    # --- steps ------------------------------------------------------------------------------

    async def _step(self, asked: MemberRequest) -> bytes:
        *_, name, step = asked.subject.split(".")
        transfer = self._transfers.get(name)
        if transfer is None or transfer.user != asked.user:
            raise _gone()
        transfer.used_s = _now_s()
        if step == words.LEAVE:
            self._drop(name)
            return b""
        if isinstance(transfer, _Get):
            return await self._chunk(transfer, _number(step))
        if transfer.failure is not None:
            raise transfer.failure
        if step == words.END:
            return await transfer.finish()
        return await transfer.take(_number(step), asked.payload)

    # --- reading ----------------------------------------------------------------------------

    async def _admitted(self, user: str, blob_request: BlobRequest) -> Index:
        """Where the blob is, if this user may read it. Missing and not permitted look alike."""
        self._require_reading(user, blob_request)
        vouching = await self._rights.vouches(
            user, blob_request.kind, blob_request.job, blob_request.digest
        )
        index = await self._blobs.find(blob_request.digest) if vouching else None
        if index is not None and vouching != "others" and index.by not in vouching:
            index = None
        if index is None:
            raise _Refused(words.ABSENT, "no such blob for this job")
        return index

    def _require_reading(self, user: str, asked: BlobRequest) -> None:
        if not asked.kind or not self._rights.may_read(user, asked.kind, asked.job):
            raise _Refused(words.DENIED, "this key may not read that job")

    async def _chunk(self, get: _Get, number: int | None) -> bytes:
        if number is None or number >= len(get.places):
            raise _Refused(words.ABSENT, "there is no such chunk")
        if get.under_way >= 2 * words.WINDOW:
            raise _Refused(words.BUSY, "too many chunks at once")
        self._require_reading(get.user, get.blob_request)
        get.under_way += 1
        try:
            return await self._blobs.chunk(get.index, get.places[number], get.blob_request.digest)
        except Rejected as gone:
            raise _Refused(words.ABSENT, "it was removed meanwhile") from gone
        finally:
            get.under_way -= 1

    # --- writing ----------------------------------------------------------------------------

    async def _store(self, name: str, put: _Put) -> None:
        try:
            stays = await self._blobs.store(self._chunks(put), digest=put.digest, by=put.user)
        except AntiphonError as error:
            put.fail(error)
        except Exception:  # noqa: BLE001 - one upload must not end the service
            _log.exception("an upload of %s failed", put.user)
            put.fail(_Refused(words.FAILED, "the gate failed; its log says how"))
        else:
            if stays:
                self._ledger.add(put.party, put.size)
            self._transfers.pop(name, None)
            put.last.end()

    async def _chunks(self, put: _Put) -> AsyncIterator[bytes]:
        """The chunks, in order; each is acknowledged when it was accepted."""
        while (chunk := await put.ready.get()) is not put.last:
            put.in_hand = chunk
            put.size += len(chunk.data)
            if put.size > self._limits.blob_bytes:
                most = self._limits.blob_bytes
                raise _Refused(words.TOO_LARGE, f"one artifact of a member may have {most} bytes")
            await self._require_room(put)
            yield chunk.data
            chunk.end()

    async def _require_room(self, put: _Put) -> None:
        if not self._rights.may_store(put.user):
            raise _Refused(words.DENIED, "this key may neither submit nor run jobs")
        under_way = sum(
            one.size + BLOB_WEIGHT
            for one in self._transfers.values()
            if isinstance(one, _Put) and one.party == put.party
        )
        if await self._ledger.exceeds(put.party, under_way, self._limits.member_bytes):
            raise _Refused(words.TOO_LARGE, "this machine has stored all that it may")


class _Refused(AntiphonError):
    """The status that a member gets for an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def _gone() -> _Refused:
    return _Refused(words.GONE, "the gate no longer knows this transfer")


def _told(error: AntiphonError) -> list[Reply]:
    match error:
        case _Refused():
            return [status(error.code, error.message)]
        case Corrupt():
            return [status(words.CORRUPT, "other bytes than were promised")]
        case RateLimited():
            return [status(words.BUSY, error.message)]
        case _:
            return [status(words.FAILED, error.message)]


def _number(step: str) -> int | None:
    return int(step) if step.isascii() and step.isdecimal() and len(step) < 10 else None  # noqa: PLR2004


def _now_s() -> float:
    return asyncio.get_running_loop().time()
