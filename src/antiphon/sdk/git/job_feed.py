"""What changed on a mesh's jobs since a place in the log, read from the local replica.

A reader that is told `after` a cursor gets the whole lives of the jobs that changed since, and the
next cursor. A cursor names a record by its digest too: a log that was restored from an older copy
is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.families.jobs.state import Job, JobLane, job_key
from antiphon.errors import LogReplaced, Malformed, Misconfigured, Rejected
from antiphon.ports import Record
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.replica.replica import Queries
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.git.job_history import JobHistory, history_of
from antiphon.sdk.proofs import bundles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.mesh import Mesh

RECORDS_AT_ONCE: Final = 2_000
BUNDLES_AT_ONCE: Final = 50
_decode: Final = msgspec.msgpack.Decoder(JobLane).decode


class Cursor(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a reader has come."""

    seq: int = 0
    record_digest: str = ""
    bundled: int = 0
    """Up to which record the bundles of ended jobs were read."""


class Changes(Struct, frozen=True, kw_only=True):
    """The jobs that changed, and where to go on."""

    histories: list[JobHistory]
    cursor: Cursor
    is_all: bool
    """Whether there was nothing more on the log."""


class SealedBundle(Struct, frozen=True, kw_only=True):
    """The bundle of a job that ended."""

    history: JobHistory
    data: bytes
    """What `antiphon export` writes."""
    upto: int
    """The last record that its seal covers."""


class Bundles(Struct, frozen=True, kw_only=True):
    """Bundles in the order in which their jobs ended, and where to go on."""

    found: list[SealedBundle]
    failed: list[tuple[str, str]]
    """Jobs whose bundle could not be made, and why."""
    bundled: int
    is_all: bool


