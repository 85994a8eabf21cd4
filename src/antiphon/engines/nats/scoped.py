"""The log as a member reads it whose delegation admits some kinds only (docs/decisions/0010).

The newest record of a subject comes straight from the server, which limits such reads by subject.
Everything else has its question in a request's body, where no permission can look, and goes to
the mesh's gate: it answers in the server's own form and leaves out what is out of scope. So the
reads are those of `records` and `log`, sent elsewhere.

Invariant: a lane is one snapshot here too, although its subjects are asked for one by one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec

from antiphon.core import subjects
from antiphon.engines.nats import letters, wire
from antiphon.engines.nats.connection import Connection
from antiphon.engines.nats.follow import Follower
from antiphon.engines.nats.heads import Held
from antiphon.engines.nats.lanes import lane_pages
from antiphon.engines.nats.log import NatsLog
from antiphon.engines.nats.pipeline import Batch, Pipeline, Reply
from antiphon.engines.nats.records import MAX_BATCH, NO_RESPONDERS, READ_TIMEOUT_S, Records
from antiphon.engines.nats.sight import Reader, Sight, lane_subjects, sight_of
from antiphon.engines.nats.streams import log_name
from antiphon.engines.nats.work import LOAN_S
from antiphon.errors import AntiphonError, EngineDenied, Unavailable
from antiphon.ports import Page, Record

GATE_TIMEOUT_S = 5.0
READS_AT_ONCE = 32
"""Requests of one user that the gate serves at a time; a reader keeps to it by itself."""
DENIED = 403
_BUSY_TRIES = 6
_BUSY_PAUSE_S = 0.05
_ASK_FOR_MORE = "ask the mesh's owner for a delegation that covers it"
_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


def gate_subject(mesh: str, user: str, verb: str) -> str:
    """Where a user asks the gate, and nobody else may: `get` and `leader` are its verbs."""
    return f"apg.{mesh}.{user}.{verb}"


class ScopedRecords(Records):
    """`Records`, of which the server answers little and the gate the rest."""

    def __init__(
        self,
        connection: Connection,
        pipeline: Pipeline,
        mesh: str,
        reader: Reader,
        *,
        is_replicated: bool,
    ) -> None:
        super().__init__(pipeline, log_name(mesh))
        self._connection = connection
        self._is_replicated = is_replicated
        self.sight = sight_of(mesh, reader.reads())
        self._all_control = subjects.all_control(mesh)
        self._by_subject = self._direct + b"."
        self._direct = gate_subject(mesh, reader.user, "get").encode()
        self._leader = gate_subject(mesh, reader.user, "leader").encode()
        self._window = asyncio.Semaphore(READS_AT_ONCE)

    # --- from the server --------------------------------------------------------------------

    async def newest_of_each(self, filters: tuple[str, ...]) -> list[Held] | None:
        """The newest record of each matching subject; None if there are more than 1024."""
        if self._is_replicated or not all(map(self.sight.has_at_hand, filters)):
            return await self._heads.of(filters)
        if len(filters) == 1:
            held = await self._newest(filters[0])
            return [] if held is None else [held]
        return await self._snapshot(filters)

    async def _snapshot(self, names: tuple[str, ...]) -> list[Held] | None:
        """The newest record of each subject, as they stood at one moment.

        The server answers in the order of asking. So what is asked for after the newest of all
        the answers is complete up to it; what was asked for before is asked for again, and if
        that shows anything new, the gate reads all of them in one request. The newest record
        of a lane mostly lies on the job's own subject: it is asked for first.
        """
        order = sorted(names, key=_is_not_a_jobs_own)
        found = await asyncio.gather(*map(self._newest, order))
        seqs = [0 if held is None else held.record.seq for held in found]
        before = seqs.index(max(seqs))
        if before:
            again = await asyncio.gather(*map(self._newest, order[:before]))
            if again != found[:before]:
                return await self._heads.of(names)
        return [held for held in found if held is not None]

    async def newest_control(self) -> Record | None:
        """The newest control op; None proves nothing."""
        held = await self._newest(self._all_control)
        return None if held is None else held.record

    async def _newest(self, subject: str) -> Held | None:
        reply = await self._pipeline.request(
            self._by_subject + subject.encode(), b"", timeout_s=READ_TIMEOUT_S
        )
        status = wire.status_of(reply.header)
        if status in {0, 404}:
            return self._one(reply)
        raise super()._refusal(status, wire.status_text(reply.header))

    # --- through the gate -------------------------------------------------------------------

    async def count(self, filters: tuple[str, ...]) -> list[int]:
        """How many records match each filter."""
        asked = [{"seq": 1, "next_by_subj": one, "batch": 1} for one in filters]
        batches = await asyncio.gather(*map(self._collect, asked))
        return [len(batch.records) + batch.pending for batch in batches]

    async def at_each(self, seqs: Sequence[int]) -> Batch:
        """What lies at these sequences; `pending` of them, the last, were not looked at."""
        return await self._collect({"seqs": seqs})

    async def leader_reaches(self, seq: int) -> bool:
        """Whether the stream's leader holds anything at `seq` or above."""
        request = {"seq": seq, "next_by_subj": self.sight.everything}
        reply = await self._ask_gate(self._leader, _encode(request))
        return (
            wire.header_int(reply.header, b"Nats-Last-Sequence") >= seq
            or self._from_leader(reply) is not None
        )

    async def _get(self, body: bytes) -> Reply:
        return await self._ask_gate(self._direct, body)

    async def _ask_leader(self, request: dict[str, Any]) -> Record | None:
        return self._from_leader(await self._ask_gate(self._leader, _encode(request)))

    def _from_leader(self, reply: Reply) -> Record | None:
        status = wire.status_of(reply.header)
        if status:
            raise self._refusal(status, wire.status_text(reply.header))
        return super()._from_leader(reply)

    async def _collect(self, request: dict[str, Any], *, keep_headers: bool = False) -> Batch:
        body = _encode(request)
        batch = await self._patiently(
            lambda: self._pipeline.collect(
                self._direct, body, timeout_s=GATE_TIMEOUT_S, keep_headers=keep_headers
            ),
            lambda answer: _is_busy(answer.status, answer.words),
        )
        self._check(batch)
        return batch

    async def _ask_gate(self, subject: bytes, body: bytes) -> Reply:
        return await self._patiently(
            lambda: self._pipeline.request(subject, body, timeout_s=GATE_TIMEOUT_S),
            lambda reply: _is_busy(wire.status_of(reply.header), wire.status_text(reply.header)),
        )

    async def _patiently(
        self, ask: Callable[[], Coroutine[Any, Any, _T]], is_busy: Callable[[_T], bool]
    ) -> _T:
        """Ask, and ask again while another process of this user takes the gate's whole time."""
        attempt = 0
        while True:
            attempt += 1
            async with self._window:
                try:
                    answer = await ask()
                except EngineDenied:
                    raise
                except Unavailable as error:
                    if not self._connection.up:
                        raise
                    raise _no_gate(error.message) from error
            if attempt == _BUSY_TRIES or not is_busy(answer):
                return answer
            await asyncio.sleep(attempt * _BUSY_PAUSE_S * (0.5 + secrets.randbelow(1000) / 1000))

    def _refusal(self, status: int, words: str) -> Unavailable:
        if status == DENIED:
            return EngineDenied(f"the mesh's gate refused it: {words[4:]}", hint=_ASK_FOR_MORE)
        if status == NO_RESPONDERS and not _is_busy(status, words):
            return _no_gate("nobody listens for it")
        return Unavailable(f"the mesh's gate could not read: {words}")


