"""The log of a member whose delegation covers some kinds only (docs/decisions/0010).

A read has its filter in the request's body, which no permission covers; and one that has it in
its subject may name a wildcard, for which the server walks every subject of the log. So all reads
go to the mesh's gate: it answers in the server's own form and leaves out what is out of scope.
They are those of `direct_get` and `log`, sent elsewhere (`scoped_direct_get`).

Invariant: the whole log is what the connection's login admits. Where the gate goes by a newer
scope, what is wider is left out here, and a question that would be answered by less is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from antiphon.core.authority.subject_rights import reading_of
from antiphon.core.record import subjects
from antiphon.core.visible_subjects import Reader, VisibleSubjects
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.gate_subjects import gate_subject
from antiphon.engines.nats.connection.requester import Requester
from antiphon.engines.nats.log.direct_get import MAX_BATCH, NO_RESPONDERS, NOT_FOUND, READ_TIMEOUT_S
from antiphon.engines.nats.log.follower import Follower
from antiphon.engines.nats.log.hints import LiveHints
from antiphon.engines.nats.log.lane_pages import lane_pages
from antiphon.engines.nats.log.log import NatsLog
from antiphon.engines.nats.log.pull_queue import LOAN_S
from antiphon.engines.nats.member import relay_protocol
from antiphon.engines.nats.member.scoped_direct_get import ScopedDirectGet, no_gate
from antiphon.errors import AntiphonError, NotPermitted, Unavailable
from antiphon.ports import Append, Hints, Page, Record, Told

_log = logging.getLogger(__name__)


class ScopedLog(NatsLog):
    """`ports.OpLog` for a reader: shows what is in scope and nothing else.

    A filter that is entirely out of scope is `NotPermitted`; of any other filter the part in
    scope is shown. A single sequence out of scope looks purged.
    """

    def __init__(
        self,
        connection: Connection,
        requester: Requester,
        mesh: str,
        *,
        reader: Reader,
        replicas: int,
        loan_s: float = LOAN_S,
    ) -> None:
        super().__init__(connection, requester, mesh, replicas=replicas, loan_s=loan_s)
        self.records = self._scoped = ScopedDirectGet(connection, requester, mesh, reader)
        self._reader = reader
        connection.watch_state(self._look_again)
        self._genesis = subjects.control(mesh, "genesis")

    @property
    def reads(self) -> tuple[str, ...]:
        """See `ports.OpLog.reads`: what the newest login of this connection admits."""
        return self._visible.shown

    @property
    def _visible(self) -> VisibleSubjects:
        return self._scoped.visible

    def _look_again(self, _up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
        """A connection that comes back may do so with another login."""
        try:
            self._scoped.visible = self._reader.visible(self._mesh)
        except AntiphonError as error:
            _log.warning("what this node may read is unchanged: %s", error)

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """See `ports.OpLog.read`."""
        limit = min(limit, MAX_BATCH)
        if limit <= 0:
            return Page([], more=False)
        if self._is_everything(subject):
            return await self._read_whole(after, limit)
        batch = await self.records.batch(after + 1, limit=limit, subject=self._check(subject))
        return self._page(batch.records, batch.pending)

    async def _read_whole(self, after: int, limit: int) -> Page:
        """A page of the log as this login shows it, although the gate may show more by now."""
        visible = self._visible
        while True:
            batch = await self.records.batch(after + 1, limit=limit)
            page = self._page(batch.records, batch.pending)
            seen = [record for record in page.records if visible.sees(record.subject)]
            if seen or not page.more:
                return Page(seen, more=page.more)
            after = page.records[-1].seq

    async def next_certain(self, after: int, subject: str) -> Record | None:
        """The first matching record above `after` that this login shows."""
        visible = self._visible
        record = await super().next_certain(after, subject)
        while record is not None and not visible.sees(record.subject):
            record = await super().next_certain(record.seq, subject)
        return record

    async def last(self) -> Record | None:
        """See `ports.OpLog.last`."""
        visible = self._visible
        newest = await super().last()
        if newest is None or visible.sees(newest.subject):
            return newest
        found = await asyncio.gather(*map(self.records.last_on, visible.filters))
        shown = [held.record for held in found if held is not None]
        return max(shown, key=lambda record: record.seq, default=None)

    def read_lane(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Record]]:
        """See `ports.OpLog.read_lane`."""
        wanted = dict.fromkeys(map(wire.check_filter, filters))
        seen = tuple(one for one in wanted if self._visible.parts(one))
        if wanted and not seen:
            raise self._outside(next(iter(wanted)))
        return lane_pages(self, seen, after=after)

    def hints(self, told: Told) -> AbstractContextManager[Hints]:
        """See `ports.OpLog.hints`: of what this login may subscribe to."""
        return LiveHints(self._connection, told, self._audible)

    def _audible(self, pattern: str) -> Sequence[str]:
        return self._visible.hints(pattern)  # asked again: logins change

    async def read_lanes(self, lanes: Sequence[Sequence[str]]) -> list[list[Record] | None]:
        """See `ports.OpLog.read_lanes`."""
        for lane in lanes:
            if not any(map(self._visible.sees, lane)):
                raise self._outside(lane[0])
        return await super().read_lanes(lanes)

    async def newest(self, subjects: Sequence[str]) -> list[Record]:
        """See `ports.OpLog.newest`."""
        for subject in subjects:
            self._check(subject)
        return await super().newest(subjects)

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
        if not self._visible.relays(subject):
            return await super().append(
                subject,
                payload,
                message_id=message_id,
                expected_last=expected_last,
                timeout_s=timeout_s,
            )
        box = gate_subject(self._mesh, self._reader.user, relay_protocol.VERB).encode()
        reply = await self._requester.request(box, payload, timeout_s=timeout_s, is_write=True)
        if wire.status_of(reply.header) == NO_RESPONDERS:
            raise no_gate("no responders")
        seq = relay_protocol.place_in(reply.payload)
        self._saw(seq)
        return seq

    async def append_many(
        self, records: Sequence[Append], *, timeout_s: float = 5.0
    ) -> list[int | AntiphonError]:
        """See `ports.OpLog.append_many`; what goes through the gate goes one by one."""
        if not any(self._visible.relays(one.subject) for one in records):
            return await super().append_many(records, timeout_s=timeout_s)
        found: list[int | AntiphonError] = []
        for one in records:
            try:
                found.append(
                    await self.append(
                        one.subject,
                        one.payload,
                        message_id=one.message_id,
                        expected_last=one.expected_last,
                        timeout_s=timeout_s,
                    )
                )
            except AntiphonError as problem:
                found.append(problem)
        return found

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """See `ports.OpLog.confirm`."""
        self._check(subject)
        if self.is_replicated:
            return await super().confirm(subject, after=after, upto=upto)
        self._connection.require_up()
        await self._require_held(upto)
        first = await self.records.after(after, subject)
        if first is None or first.seq > upto:
            return []
        found: list[Record] = []
        more = after < upto
        while more:
            page = await self.read(found[-1].seq if found else after, limit=512, subject=subject)
            found += [record for record in page.records if record.seq <= upto]
            more = page.more and page.records[-1].seq < upto
        return found

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """See `ports.OpLog.fetch_many`; very large records take one more request."""
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
            wanted = "" if self._visible.is_whole else self._visible.everything
        else:
            wanted = self._check(subject)
        return Follower(
            self,
            self._connection,
            after=after,
            subject=wanted,
            max_batch=max_batch,
            hints=lambda: self._visible.hints(wanted) if wanted else self._visible.live,
        )

    async def require(self) -> None:
        """`Unavailable` if there is no log, or if it cannot be read."""
        genesis = f"$JS.API.DIRECT.GET.{self.stream}.{self._genesis}".encode()
        reply = await self._requester.request(genesis, b"", timeout_s=READ_TIMEOUT_S)
        if wire.status_of(reply.header) not in {0, NOT_FOUND}:
            raise Unavailable(
                f"the engine does not serve the log: {wire.status_text(reply.header)}"
            )

    async def _require_held(self, upto: int) -> None:
        if self.is_replicated:
            if await self._scoped.leader_reaches(upto):
                return
        elif self._held_in_this_epoch() >= upto or await self.newest_seq() >= upto:
            return
        raise Unavailable(f"the engine does not show sequence {upto} yet")

    def _check(self, subject: str) -> str:
        if not self._visible.parts(wire.check_filter(subject)):
            raise self._outside(subject)
        return subject

    def _outside(self, subject: str) -> NotPermitted:
        command, kind = reading_of(self._reader.branches, subject)
        rights = self._reader.rights
        lacking = rights.word_for(command)
        return NotPermitted(
            f"this key may not read {kind or 'that'}: it lacks the permission {lacking}",
            hint=f"the mesh's owner grants it: {rights.how_to_grant(command, kind)};"
            " 'antiphon who' shows who may do what",
        )
