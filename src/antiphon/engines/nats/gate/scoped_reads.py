"""Reads with all permissions, reduced to what one member may see.

Owns what the gate answers: for any request, what the server's own answer would contain, without
the records out of scope. A filter within the scope is passed to the server as it is; of any other
the visible parts are read one by one and merged in the order of the log.

Parts are read at different moments, and on a replicated log from different copies. Whatever is
returned must still be a gapless run of what is visible: see `_merge` and `_first`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.core.visible_subjects import VisibleSubjects
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.requester import Batch, Reply
from antiphon.engines.nats.log.direct_get import MAX_BATCH, READ_TIMEOUT_S
from antiphon.engines.nats.log.log import NatsLog
from antiphon.engines.nats.log.newest_records import Held
from antiphon.engines.nats.log.streams import ApiFailure, check_api
from antiphon.engines.nats.member.read_protocol import BadReadRequest, ReadRequest
from antiphon.engines.nats.member.scoped_log import ScopedLog
from antiphon.errors import Misconfigured, Unavailable
from antiphon.ports import Engine

ANSWER_BYTES = 4 * 1024 * 1024
"""The size of one answer; a page that ends early says that there is more."""
NEAR = 256
NEAR_BYTES = 512 * 1024
"""A reader this close to the end of the log gets the rest in one request."""
MAX_PARTS = 1024
_NO_BOUND = 2**63
SEQS_AT_ONCE = 8
_OK, _NOT_FOUND, _TOO_MANY, _BUSY = 204, 404, 413, 503
_NO_MESSAGE = 10037
_NOTHING = (
    b'{"type":"io.nats.jetstream.api.v1.stream_msg_get_response",'
    b'"error":{"code":404,"err_code":10037,"description":"no message found"}}'
)


class _Found(Struct, frozen=True):
    seq: int
    subject: str
    reply: Reply


class _Run(Struct):
    """What was read of one part."""

    part: str
    held: list[Held]
    count: int
    """How many there were to read."""


class _Place(Struct, frozen=True):
    seq: int
    subject: str


class _LeaderAnswer(Struct, frozen=True):
    message: _Place


_Ask = Callable[[dict[str, Any]], Awaitable[_Found | None]]

_encode = msgspec.json.Encoder().encode
_decode_leader = msgspec.json.Decoder(_LeaderAnswer).decode


def own_log(engine: Engine) -> NatsLog:
    """The log of a gate's engine, which must have all permissions."""
    log = engine.log
    if not isinstance(log, NatsLog) or isinstance(log, ScopedLog):
        raise Misconfigured("the gate needs its own connection to NATS, with all permissions")
    return log


def status(code: int, words: str) -> Reply:
    """An answer that is only a status."""
    line = " ".join(words.split()).encode("ascii", "replace")
    return Reply(b"", b"NATS/1.0 %d %b\r\n\r\n" % (code, line))


