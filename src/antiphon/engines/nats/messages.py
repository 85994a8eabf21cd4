"""Registers of messages on JetStream: one subject per message, and its newest version only.

A register's sequence is its revision. Every write is a compare-and-set on the register's own
subject; the note travels in a header, so that the server can tell watchers of a write without its
body (`messages_config`). The stream is made on first use. Members cannot reach it: their account
imports none of its subjects (`accounts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.gate_subjects import gate_subject
from antiphon.engines.nats.connection.requester import Requester
from antiphon.engines.nats.log.direct_get import NO_RESPONDERS, DirectGet
from antiphon.engines.nats.log.newest_records import Held as HeldRecord
from antiphon.engines.nats.log.streams import ApiError, Streams, messages_config, messages_name
from antiphon.engines.nats.message_notes import HeaderPages
from antiphon.errors import LostRace, Rejected, Unavailable
from antiphon.ports import MessageEntry, MessageNote, MessageTold

WRITE_TIMEOUT_S = 5.0
SMALL_BYTES = 128 * 1024
"""Registers of which there are no more than this are read whole: that is one request."""
MAX_NOTE_BYTES = 4096
_NOTE = b"\r\nAntiphon-Note: "
_WRONG_LAST_SEQUENCE = frozenset({10071, 10164})


class _PubAck(Struct, frozen=True, gc=False):
    seq: int = 0
    error: ApiError | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


class NatsMessages:
    """`ports.MessageStore` on JetStream."""

    def __init__(
        self, connection: Connection, requester: Requester, mesh: str, *, replicas: int
    ) -> None:
        self._connection = connection
        self._requester = requester
        self._config = messages_config(mesh, replicas=replicas)
        self._records = DirectGet(requester, messages_name(mesh))
        self._streams = Streams(requester)
        self._headers = HeaderPages(connection, self._streams, messages_name(mesh))
        self._prefix = f"apm.{mesh}."
        self._notices = f"apn.{mesh}."
        self._is_open = False
        self._opening = asyncio.Lock()

    async def write(
        self, key: str, value: bytes, *, note: bytes, expected: int, ttl_ms: int = 0
    ) -> int:
        """See `ports.MessageStore.write`."""
        subject = self._subject(key)
        if len(note) > MAX_NOTE_BYTES or b"\r" in note or b"\n" in note:
            raise Rejected("a note has one line of at most 4 KiB", reason="note")
        await self.open()
        header = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d" % expected
        if ttl_ms:
            header += b"\r\nNats-TTL: %ds" % max(1, -(-ttl_ms // 1000))
        header += _NOTE + note + b"\r\n\r\n"
        reply = await self._requester.write(subject, value, header, timeout_s=WRITE_TIMEOUT_S)
        if wire.status_of(reply.header):
            self._is_open = False
            raise Unavailable("the engine does not serve messages now: nothing was stored")
        ack = _decode_ack(reply.payload)
        if ack.error is None:
            return ack.seq
        if ack.error.err_code in _WRONG_LAST_SEQUENCE:
            raise LostRace(ack.error.description)
        raise Unavailable(f"the engine did not store the message: {ack.error.description}")

    async def get(self, key: str) -> MessageEntry | None:
        """See `ports.MessageStore.get`."""
        subject = self._subject(key).decode()
        await self.open()
        held = await self._records.last_on(subject)
        return None if held is None else self._entry(held)

    async def list(
        self, prefix: str, *, after: int = 0, limit: int = 512
    ) -> tuple[list[MessageNote], bool]:
        """See `ports.MessageStore.list`."""
        stem, start = f"{self._prefix}{prefix}.>", len(self._prefix)
        wire.check_filter(stem)
        await self.open()
        if not after:
            batch = await self._records.batch_with_headers(
                1, limit=limit, subject=stem, max_bytes=SMALL_BYTES
            )
            pairs = zip(batch.records, batch.headers, strict=True)
            found = [
                MessageNote(record.subject[start:], record.seq, _note_in(header))
                for record, header in pairs
            ]
            return found, bool(found and batch.pending)
        headers, has_more = await self._headers.page(stem, after + 1, limit)
        return [
            MessageNote(one[start:], seq, _note_in(text)) for one, seq, text in headers
        ], has_more

    @contextmanager
    def watch(self, prefix: str, told: MessageTold) -> Iterator[None]:
        """See `ports.MessageStore.watch`."""
        start = len(self._notices)

        def on_notice(subject: bytes, reply: bytes, _payload: bytes, header: bytes) -> None:
            revision = wire.header_int(header, b"Nats-Sequence")
            if revision and not reply:
                told(wire.read_subject(subject)[start:], revision, _note_in(header))

        def on_state(is_up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
            if is_up:
                told("", 0, b"")

        listener = self._connection.listen(f"{self._notices}{prefix}.>", on_notice)
        undo = self._connection.watch_state(on_state)
        try:
            yield
        finally:
            undo()
            self._connection.unlisten(listener)

    # --- inside -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Make the stream if it is missing."""
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                self._connection.require_up()
                await self._streams.ensure(self._config)
                self._is_open = True

    def _subject(self, key: str) -> bytes:
        if not all(key.split(".")):
            raise Rejected(f"{key!r} is not a key", reason="key")
        return wire.check_subject(self._prefix + key)

    def _entry(self, held: HeldRecord) -> MessageEntry:
        record = held.record
        key = record.subject[len(self._prefix) :]
        return MessageEntry(key, record.seq, _note_in(held.header), record.payload)


class MemberGateLine:
    """`ports.GateLine`: requests on the subjects where only this user may publish."""

    def __init__(self, connection: Connection, requester: Requester, mesh: str, user: str) -> None:
        self._connection = connection
        self._requester = requester
        self._mesh = mesh
        self.user = user

    async def ask(self, verb: str, payload: bytes, *, timeout_s: float) -> bytes:
        """See `ports.GateLine.ask`."""
        self._connection.require_up()
        subject = gate_subject(self._mesh, self.user, verb).encode()
        reply = await self._requester.request(subject, payload, timeout_s=timeout_s, is_write=True)
        if wire.status_of(reply.header) == NO_RESPONDERS:
            raise Unavailable(
                "the mesh's gate does not listen now: nothing was stored",
                hint="is 'antiphon up' running on the machine that hosts the mesh?",
            )
        return reply.payload


def _note_in(header: bytes) -> bytes:
    at = header.find(_NOTE)
    if at < 0:
        return b""
    start = at + len(_NOTE)
    return header[start : header.find(b"\r\n", start)]