class _JobChanges(Queries):
    """Jobs in the order in which something happened to them."""

    def changed(self, after: int, *, limit: int) -> list[tuple[int, str | None, str | None]]:
        """The next records: their sequence, and the kind and id of the job that they are about."""
        return self._db.execute(
            "select r.seq, j.kind, j.name from records r left join lanes_jobs j on j.id = r.lane"
            " where r.seq > ? order by r.seq limit ?",
            (after, limit),
        ).fetchall()

    def accepted(self, kind: str, job: str) -> Iterator[Record]:
        """The records of a job that took effect, oldest first."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, payload from records where verdict = 'ok' and lane ="
            " (select id from lanes_jobs where name = ? and kind = ?) order by seq",
            (job, kind),
        )
        return (Record(*row) for row in rows)

    def called(self, job: str) -> list[Job]:
        """The jobs with this id, one of each kind, the oldest first."""
        rows = self._db.execute(
            "select body from lanes_jobs where name = ? order by first_seq", (job,)
        )
        found = (_decode(body).job for (body,) in rows)
        return [one for one in found if one is not None]

    def ended(self, after: int, upto: int, *, limit: int) -> list[Job]:
        """Jobs that ended after a record and not after another, the earliest first."""
        rows = self._db.execute(
            "select body from lanes_jobs where ended_seq is not null and ended_seq > ?"
            " and ended_seq <= ? order by ended_seq limit ?",
            (after, upto, limit),
        )
        found = (_decode(body).job for (body,) in rows)
        return [one for one in found if one is not None]


class JobFeed:
    """The jobs that this machine may read."""

    def __init__(self, mesh: Mesh) -> None:
        """The mesh is open."""
        self._mesh = mesh

    @asynccontextmanager
    async def reading(self, after: Cursor) -> AsyncIterator[JobReader]:
        """A reader over what is on the log now; `LogReplaced` if the cursor is not on it."""
        async with self._mesh.replica() as replica:
            reader = JobReader(replica, self._mesh)
            reader.check(after)
            yield reader

    @asynccontextmanager
    async def growth(self) -> AsyncIterator[AsyncIterator[object]]:
        """Something whenever the log has grown, at most a few times in a second."""
        async with self._mesh.watching(per_s=2) as events:
            yield events


class JobReader:
    """Reads one state of the local replica."""

    def __init__(self, replica: Replica, mesh: Mesh) -> None:
        """Made by `JobFeed`."""
        self._replica = replica
        self._mesh = mesh
        self._jobs = replica.ask(_JobChanges)

    @property
    def mesh(self) -> str:
        """The mesh's id."""
        return self._replica.mesh

    @property
    def is_whole(self) -> bool:
        """Whether it has every record, as bundles need it, and not only some kinds."""
        return self._replica.reads == WHOLE

    def check(self, cursor: Cursor) -> None:
        """`LogReplaced` if the log does not have the cursor's record."""
        if not cursor.seq:
            return
        stored = self._replica.record(cursor.seq)
        if stored is None and self._replica.tree.is_before_snapshot(cursor.seq):
            return  # the replica began anew since
        if stored is None or stored.digest != cursor.record_digest:
            raise LogReplaced(
                f"the log has another record at {cursor.seq:,} than when it was last read, or none:"
                " it was restored from an older copy, or this is another mesh",
                hint="antiphon git serve REPO --again compares every job with this log",
            )

    async def changes(self, after: Cursor) -> Changes:
        """The lives of the jobs that changed after a cursor, those of the next few records.

        Without those that were forgotten: Git keeps for good what is once written there.
        """
        rows = self._jobs.changed(after.seq, limit=RECORDS_AT_ONCE)
        keys = dict.fromkeys((kind, job) for _, kind, job in rows if kind and job)
        found: list[JobHistory] = []
        for number, (kind, job) in enumerate(keys):
            if number % 16 == 0:
                await asyncio.sleep(0)
            called = self._replica.ask(ReplicaJobs).job(kind, job)
            if called is not None and self._replica.ask(ReplicaErasures).about(called) is not None:
                continue
            history = self.history(kind, job)
            if history is not None:
                found.append(history)
        cursor = self._cursor_at(rows[-1][0], after.bundled) if rows else after
        return Changes(histories=found, cursor=cursor, is_all=len(rows) < RECORDS_AT_ONCE)

    def history(self, kind: str, job: str) -> JobHistory | None:
        """The life of one job; None if there is no such job."""
        called = self._jobs.called(job)
        found = next((one for one in called if one.kind == kind), None)
        if found is None:
            return None
        is_first = called[0].kind == kind
        return history_of(self._replica.mesh, found, self._opened(kind, job), is_first=is_first)

    async def has_left(self, job: str) -> bool:
        """Whether a job that the replica does not have may be one that left the log.

        A replica that began with a snapshot does not know; then the archive is asked, and where
        there is none, nobody can say that there was no such job.
        """
        from antiphon.sdk.archive.archived_end import archived_end
        from antiphon.sdk.archive.archives import has_archive

        if not self._replica.tree.base:
            return False
        try:
            home = self._mesh.home.path
            return not await has_archive(home) or await archived_end(home, "", job) is not None
        except (Misconfigured, Rejected):
            return True  # there is no state directory, or it was erased there

    def _opened(self, kind: str, job: str) -> Iterator[OpenedRecord]:
        protocol, mesh = self._replica.protocol, self._replica.mesh
        return (open_stored(protocol, mesh, one) for one in self._jobs.accepted(kind, job))

    def _cursor_at(self, seq: int, bundled: int) -> Cursor:
        stored = self._replica.record(seq)
        return Cursor(seq, stored.digest if stored is not None else "", bundled)

    async def bundles(self, after: Cursor) -> Bundles:
        """The bundles of the next jobs that ended, as far as a seal covers them."""
        upto = await bundles.sealed_upto(self._replica)
        jobs = self._jobs.ended(after.bundled, min(upto, after.seq), limit=BUNDLES_AT_ONCE)
        found: list[SealedBundle] = []
        failed: list[tuple[str, str]] = []
        for job in jobs:
            await asyncio.sleep(0)
            history = self.history(job.kind, job.id)
            try:
                made = await bundles.sealed_bundle(self._replica, job_key(job.kind, job.id))
            except (Malformed, Rejected) as problem:
                failed.append((job.id, problem.message))
                continue
            if history is not None and made is not None:
                data, covered = made
                found.append(SealedBundle(history=history, data=data, upto=covered))
        bundled = jobs[-1].ended_seq if jobs else after.bundled
        is_all = len(jobs) < BUNDLES_AT_ONCE
        return Bundles(found=found, failed=failed, bundled=bundled, is_all=is_all)
