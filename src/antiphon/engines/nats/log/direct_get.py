"""Single and batched reads of one stream by direct get, with their server-side traps avoided.

Direct gets hold the stream's read lock, and a writer waits for it. So a read must never make
the server scan (nats-server 2.15, `filestore.go`):

- a batch looks for one match more than the last one: never ask for more than there are;
- a batch counts what is pending first, and from the middle of the log that walks blocks: a
  filtered batch starts at the first sequence, where the subject index answers at once;
- `last_by_subj` with a wildcard walks every subject: the newest sequence comes from the end
  marker of a `multi_last` on one known subject instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.requester import Batch, Reply, Requester
from antiphon.engines.nats.connection.stamps import parse_rfc3339_ns
from antiphon.engines.nats.log.newest_records import Held, NewestRecords
from antiphon.engines.nats.log.streams import ApiFailure, check_api
from antiphon.errors import Corrupt, Unavailable
from antiphon.ports import Record

READ_TIMEOUT_S = 10.0
MAX_BATCH = 4096
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Far above the size of a page of ordinary records; a hostile page of large ones is cut here."""
NO_RESPONDERS = 503
NOT_FOUND = 404
_OK, _TOO_MANY = 204, 413
_NO_MESSAGE = 10037


class _StoredMessage(Struct, frozen=True):
    subject: str
    seq: int
    time: str
    data: bytes = b""


class _MessageAnswer(Struct, frozen=True):
    message: _StoredMessage


_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(_MessageAnswer).decode


class DirectGet:
    """Reads from one stream."""

    def __init__(self, requester: Requester, stream: str) -> None:
        self._requester = requester
        self.stream = stream
        self._direct = f"$JS.API.DIRECT.GET.{stream}".encode()
        self._leader = f"$JS.API.STREAM.MSG.GET.{stream}".encode()
        self._heads = NewestRecords(self._multi_last)

    # --- one --------------------------------------------------------------------------------

    async def at(self, seq: int) -> Record | None:
        """The record with that sequence."""
        held = await self.held_at(seq)
        return None if held is None else held.record

    async def held_at(self, seq: int) -> Held | None:
        """The same with its headers."""
        return self._one(await self._get(b'{"seq":%d}' % seq))

    async def held_at_each(self, seqs: Sequence[int]) -> dict[int, Held]:
        """What is at these sequences, with its headers: sent together."""
        requests = [(self._direct, b'{"seq":%d}' % seq) for seq in seqs]
        replies = await self._requester.request_all(requests, timeout_s=READ_TIMEOUT_S)
        found = (self._one(reply) for reply in replies)
        return {held.record.seq: held for held in found if held is not None}

    async def after(self, seq: int, subject: str) -> Record | None:
        """The first matching record above `seq`; not counted, so cheap near the end."""
        held = await self.held_after(seq, subject)
        return None if held is None else held.record

    async def held_after(self, seq: int, subject: str) -> Held | None:
        """The same with its headers."""
        return self._one(await self._get(_encode({"seq": seq + 1, "next_by_subj": subject})))

    async def last_on(self, subject: str) -> Held | None:
        """The newest record on one literal subject."""
        return self._one(await self._get(_encode({"last_by_subj": subject})))

    async def leader_at(self, seq: int) -> Record | None:
        """The record with that sequence, from the stream's leader."""
        return await self._ask_leader({"seq": seq})

    async def leader_after(self, seq: int, subject: str) -> Record | None:
        """The first matching record above `seq`, from the stream's leader."""
        return await self._ask_leader({"seq": seq + 1, "next_by_subj": subject})

    # --- many -------------------------------------------------------------------------------

    async def batch(self, first: int, *, limit: int, subject: str = "") -> Batch:
        """Up to `limit` records from `first` on, with the number still behind them."""
        request: dict[str, Any] = {"seq": first, "batch": limit, "max_bytes": MAX_BATCH_BYTES}
        if subject:
            request["next_by_subj"] = subject
        return await self._collect(request)

    async def batch_with_headers(
        self, first: int, *, limit: int, subject: str, max_bytes: int = 0
    ) -> Batch:
        """The same for a filter, with the raw header block of each record."""
        request: dict[str, Any] = {"seq": first, "batch": limit, "next_by_subj": subject}
        if max_bytes:
            request["max_bytes"] = max_bytes
        return await self._collect(request, keep_headers=True)

    async def batch_whole(self, first: int, *, limit: int) -> Batch:
        """The same on any subject, for whoever copies everything."""
        request = {"seq": first, "batch": limit, "max_bytes": MAX_BATCH_BYTES}
        return await self._collect(request, keep_headers=True)

    async def newest_of_each(self, filters: tuple[str, ...]) -> list[Held] | None:
        """The newest record of each matching subject; None if there are more than 1024."""
        return await self._heads.of(filters)

    async def _multi_last(self, filters: tuple[str, ...]) -> list[Held] | None:
        batch = await self._collect(
            {"multi_last": filters, "max_bytes": MAX_BATCH_BYTES}, keep_headers=True
        )
        if batch.status == _TOO_MANY or batch.pending:
            return None
        return [Held(*pair) for pair in zip(batch.records, batch.headers, strict=True)]

    async def newest_seq(self, known_subject: str) -> int:
        """The newest sequence on any subject; 0 if nothing is on `known_subject` any more."""
        batch = await self._collect({"multi_last": [known_subject]})
        return batch.last_seq

    async def _collect(self, request: dict[str, Any], *, keep_headers: bool = False) -> Batch:
        batch = await self._requester.collect(
            self._direct, _encode(request), timeout_s=READ_TIMEOUT_S, keep_headers=keep_headers
        )
        self._check(batch)
        return batch

    def _check(self, batch: Batch) -> None:
        if batch.status not in {_OK, NOT_FOUND, _TOO_MANY}:
            raise self._refusal(batch.status, batch.words)

    async def _get(self, body: bytes) -> Reply:
        return await self._requester.request(self._direct, body, timeout_s=READ_TIMEOUT_S)

    def _one(self, reply: Reply) -> Held | None:
        status = wire.status_of(reply.header)
        if status == 0:
            return Held(wire.read_record(reply.header, reply.payload), reply.header)
        if status == NOT_FOUND:
            return None
        raise self._refusal(status, wire.status_text(reply.header))

    async def _ask_leader(self, request: dict[str, Any]) -> Record | None:
        reply = await self._requester.request(
            self._leader, _encode(request), timeout_s=READ_TIMEOUT_S
        )
        return self._from_leader(reply)

    def _from_leader(self, reply: Reply) -> Record | None:
        try:
            found = _decode_message(check_api(reply)).message
        except ApiFailure as failure:
            if failure.err_code == _NO_MESSAGE:
                return None
            raise
        except msgspec.ValidationError as error:
            raise Corrupt(f"the NATS server sent an unreadable record: {error}") from error
        return Record(found.seq, parse_rfc3339_ns(found.time.encode()), found.subject, found.data)

    def _refusal(self, status: int, words: str) -> Unavailable:
        """The error behind a status that is neither an answer nor "not found"."""
        if status != NO_RESPONDERS:
            return Unavailable(f"the NATS server could not read: {words}")
        return Unavailable(
            f"the engine does not serve the stream {self.stream}: it is missing, has no leader, "
            "or JetStream is starting",
        )
