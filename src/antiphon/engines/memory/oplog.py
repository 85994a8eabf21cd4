"""One node's view of the log: `ports.OpLog` over a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.engines.memory.connection import Connection
from antiphon.engines.memory.faults import Fate
from antiphon.engines.memory.filters import SubjectFilter
from antiphon.engines.memory.follower import Follow
from antiphon.engines.memory.hints import MemoryHints
from antiphon.engines.memory.pull_queue import MemoryQueue
from antiphon.engines.memory.server import MeshState
from antiphon.errors import AntiphonError, OutcomeUnknown, Unavailable
from antiphon.ports import Append, Page, Record, Told

PAGE_RECORDS = 256
"""Of one page of a lane: few, so that tests meet lanes of several pages."""
BATCH_FROM = 3
"""Records from which on they are stored in one step: few, so that tests meet such batches."""


class MemoryLog:
    """The one log of a mesh."""

    reads: tuple[str, ...] = WHOLE
    """See `ports.OpLog.reads`: in one process there are no logins."""

    def __init__(self, connection: Connection, mesh: MeshState, *, loan_s: float) -> None:
        self._connection = connection
        self._mesh = mesh
        self._store = mesh.log
        self._loan_s = loan_s

    async def append(
        self,
        subject: str,
        payload: bytes,
        *,
        message_id: str,
        expected_last: int,
        timeout_s: float = 5.0,
    ) -> int:
        """Store `payload` if the last sequence on `subject` is `expected_last`."""
        work = partial(self._store.append, subject, payload, message_id, expected_last)
        return await self._connection.write("append", work, timeout_s=timeout_s)

    async def append_many(
        self, records: Sequence[Append], *, timeout_s: float = 5.0
    ) -> list[int | AntiphonError]:
        """Each as `append` does; many in one step, if nothing stands in the way of any."""
        if len(records) >= BATCH_FROM:
            stored = await self._append_in_one_step(records, timeout_s)
            if stored:
                return stored
        return await self._append_one_by_one(records, timeout_s)

    async def _append_in_one_step(
        self, records: Sequence[Append], timeout_s: float
    ) -> list[int | AntiphonError]:
        """All or none: empty if none was stored. Without an answer, each outcome is unknown."""

        def work(fate: Fate) -> list[int | AntiphonError]:
            is_whole = fate.share >= 1.0  # else its end, which commits it, did not arrive
            stored = self._store.append_all(records) if is_whole else []
            if not is_whole or fate.answer_share < 1.0:
                return [OutcomeUnknown("the connection was lost before the answer came")] * len(
                    records
                )
            return [*stored]

        return await self._several(records, work, timeout_s)

    async def _append_one_by_one(
        self, records: Sequence[Append], timeout_s: float
    ) -> list[int | AntiphonError]:
        """One behind the other on one line, which may break between them."""

        def work(fate: Fate) -> list[int | AntiphonError]:
            arrived = round(len(records) * fate.share)
            answered = round(arrived * fate.answer_share)
            stored = [self._stored(one) for one in records[:arrived]]
            unknown = OutcomeUnknown("the connection was lost before the answer came")
            return [*stored[:answered], *[unknown] * (len(records) - answered)]

        return await self._several(records, work, timeout_s)

    async def _several(
        self,
        records: Sequence[Append],
        work: Callable[[Fate], list[int | AntiphonError]],
        timeout_s: float,
    ) -> list[int | AntiphonError]:
        try:
            return await self._connection.write_several("append_many", work, timeout_s=timeout_s)
        except Unavailable as problem:
            return [problem] * len(records)

    def _stored(self, record: Append) -> int | AntiphonError:
        try:
            return self._store.append(
                record.subject, record.payload, record.message_id, record.expected_last
            )
        except AntiphonError as problem:
            return problem

    async def read(self, after: int, *, limit: int, subject: str = ">") -> Page:
        """Records above `after` whose subject matches, oldest first."""
        wanted = SubjectFilter(subject)

        def work(lag: int) -> Page:
            return self._store.page(wanted, after, self._store.last_seq - lag, limit)

        return await self._connection.read_lagging("read", work)

    async def read_lane(
        self, filters: Sequence[str], *, after: int = 0
    ) -> AsyncIterator[list[Record]]:
        """Every record above `after` on the given subjects, oldest first."""
        wanted = [SubjectFilter(pattern) for pattern in filters]
        moment: int | None = None

        def work(lag: int) -> tuple[list[Record], int | None]:
            """A page of the moment that the first request met, and where the next begins."""
            nonlocal moment
            if moment is None:
                moment = self._store.last_seq - lag
            pages = [self._store.page(one, after, moment, PAGE_RECORDS) for one in wanted]
            cut = min((page.records[-1].seq for page in pages if page.more), default=None)
            found = {record.seq: record for page in pages for record in page.records}
            upto = moment if cut is None else cut
            return [found[seq] for seq in sorted(found) if seq <= upto], cut

        while True:
            records, reached = await self._connection.read_lagging("read_lane", work)
            if records:
                yield records
            if reached is None:
                return
            after = reached

    async def read_lanes(self, lanes: Sequence[Sequence[str]]) -> list[list[Record] | None]:
        """Several lanes of one moment; None for one that is longer than a page."""
        wanted = [[SubjectFilter(subject) for subject in lane] for lane in lanes]

        def work(lag: int) -> list[list[Record] | None]:
            moment = self._store.last_seq - lag
            found: list[list[Record] | None] = []
            for lane in wanted:
                pages = [self._store.page(one, 0, moment, PAGE_RECORDS) for one in lane]
                records = [record for page in pages for record in page.records]
                is_long = any(page.more for page in pages)
                found.append(None if is_long else sorted(records, key=lambda one: one.seq))
            return found

        return await self._connection.read_lagging("read_lanes", work)

    async def newest(self, subjects: Sequence[str]) -> list[Record]:
        """The newest record on each of these subjects."""
        wanted = [SubjectFilter(subject) for subject in subjects]

        def work(lag: int) -> list[Record]:
            upto = self._store.last_seq - lag
            found = (self._store.newest_on(one, upto) for one in wanted)
            return [record for record in found if record is not None]

        return await self._connection.read_lagging("newest", work)

    def hints(self, told: Told) -> MemoryHints:
        """Hints about the log until the context ends."""
        return MemoryHints(self._connection, self._mesh, told)

    async def confirm(self, subject: str, *, after: int, upto: int) -> list[Record]:
        """Every matching record in (after, upto], never from a lagging copy."""
        wanted = SubjectFilter(subject)

        def work(lag: int) -> list[Record]:
            if self._store.last_seq - lag < upto:
                raise Unavailable(f"this copy of the log does not hold {upto} yet")
            return self._store.page(wanted, after, upto, upto).records

        return await self._connection.read_lagging("confirm", work)

    async def fetch(self, seq: int, *, newest_on: str = "") -> Record | None:  # noqa: ARG002
        """The record with that sequence; all reads cost the same here."""

        def work(lag: int) -> Record | None:
            return self._store.at(seq) if seq <= self._store.last_seq - lag else None

        return await self._connection.read_lagging("fetch", work)

    async def fetch_many(self, seqs: Sequence[int]) -> list[Record]:
        """What the log holds at those sequences, never from a lagging copy."""

        def work(lag: int) -> list[Record]:
            if self._store.last_seq - lag < max(seqs, default=0):
                raise Unavailable(f"this copy of the log does not hold {max(seqs)} yet")
            return [record for seq in seqs if (record := self._store.at(seq)) is not None]

        return await self._connection.read_lagging("fetch_many", work)

    async def last(self) -> Record | None:
        """The newest record."""

        def work(lag: int) -> Record | None:
            return self._store.newest(self._store.last_seq - lag)

        return await self._connection.read_lagging("last", work)

    async def reaches(self, seq: int) -> bool:
        """Whether the log holds that sequence or a later one."""
        return await self._connection.read("reaches", lambda: self._store.last_seq >= seq)

    def follow(self, after: int, *, subject: str = ">", max_batch: int = 512) -> Follow:
        """Matching records above `after` for ever."""
        wanted = SubjectFilter(subject)
        return Follow(self._connection, self._mesh, wanted, after=after, max_batch=max_batch)

    @asynccontextmanager
    async def work(self, subject: str, *, name: str) -> AsyncIterator[MemoryQueue]:
        """Join the shared queue `name` over one subject filter."""
        make = partial(self._mesh.queue, name, subject, self._loan_s)
        queue = MemoryQueue(self._connection, await self._connection.write("work", make))
        try:
            yield queue
        finally:
            await queue.close()

    async def purge(self, subject: str, *, upto: int) -> int:
        """Remove matching records up to and including `upto`."""
        work = partial(self._store.purge, SubjectFilter(subject), upto)
        return await self._connection.write("purge", work)