def _is_not_a_jobs_own(subject: str) -> bool:
    return subject.split(".", 3)[2] != "job"


def _is_busy(status: int, words: str) -> bool:
    """The gate gives its refusals words; the server's own 503 has none."""
    return status == NO_RESPONDERS and len(words) > len("503")


def _no_gate(why: str) -> Unavailable:
    return Unavailable(
        f"the mesh's gate does not answer ({why}): is 'antiphon up' running where the mesh lives?",
        hint="start it there, and try again",
    )


class ScopedLog(NatsLog):
    """`ports.OpLog` for a reader: shows what is in scope and nothing else.

    Asking for a filter that lies outside altogether is `EngineDenied`; of any other filter the
    part inside is shown. A single sequence that lies outside is as if purged.
    """

    sees_all = False

    def __init__(
        self,
        connection: Connection,
        pipeline: Pipeline,
        mesh: str,
        *,
        reader: Reader,
        replicas: int,
        loan_s: float = LOAN_S,
    ) -> None:
        super().__init__(connection, pipeline, mesh, replicas=replicas, loan_s=loan_s)
        self.records = self._scoped = ScopedRecords(
            connection, pipeline, mesh, reader, is_replicated=replicas > 1
        )
        self._reader = reader
        connection.watch_state(self._look_again)
        self._all_control = subjects.all_control(mesh)
        self._genesis = subjects.control(mesh, "genesis")

    @property
    def _sight(self) -> Sight:
        return self._scoped.sight

    def _look_again(self, _up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
        """A connection that comes back may do so with another login."""
        try:
            self._scoped.sight = sight_of(self._mesh, self._reader.reads())
        except AntiphonError as error:
            _log.warning("what this node may read is as it was: %s", error)

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """See `ports.OpLog.read`."""
        limit = min(limit, MAX_BATCH)
        if limit <= 0:
            return Page([], more=False)
        wanted = "" if self._is_everything(subject) else self._check(subject)
        batch = await self.records.batch(after + 1, limit=limit, subject=wanted)
        return self._page(batch.records, batch.pending)

    def read_lane(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Record]]:
        """See `ports.OpLog.read_lane`."""
        wanted = dict.fromkeys(
            name for one in filters for name in lane_subjects(self._mesh, wire.check_filter(one))
        )
        seen = tuple(one for one in wanted if self._sight.parts(one))
        if wanted and not seen:
            raise _outside(", ".join(filters))
        return lane_pages(self, seen, after=after, links_may_hide=True)

    async def append(
        self,
        subject: str,
        payload: bytes,
        *,
        message_id: str,
        expected_last: int,
        timeout_s: float = 5.0,
    ) -> int:
        """See `ports.OpLog.append`; what goes through the gate says the rest itself."""
        if not letters.is_letter(self._mesh, subject):
            return await super().append(
                subject,
                payload,
                message_id=message_id,
                expected_last=expected_last,
                timeout_s=timeout_s,
            )
        box = gate_subject(self._mesh, self._reader.user, letters.VERB).encode()
        reply = await self._pipeline.request(box, payload, timeout_s=timeout_s, is_write=True)
        if wire.status_of(reply.header) == NO_RESPONDERS:
            raise _no_gate("nobody listens for it")
        seq = letters.place_in(reply.payload)
        self._saw(seq)
        return seq

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """See `ports.OpLog.confirm`."""
        self._check(subject)
        if self.is_replicated:
            return await super().confirm(subject, after=after, upto=upto)
        self._connection.require_up()
        await self._require_held(upto)
        if subject == self._all_control:
            newest = await self._scoped.newest_control()
            if newest is not None and newest.seq <= after:
                return []
        found: list[Record] = []
        more = after < upto
        while more:
            page = await self.read(found[-1].seq if found else after, limit=512, subject=subject)
            found += [record for record in page.records if record.seq <= upto]
            more = page.more and page.records[-1].seq < upto
        return found

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """See `ports.OpLog.fetch_many`; very heavy records take a question more."""
        found: list[Record] = []
        left = list(seqs)
        while left:
            batch = await self._scoped.at_each(left)
            found += batch.records
            left = left[len(left) - batch.pending :] if batch.pending else []
        return found

    async def newest_seq(self) -> int:
        """The newest sequence given out, in scope or not; 0 on a new log."""
        newest = await self.records.newest_seq(self._genesis)
        self._saw(newest)
        return newest

    async def reaches(self, seq: int) -> bool:
        """Whether the leader holds that sequence or a later one, in scope or not."""
        return await self._scoped.leader_reaches(seq)

    def follow(
        self, after: int, *, subject: str = ">", max_batch: int = 512
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Record]]]:
        """See `ports.OpLog.follow`."""
        if self._is_everything(subject):
            wanted = "" if self._sight.is_whole else self._sight.everything
        else:
            wanted = self._check(subject)
        return Follower(
            self,
            self._connection,
            after=after,
            subject=wanted,
            max_batch=max_batch,
            hints=lambda: self._sight.hints(wanted) if wanted else self._sight.live,
        )

    async def require(self) -> None:
        """`Unavailable` if there is no log, or if it cannot be read."""
        await self._scoped.newest_control()

    async def _require_held(self, upto: int) -> None:
        if self.is_replicated:
            if await self._scoped.leader_reaches(upto):
                return
        elif self._held_in_this_epoch() >= upto or await self.newest_seq() >= upto:
            return
        raise Unavailable(f"the engine does not show sequence {upto} yet")

    def _check(self, subject: str) -> str:
        if not self._sight.parts(wire.check_filter(subject)):
            raise _outside(subject)
        return subject


def _outside(what: str) -> EngineDenied:
    return EngineDenied(f"{what} lies outside what this key may read", hint=_ASK_FOR_MORE)