class ScopedReads:
    """Answers questions about one log for those who may see a part of it."""

    def __init__(self, log: NatsLog) -> None:
        self._log = log
        self._requester = log.requester
        self._direct_subject = f"$JS.API.DIRECT.GET.{log.stream}".encode()
        self._leader_subject = f"$JS.API.STREAM.MSG.GET.{log.stream}".encode()

    async def direct(self, visible: VisibleSubjects, asked: ReadRequest) -> list[Reply]:
        """What a direct get would answer."""
        if asked.multi_last:
            return await self._newest(visible, asked.multi_last)
        if asked.seqs:
            return await self._at_each(visible, asked.seqs)
        if asked.batch:
            return await self._page(visible, asked)
        found = await self._one(self._ask_server, visible, asked)
        return [status(_NOT_FOUND, "Message Not Found") if found is None else found.reply]

    async def leader(self, visible: VisibleSubjects, asked: ReadRequest) -> list[Reply]:
        """What the leader's message get would answer.

        Where it would have shown something out of scope, `Nats-Last-Sequence` says how
        far the log reaches: a reader must be able to know that there is no more.
        """
        if asked.multi_last or asked.batch or asked.seqs:
            raise BadReadRequest("Bad Request")
        found = await self._one(self._ask_leader, visible, asked)
        if found is not None:
            return [found.reply]
        hidden = None
        if asked.seq and _is_whole(asked.next_by_subj, visible):
            hidden = await self._ask_leader({"seq": asked.seq, "next_by_subj": visible.everything})
        reach = (
            b"" if hidden is None else b"NATS/1.0\r\nNats-Last-Sequence: %d\r\n\r\n" % hidden.seq
        )
        return [Reply(_NOTHING, reach)]

    # --- one --------------------------------------------------------------------------------

    async def _one(self, ask: _Ask, visible: VisibleSubjects, asked: ReadRequest) -> _Found | None:
        if asked.last_by_subj:
            parts = visible.parts(asked.last_by_subj)
            answers = await asyncio.gather(*(ask({"last_by_subj": one}) for one in parts))
            found = max(filter(None, answers), key=lambda one: one.seq, default=None)
        elif asked.next_by_subj:
            found = await self._first(ask, visible.parts(asked.next_by_subj), asked.seq)
        else:
            found = await ask({"seq": asked.seq})
        return found if found is not None and visible.sees(found.subject) else None

    async def _first(self, ask: _Ask, parts: Sequence[str], first: int) -> _Found | None:
        """The first record from `first` on that matches any of the parts.

        A part that showed nothing may have been asked before an earlier record than the one
        found was committed on it, or of a copy that lags: it is asked again, where it is
        certain. The others showed what comes later, so nothing can appear before that.
        """
        answers = await asyncio.gather(*(ask(_next(one, first)) for one in parts))
        best = min(filter(None, answers), key=lambda one: one.seq, default=None)
        empty = [part for part, found in zip(parts, answers, strict=True) if found is None]
        if best is None or not empty:
            return best
        sure = self._ask_leader if self._log.is_replicated else ask
        again = await asyncio.gather(*(sure(_next(one, first)) for one in empty))
        earliest = min(filter(None, [best, *again]), key=lambda one: one.seq)
        if earliest is best or sure == ask:
            return earliest
        return await ask({"seq": earliest.seq})

    async def _ask_server(self, body: dict[str, Any]) -> _Found | None:
        reply = await self._requester.request(
            self._direct_subject, _encode(body), timeout_s=READ_TIMEOUT_S
        )
        code = wire.status_of(reply.header)
        if code == _NOT_FOUND:
            return None
        if code:
            raise _unread(wire.status_text(reply.header))
        record = wire.read_record(reply.header, reply.payload)
        return _Found(record.seq, record.subject, reply)

    async def _ask_leader(self, body: dict[str, Any]) -> _Found | None:
        reply = await self._requester.request(
            self._leader_subject, _encode(body), timeout_s=READ_TIMEOUT_S
        )
        try:
            place = _decode_leader(check_api(reply)).message
        except ApiFailure as failure:
            if failure.err_code == _NO_MESSAGE:
                return None
            raise
        return _Found(place.seq, place.subject, reply)

    # --- many -------------------------------------------------------------------------------

    async def _newest(self, visible: VisibleSubjects, filters: Iterable[str]) -> list[Reply]:
        """The newest of each subject, and the newest sequence of all even if there is none."""
        parts = tuple(dict.fromkeys(part for one in filters for part in visible.parts(one)))
        if len(parts) > MAX_PARTS:
            return [status(_TOO_MANY, "Too Many Results")]
        if parts:
            (batch,) = await self._collect([{"multi_last": parts, "max_bytes": ANSWER_BYTES}])
            if batch.status == _TOO_MANY:
                return [status(_TOO_MANY, "Too Many Results")]
            seen = [held for held in _held(batch) if visible.sees(held.record.subject)]
            if seen:
                return _run_of(seen, batch.pending, upto=batch.last_seq)
        upto = await self._log.newest_seq()
        return [Reply(b"", b"NATS/1.0 404 No Results\r\nNats-UpTo-Sequence: %d\r\n\r\n" % upto)]

    async def _at_each(self, visible: VisibleSubjects, seqs: Sequence[int]) -> list[Reply]:
        """What is visible at these sequences, up to a size; the rest is not read."""
        shown: list[Held] = []
        looked = weight = 0
        while looked < len(seqs) and weight < ANSWER_BYTES:
            part = seqs[looked : looked + SEQS_AT_ONCE]
            looked += len(part)
            for seq, held in zip(part, await self._held_at(part), strict=True):
                if held is not None and visible.sees(held.record.subject):
                    shown.append(held)
                    weight += len(held.header) + len(held.record.payload)
                elif held is None and await self._lags_at(seq):
                    return [status(_BUSY, "this copy of the log lags behind")]
        return _run_of(shown, len(seqs) - looked)

    async def _held_at(self, seqs: Sequence[int]) -> list[Held | None]:
        return await asyncio.gather(*map(self._log.records.held_at, seqs))

    async def _lags_at(self, seq: int) -> bool:
        return self._log.is_replicated and await self._log.records.leader_at(seq) is not None

    async def _page(self, visible: VisibleSubjects, asked: ReadRequest) -> list[Reply]:
        first = max(asked.seq, 1)
        limit = min(asked.batch, MAX_BATCH)
        max_bytes = min(asked.max_bytes or ANSWER_BYTES, ANSWER_BYTES)
        parts = visible.parts(asked.next_by_subj or visible.everything)
        behind = 0
        if not _is_whole(asked.next_by_subj, visible):
            found, behind = await self._merge(parts, first, limit, max_bytes)
        elif visible.is_whole:
            (batch,) = await self._collect([{"seq": first, "batch": limit, "max_bytes": max_bytes}])
            found, behind = _held(batch), batch.pending
        else:
            (near,) = await self._collect([{"seq": first, "batch": NEAR, "max_bytes": NEAR_BYTES}])
            found = _held(near)
            if near.pending:
                found, behind = await self._merge(parts, first, limit, max_bytes)
        seen = [held for held in found if visible.sees(held.record.subject)]
        shown = _cut(seen, limit, max_bytes)
        if not shown:
            return [status(_NOT_FOUND, "Message Not Found")]
        return _run_of(shown, behind + len(seen) - len(shown))

    async def _merge(
        self, parts: Sequence[str], first: int, limit: int, max_bytes: int
    ) -> tuple[list[Held], int]:
        """Matching records from `first` on, oldest first, and how many more were counted.

        What is returned ends where a part was not read further. A part that was read to its
        end is complete up to what was the newest record before the reading began, if there is
        one copy of the log; if there are several, up to what its leader shows next.
        """
        is_single = len(parts) == 1
        bound = _NO_BOUND
        if not is_single and not self._log.is_replicated:
            bound = await self._log.newest_seq()
        runs = await self._read_parts(parts, first, limit, max_bytes)
        ended: list[_Run] = []
        for run in runs:
            if len(run.held) < run.count:
                bound = min(bound, run.held[-1].record.seq)
            else:
                ended.append(run)
        if self._log.is_replicated and not is_single:
            after = [run.held[-1].record.seq + 1 if run.held else first for run in ended]
            asked = [_next(run.part, seq) for run, seq in zip(ended, after, strict=True)]
            shown = await asyncio.gather(*map(self._ask_leader, asked))
            bound = min([bound, *(found.seq - 1 for found in shown if found is not None)])
        merged = [held for run in runs for held in run.held if held.record.seq <= bound]
        merged.sort(key=lambda held: held.record.seq)
        return merged, sum(run.count for run in runs) - len(merged)

    async def _read_parts(
        self, parts: Sequence[str], first: int, limit: int, max_bytes: int
    ) -> list[_Run]:
        """A beginning of each part; the first read counts, so that no read asks for too much."""
        questions = [{**_next(part, first), "batch": 1} for part in parts]
        begun = await self._collect(questions)
        runs = [
            _Run(part, _held(batch), len(batch.records) + batch.pending)
            for part, batch in zip(parts, begun, strict=True)
        ]
        longer = [run for run in runs if run.count > 1] if limit > 1 else []
        if not longer:
            return runs
        share = {"batch": max(limit // len(longer), 1), "max_bytes": max_bytes // len(longer) or 1}
        questions = []
        for run in longer:
            # From the log's beginning the server counts by its index, from elsewhere by walking.
            done = 0 if first == 1 else 1
            start = run.held[-1].record.seq + 1 if done else first
            wanted = min(share["batch"], run.count - done)
            questions.append({**_next(run.part, start), **share, "batch": wanted})
            del run.held[done:]
        for run, batch in zip(longer, await self._collect(questions), strict=True):
            run.held.extend(_held(batch))
        return runs

    async def _collect(self, questions: Iterable[dict[str, Any]]) -> list[Batch]:
        requests = [(self._direct_subject, _encode(one)) for one in questions]
        batches = await self._requester.collect_all(requests, timeout_s=READ_TIMEOUT_S)
        for batch in batches:
            if batch.status not in {_OK, _NOT_FOUND, _TOO_MANY}:
                raise _unread(batch.words)
        return batches


# --- words ------------------------------------------------------------------------------------


def _is_whole(pattern: str, visible: VisibleSubjects) -> bool:
    return pattern in {"", ">", visible.everything}


def _next(part: str, first: int) -> dict[str, Any]:
    return {"seq": first, "next_by_subj": part}


def _held(batch: Batch) -> list[Held]:
    return [Held(*pair) for pair in zip(batch.records, batch.headers, strict=True)]


def _cut(seen: list[Held], limit: int, max_bytes: int) -> list[Held]:
    """As many as fit, and at least one."""
    weight = 0
    for at, held in enumerate(seen[:limit], start=1):
        weight += len(held.header) + len(held.record.payload)
        if weight >= max_bytes:
            return seen[:at]
    return seen[:limit]


def _run_of(shown: list[Held], behind: int, *, upto: int | None = None) -> list[Reply]:
    """Records as one batch, with the marker that ends it."""
    replies: list[Reply] = []
    previous = 0
    left = behind + len(shown)
    for held in shown:
        left -= 1
        counts = b"\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (left, previous)
        replies.append(Reply(held.record.payload, _uncounted(held.header) + counts + b"\r\n"))
        previous = held.record.seq
    end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (
        behind,
        previous,
    )
    if upto is not None:
        end += b"Nats-UpTo-Sequence: %d\r\n" % upto
    return [*replies, Reply(b"", end + b"\r\n")]


def _uncounted(header: bytes) -> bytes:
    """A record's header block, open at its end, without the counts that a batch puts there.

    The server's own fields come last, whatever names a publisher gave to its own.
    """
    counts = header.rfind(b"\r\nNats-Num-Pending: ")
    if counts > header.rfind(b"\r\nNats-Sequence: "):
        return header[:counts]
    return header.removesuffix(b"\r\n\r\n")


def _unread(words: str) -> Unavailable:
    return Unavailable(f"the NATS server could not read: {words}")
