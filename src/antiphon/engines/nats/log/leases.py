"""Leases: keys with an owner, a revision and an expiry, on a stream with a TTL per message.

One message per key; its sequence is the revision, so a revision never repeats, neither after an
expiry nor after a release. Every change is a compare-and-set on the key's own subject. An
expired key is simply gone; a released one leaves a marker for a second.

The bucket's age comes from a first record in it, which every member can read, instead of from
the stream's administration, which members cannot (spec §3).

Ends are whole seconds at the engine and at least one: `ttl_ms` is rounded up.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.requester import Requester
from antiphon.engines.nats.log.direct_get import DirectGet
from antiphon.engines.nats.log.newest_records import Held as HeldRecord
from antiphon.engines.nats.log.streams import ApiError, Streams, leases_config, leases_name
from antiphon.errors import Held, LostRace, Rejected, Unavailable
from antiphon.ports import LeaseEntry

WRITE_TIMEOUT_S = 5.0
_FREED = b"\r\nAntiphon-Freed: 1\r\n"
_WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
_ATTEMPTS = 4


class _PubAck(Struct, frozen=True, gc=False):
    seq: int = 0
    error: ApiError | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


class NatsLeases:
    """`ports.Leases` on JetStream."""

    def __init__(
        self, connection: Connection, requester: Requester, mesh: str, *, replicas: int
    ) -> None:
        self._connection = connection
        self._requester = requester
        self._mesh = mesh
        self._replicas = replicas
        self._records = DirectGet(requester, leases_name(mesh))
        self._streams = Streams(requester)
        self._prefix = f"apl.{mesh}.key."
        self._birth = f"apl.{mesh}.birth"
        self._created = (0, 0)
        self._opening = asyncio.Lock()

    async def create(self, key: str, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """See `ports.Leases.create`."""
        created_ns = await self._open()
        expected = 0
        for _ in range(_ATTEMPTS):
            try:
                seq = await self._write(self._subject(key), value, expected, ttl_ms)
            except LostRace as error:
                present = await self._read(key)
                if present is not None and not _is_freed(present):
                    raise Held(f"{key} is held") from error
                # Free after all: released, or it ended while we looked.
                expected = 0 if present is None else present.record.seq
                continue
            return LeaseEntry(key, value, seq, created_ns)
        raise Held(f"{key} changes owner too fast to be taken")

    async def renew(self, entry: LeaseEntry, value: bytes, *, ttl_ms: int) -> LeaseEntry:
        """See `ports.Leases.renew`."""
        created_ns = await self._open()
        if created_ns != entry.bucket_created_ns:
            raise Held(f"{entry.key} was taken in a bucket that no longer exists")
        try:
            seq = await self._write(self._subject(entry.key), value, entry.revision, ttl_ms)
        except LostRace as error:
            raise Held(f"{entry.key} is no longer at revision {entry.revision}") from error
        return LeaseEntry(entry.key, value, seq, created_ns)

    async def release(self, entry: LeaseEntry) -> None:
        """See `ports.Leases.release`."""
        if await self._open() != entry.bucket_created_ns:
            return
        try:
            await self._write(self._subject(entry.key), b"", entry.revision, 1000, freed=True)
        except LostRace:
            return

    async def get(self, key: str) -> LeaseEntry | None:
        """See `ports.Leases.get`."""
        created_ns = await self._open()
        present = await self._read(key)
        if present is None or _is_freed(present):
            return None
        return self._entry(present, created_ns)

    # --- inside -----------------------------------------------------------------------------

    async def _open(self) -> int:
        """Create the bucket if it is missing; returns when it was created."""
        epoch, created_ns = self._created
        if epoch == self._connection.epoch:
            return created_ns
        async with self._opening:
            epoch, created_ns = self._created
            if epoch == self._connection.epoch:
                return created_ns
            epoch = self._connection.epoch
            try:
                birth = await self._records.last_on(self._birth)
            except Unavailable:
                self._connection.require_up()
                await self._streams.ensure(leases_config(self._mesh, replicas=self._replicas))
                birth = None
            if birth is None:
                birth = await self._be_born()
            self._created = (epoch, birth.record.stamp_ns)
            return birth.record.stamp_ns

    async def _be_born(self) -> HeldRecord:
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(LostRace):  # another node was first: that one will do
                await self._write(self._birth.encode(), b"", 0, 0)
            birth = await self._records.last_on(self._birth)
            if birth is not None:
                return birth
            await asyncio.sleep(0.05)  # a copy that lags
        raise Unavailable("the lease bucket does not show its first record yet")

    async def _write(
        self, subject: bytes, value: bytes, expected: int, ttl_ms: int, *, freed: bool = False
    ) -> int:
        header = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n" % expected
        if ttl_ms:
            header += b"Nats-TTL: %ds\r\n" % max(1, -(-ttl_ms // 1000))
        if freed:
            header += _FREED[2:]
        reply = await self._requester.write(
            subject, value, header + b"\r\n", timeout_s=WRITE_TIMEOUT_S
        )
        if wire.status_of(reply.header):
            raise Unavailable(
                "the engine does not serve the leases (no responders): nothing was stored"
            )
        ack = _decode_ack(reply.payload)
        if ack.error is None:
            return ack.seq
        if ack.error.err_code in _WRONG_LAST_SEQUENCE:
            raise LostRace(ack.error.description)
        raise Unavailable(f"the engine did not store the lease: {ack.error.description}")

    async def _read(self, key: str) -> HeldRecord | None:
        return await self._records.last_on(self._subject(key).decode())

    def _subject(self, key: str) -> bytes:
        if not key or key.startswith(".") or key.endswith(".") or ".." in key:
            raise Rejected(f"{key!r} is not a key", reason="key")
        return wire.check_subject(self._prefix + key)

    def _entry(self, held: HeldRecord, created_ns: int) -> LeaseEntry:
        key = held.record.subject[len(self._prefix) :]
        return LeaseEntry(key, held.record.payload, held.record.seq, created_ns)


def _is_freed(held: HeldRecord) -> bool:
    return _FREED in held.header
