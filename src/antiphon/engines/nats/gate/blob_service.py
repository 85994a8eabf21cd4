"""The gate's blob service: stores and reads blobs for members, who cannot access any stream.

Only the gate writes: chunks as they come, and the index last, when the whole has the digest that
was promised. A member reads a blob by naming a job: one that it may read, and whose records name
the blob. Such a record must be another author's; by the member's own records, or those under its
grants, it reads only what these stored. Otherwise a member that may submit or complete a job could
read any blob of the mesh by naming it there.

A member never learns whether a blob that it offers is stored already: it sends the bytes anyway.

Bounds: transfers of one member and in all, chunks under way, the bytes of one blob, and what one
member has stored, with a fixed part for each blob. An idle transfer ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from antiphon.engines.nats.blobs import BLOB_WEIGHT, CHUNK_BYTES, Index, NatsBlobs
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.engine import NatsEngine
from antiphon.engines.nats.gate.blob_quota import BlobLimits, BlobQuota
from antiphon.engines.nats.gate.member_requests import MemberRequests, Service
from antiphon.engines.nats.gate.read_service import QUEUE, inbox_of
from antiphon.engines.nats.gate.scoped_reads import status
from antiphon.engines.nats.member import blob_protocol as words
from antiphon.engines.nats.member.blob_protocol import BlobRequest, Taken
from antiphon.errors import AntiphonError, Corrupt, Rejected, Unavailable

IDLE_S: Final = 30.0
SWEEP_S: Final = 2.0
MAX_TRANSFER_REQUEST_BYTES: Final = 1024
MAX_REFUSALS: Final = 1024  # that wait to be sent; beyond it the oldest are dropped

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


class _Put:
    """An upload under way."""

    def __init__(self, user: str, digest: str) -> None:
        self.user = user
        self.digest = digest
        self.used_s = 0.0
        self.size = 0
        self.next = 0
        self.early: dict[int, tuple[bytes, bytes]] = {}
        self.ready: asyncio.Queue[tuple[bytes, bytes] | None] = asyncio.Queue(words.WINDOW + 1)
        self.in_hand = b""
        """The reply subject for the chunk that is being stored."""
        self.failure = b""
        """The answer to later steps, once it has failed."""
        self.end_to = b""
        self.is_over = False
        self.storing: asyncio.Task[None] | None = None


class _Get:
    """A download under way."""

    def __init__(self, user: str, blob_request: BlobRequest, index: Index) -> None:
        self.user = user
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
        self._connection = engine.log.connection
        self._hearing = hearing or MemberRequests(engine.log.connection, engine.log.mesh)
        self._blobs: NatsBlobs = engine.own_blobs
        self._rights = rights
        self._limits = limits or BlobLimits()
        self._name = secrets.token_hex(8)
        self._transfers: dict[str, _Put | _Get] = {}
        self._asking: dict[str, int] = {}
        self._ledger = BlobQuota(self._blobs)
        self._refusals: deque[bytes] = deque(maxlen=MAX_REFUSALS)
        self._refusing = asyncio.Event()
        self.ready = asyncio.Event()
        """Set while it listens to members."""

    async def run(self) -> None:
        """Serve until cancelled, over reconnects."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            refusing = group.create_task(self._send_refusals())
            serve, steps = self._hearing.serve, f"{words.BLOB}.{self._name}.*.*"
            stop_transfers = serve(
                Service(words.BLOB, self._on_transfer, words.TRANSFERS_HEARD, queue=QUEUE)
            )
            stop_steps = serve(Service(steps, self._on_step, words.STEPS_HEARD))
            try:
                await self._hearing.round_trip()
                self.ready.set()
                await self._sweep()
            finally:
                self.ready.clear()
                refusing.cancel()
                stop_transfers()
                stop_steps()
                for blob_request in self._transfers.values():
                    if isinstance(blob_request, _Put) and blob_request.storing is not None:
                        blob_request.storing.cancel()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for name, blob_request in tuple(self._transfers.items()):
                if _now_s() - blob_request.used_s > IDLE_S:
                    self._drop(name)

    def _drop(self, name: str) -> None:
        blob_request = self._transfers.pop(name, None)
        if isinstance(blob_request, _Put) and blob_request.storing is not None:
            blob_request.storing.cancel()

    # --- beginnings -------------------------------------------------------------------------

    def _on_transfer(self, subject: bytes, reply: bytes, payload: bytes, _header: bytes) -> None:
        user = wire.read_subject(subject).split(".")[2]
        if not self._is_own(user, reply):
            return
        if self._asking.get(user, 0) >= self._limits.transfers_per_member:
            self._send(reply, _status(words.BUSY, "too many requests at once"))
            return
        self._asking[user] = self._asking.get(user, 0) + 1
        self._group.create_task(self._begin(user, reply, payload))

    async def _begin(self, user: str, reply: bytes, payload: bytes) -> None:
        try:
            self._send_frame(wire.pub(reply, _encode(await self._taken(user, payload))))
        except _Refused as refusal:
            self._send(reply, _status(refusal.code, refusal.message))
        except AntiphonError as error:
            self._send(reply, _status(words.FAILED, error.message))
        except Exception:  # noqa: BLE001 - one request must not end the service
            _log.exception("a member's blob transfer failed")
            self._send(reply, _status(words.FAILED, "the gate failed; its log says how"))
        finally:
            self._asking[user] -= 1
            if not self._asking[user]:
                del self._asking[user]

    async def _taken(self, user: str, payload: bytes) -> Taken:
        try:
            blob_request = _decode(payload) if len(payload) <= MAX_TRANSFER_REQUEST_BYTES else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            blob_request = None
        if blob_request is None:
            raise _Refused(words.FAILED, "the gate cannot read this request")
        if blob_request.do == "put":
            await self._require_room(user)
            return self._begin_put(user, blob_request.digest)
        index = await self._admitted(user, blob_request)
        if blob_request.do == "has":
            return Taken()
        name = self._new_transfer(user, _Get(user, blob_request, index))
        return Taken(
            gate=self._name, blob_request=name, chunks=sum(count for _, count in index.runs)
        )

    def _new_transfer(self, user: str, blob_request: _Put | _Get) -> str:
        mine = [one for one in self._transfers.values() if one.user == user]
        puts = sum(isinstance(one, _Put) for one in mine)
        if (
            len(self._transfers) >= self._limits.transfers
            or len(mine) >= self._limits.transfers_per_member
            or (isinstance(blob_request, _Put) and puts >= self._limits.puts_per_member)
        ):
            raise _Refused(words.BUSY, "too much is under way")
        name = secrets.token_hex(8)
        blob_request.used_s = _now_s()
        self._transfers[name] = blob_request
        return name

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

    async def _give(self, blob_request: _Get, number: int, reply: bytes) -> None:
        try:
            self._require_reading(blob_request.user, blob_request.blob_request)
            place = blob_request.places[number]
            chunk = await self._blobs.chunk(
                blob_request.index, place, blob_request.blob_request.digest
            )
            self._send_frame(wire.pub(reply, chunk))
            self._connection.write_out()
            await self._connection.have_room()
        except _Refused as refusal:
            self._send(reply, _status(refusal.code, refusal.message))
        except Rejected:
            self._send(reply, _status(words.ABSENT, "it was removed meanwhile"))
        except AntiphonError as error:
            self._send(reply, _status(words.FAILED, error.message))
        finally:
            blob_request.under_way -= 1

    # --- steps ------------------------------------------------------------------------------

    def _on_step(self, subject: bytes, reply: bytes, payload: bytes, _header: bytes) -> None:
        _, _, user, _, _, name, step = wire.read_subject(subject).split(".")
        blob_request = self._transfers.get(name)
        if blob_request is None or blob_request.user != user:
            if self._is_own(user, reply):
                self._send(reply, _status(words.GONE, "the gate no longer knows this transfer"))
            return
        blob_request.used_s = _now_s()
        if step == words.LEAVE:
            self._drop(name)
        elif not self._is_own(user, reply):
            return
        elif isinstance(blob_request, _Put):
            self._on_put_step(blob_request, step, reply, payload)
        else:
            self._on_get_step(blob_request, step, reply)

    def _on_get_step(self, blob_request: _Get, step: str, reply: bytes) -> None:
        number = _number(step)
        if number is None or number >= len(blob_request.places):
            self._send(reply, _status(words.ABSENT, "there is no such chunk"))
        elif blob_request.under_way >= 2 * words.WINDOW:
            self._send(reply, _status(words.BUSY, "too many chunks at once"))
        else:
            blob_request.under_way += 1
            self._group.create_task(self._give(blob_request, number, reply))

    # --- writing ----------------------------------------------------------------------------

    def _begin_put(self, user: str, digest: str) -> Taken:
        put = _Put(user, digest)
        name = self._new_transfer(user, put)
        put.storing = self._group.create_task(self._store(put))
        return Taken(gate=self._name, blob_request=name)

    def _on_put_step(self, put: _Put, step: str, reply: bytes, payload: bytes) -> None:
        if put.failure:
            self._send(reply, put.failure)
            return
        if step == words.END:
            put.end_to = reply
            if not put.is_over:
                put.is_over = True
                put.early.clear()
                put.ready.put_nowait(None)
            return
        number = _number(step)
        has_turn = put.next <= (number or 0) < put.next + words.WINDOW and not put.is_over
        has_room = 0 < len(payload) <= CHUNK_BYTES and put.ready.qsize() < words.WINDOW
        if number is None or not has_turn or not has_room:
            self._send(reply, _status(words.FAILED, "a chunk out of order"))
            return
        put.early[number] = (payload, reply)
        while put.next in put.early and put.ready.qsize() < words.WINDOW:
            put.ready.put_nowait(put.early.pop(put.next))
            put.next += 1

    async def _store(self, put: _Put) -> None:
        try:
            stays = await self._blobs.store(self._chunks(put), digest=put.digest, by=put.user)
        except _Refused as refusal:
            put.failure = _status(refusal.code, refusal.message)
        except Corrupt:
            put.failure = _status(words.CORRUPT, "other bytes than were promised")
        except AntiphonError as error:
            put.failure = _status(words.FAILED, error.message)
        except Exception:  # noqa: BLE001 - one upload must not end the service
            _log.exception("a member's upload failed")
            put.failure = _status(words.FAILED, "the gate failed; its log says how")
        else:
            if stays:
                self._ledger.add(put.user, put.size)
            if put.end_to:
                self._send_frame(wire.pub(put.end_to, b""))
            self._transfers = {name: one for name, one in self._transfers.items() if one is not put}
            return
        waiting = [put.end_to, put.in_hand, *(reply for _, reply in put.early.values())]
        put.early.clear()
        while not put.ready.empty():
            item = put.ready.get_nowait()
            waiting += [item[1]] if item is not None else []
        for reply in filter(None, waiting):
            self._send(reply, put.failure)

    async def _chunks(self, put: _Put) -> AsyncIterator[bytes]:
        """The chunks, in order; each is acknowledged when it was accepted."""
        while (item := await put.ready.get()) is not None:
            chunk, put.in_hand = item
            put.size += len(chunk)
            if put.size > self._limits.blob_bytes:
                raise _Refused(words.TOO_LARGE, _too_large(self._limits))
            await self._require_room(put.user)
            yield chunk
            self._send_frame(wire.pub(put.in_hand, b""))
            put.in_hand = b""

    async def _require_room(self, user: str) -> None:
        if not self._rights.may_store(user):
            raise _Refused(words.DENIED, "this key may neither submit nor run jobs")
        under_way = sum(
            one.size + BLOB_WEIGHT
            for one in self._transfers.values()
            if isinstance(one, _Put) and one.user == user
        )
        if await self._ledger.exceeds(user, under_way, self._limits.member_bytes):
            raise _Refused(words.TOO_LARGE, "this machine has stored all that it may")

    # --- answers ----------------------------------------------------------------------------

    def _is_own(self, user: str, reply: bytes) -> bool:
        """Answers go to the asker's own inbox only: this connection may publish anywhere."""
        return reply.startswith(inbox_of(user).encode() + b".")

    def _send(self, reply: bytes, header: bytes) -> None:
        """A status, in its turn: a member that asks faster than it reads gets no more."""
        self._refusals.append(_framed(reply, header))
        self._refusing.set()

    async def _send_refusals(self) -> None:
        while True:
            await self._refusing.wait()
            self._refusing.clear()
            while self._refusals:
                self._send_frame(self._refusals.popleft())
                with contextlib.suppress(Unavailable):
                    await self._connection.have_room()

    def _send_frame(self, frame: bytes) -> None:
        with contextlib.suppress(Unavailable):
            if self._connection.up:
                self._connection.send(frame)


class _Refused(AntiphonError):
    """The status that a member gets for an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def _status(code: int, text: str) -> bytes:
    return status(code, text).header


def _framed(reply: bytes, header: bytes) -> bytes:
    return b"HPUB %b %d %d\r\n%b\r\n" % (reply, len(header), len(header), header)


def _number(step: str) -> int | None:
    return int(step) if step.isascii() and step.isdecimal() and len(step) < 10 else None  # noqa: PLR2004


def _too_large(limits: BlobLimits) -> str:
    return f"one artifact of a member may have {limits.blob_bytes} bytes"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
