"""What a replica knows about jobs that were forgotten, and how it loses their bytes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antiphon.core.families.erasures.state import Erasure, ErasureLane, is_about
from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.record.ids import digest
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.replica.replica import Queries
from antiphon.runtime.replica.replica_texts import ReplicaTexts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator

_SECURE_DELETE: Final = ("off", "on", "fast")
"""How SQLite numbers them."""
ORDERS_AT_ONCE: Final = 256
"""Orders that are read without a pause."""
BUSY_MS: Final = 100
"""How long readers may keep the write-ahead log from being emptied; then it is tried again."""
_order: Final = msgspec.msgpack.Decoder(ErasureLane)
_lane: Final = msgspec.msgpack.Decoder(JobLane)


class Forgotten(NamedTuple):
    """A job that was forgotten, with records here that still have their bytes."""

    at: int
    """The order's row."""
    row: int
    """The job's."""
    kind: str
    name: str
    order: Erasure
    lane: JobLane


class ReplicaErasures(Queries):
    """Questions about orders to forget, and carrying them out."""

    def order(self, kind: str, job_id: str) -> Erasure | None:
        """The newest order to forget a job; None if there is none."""
        found = self._db.execute(
            "select body from lanes_erasures where name = ? and kind = ?", (job_id, kind)
        ).fetchone()
        return None if found is None else _order.decode(found[0]).state

    def about(self, job: Job) -> Erasure | None:
        """The order to forget this job; None if it was not forgotten.

        Whoever shows what a job was given, said or returned asks this first.
        """
        order = self.order(job.kind, job.id)
        return order if order is not None and is_about(order, job) else None

    def orders(self, jobs: Collection[Job]) -> dict[str, Erasure]:
        """Those of these jobs that were forgotten, by their ids."""
        found = ((job, self.about(job)) for job in jobs)
        return {job.id: one for job, one in found if one is not None}

    async def all(self) -> AsyncIterator[tuple[str, str, Erasure]]:
        """Every order that is still known here, with the kind and the id of its job."""
        after, is_full = 0, True
        while is_full:
            rows = self._db.execute(
                "select id, kind, name, body from lanes_erasures where id > ? order by id limit ?",
                (after, ORDERS_AT_ONCE),
            ).fetchall()
            for after, kind, name, body in rows:  # noqa: B007 - the next page begins behind it
                order = _order.decode(body).state
                if order is not None:
                    yield kind, name, order
            is_full = len(rows) == ORDERS_AT_ONCE
            await asyncio.sleep(0)

    def lane(self, kind: str, job_id: str) -> JobLane:
        """The lane of a job, as it is in the file."""
        found = self._db.execute(
            "select body from lanes_jobs where name = ? and kind = ?", (job_id, kind)
        ).fetchone()
        return JobLane() if found is None else _lane.decode(found[0])

    def records(self, first: int, last: int) -> list[tuple[int, Erasure, JobLane]]:
        """The records of forgotten jobs between two sequences, both included."""
        rows = self._db.execute(
            "select r.seq, e.body, j.body from lanes_erasures e"
            " cross join lanes_jobs j on j.name = e.name and j.kind = e.kind"
            " cross join records r on r.lane = j.id and r.seq between ? and ?",
            (first, last),
        )
        read = ((seq, _order.decode(order).state, _lane.decode(lane)) for seq, order, lane in rows)
        return [(seq, order, lane) for seq, order, lane in read if order is not None]

    def with_bytes(self, *, after: int, limit: int) -> list[Forgotten]:
        """Forgotten jobs of which some record has its bytes, in the order of their orders' rows."""
        rows = self._db.execute(
            "select e.id, j.id, e.kind, e.name, e.body, j.body from lanes_erasures e"
            " join lanes_jobs j on j.name = e.name and j.kind = e.kind where e.id > ? and exists"
            " (select 1 from records r where r.lane = j.id and length(r.payload) > 0)"
            " order by e.id limit ?",
            (after, limit),
        )
        read = ((*row[:4], _order.decode(row[4]).state, _lane.decode(row[5])) for row in rows)
        return [Forgotten(*one) for one in read if one[4] is not None]

    def with_stored(self, *, limit: int) -> list[Job]:
        """Forgotten jobs that have something in the blob store."""
        rows = self._db.execute(
            "select e.body, j.body from lanes_erasures e join lanes_jobs j on j.name = e.name"
            " and j.kind = e.kind where j.kept_ms is not null"
        )
        read = ((_order.decode(order).state, _lane.decode(lane).job) for order, lane in rows)
        # Those that began again since are no column of a table: they must not hide others.
        found = (job for order, job in read if order and job is not None and is_about(order, job))
        try:
            return [*islice(found, limit)]
        finally:
            rows.close()

    def erase(self, one: Forgotten, *, below: int, before_ms: int) -> int:
        """Remove the bytes of a job's records below a sequence and up to a time; how many.

        SQLite overwrites them with zeros. What they were is left: their digests, whose order it
        was, and when.
        """
        upto = (one.row, below, (before_ms + 1) * NANOSECONDS_PER_MS)
        which = "lane = ? and seq < ? and stamp_ns < ? and length(payload) > 0"
        with self._overwriting():
            rows = self._db.execute(
                f"select seq, payload from records where {which}",  # noqa: S608 - our own words
                upto,
            ).fetchall()
            by = (one.order.by, one.order.at_ms)
            self._db.executemany(
                "insert into erased values (?, ?, ?, ?)",
                [(seq, digest(bytes(payload)), *by) for seq, payload in rows],
            )
            self._db.execute(f"update records set payload = x'' where {which}", upto)  # noqa: S608 - the same
            ReplicaTexts(self._db).erase(seq for seq, _ in rows)
            former = "delete from former where family = 'jobs' and kind = ? and name = ?"
            self._db.execute(former, (one.kind, one.name))
        return len(rows)

    def erase_text(self, row: int) -> bool:
        """Remove the error of a job, so that nobody finds the job by its words; if there is one."""
        (found,) = self._db.execute("select first_seq from lanes_jobs where id = ?", (row,))
        texts = ReplicaTexts(self._db)
        if not texts.has(*found):
            return False
        with self._overwriting():
            texts.erase(found)
        return True

    async def merge_texts(self) -> None:
        """Have the words of errors that were removed leave the index, too."""
        if not self._db.execute("select exists (select 1 from lanes_erasures)").fetchone()[0]:
            return
        steps, is_over = ReplicaTexts(self._db).merge(), object()
        while True:
            with self.zeros():
                if next(steps, is_over) is is_over:
                    return
            await asyncio.sleep(0)

    @contextmanager
    def _overwriting(self) -> Iterator[None]:
        """One transaction in which SQLite overwrites with zeros what is removed."""
        with self.zeros():
            self._db.execute("begin immediate")
            try:
                yield
                self._db.execute("commit")
            except BaseException:
                self._db.execute("rollback")
                raise

    @contextmanager
    def zeros(self) -> Iterator[None]:
        """SQLite overwrites with zeros what transactions in the block remove."""
        (before,) = self._db.execute("pragma secure_delete").fetchone()
        self._db.execute("pragma secure_delete = on")
        try:
            yield
        finally:
            self._db.execute(f"pragma secure_delete = {_SECURE_DELETE[before]}")

    def empty_write_ahead_log(self) -> bool:
        """Remove copies of pages from the file beside this one; False if a reader needs them."""
        (before,) = self._db.execute("pragma busy_timeout").fetchone()
        self._db.execute(f"pragma busy_timeout = {BUSY_MS}")
        try:
            (is_busy, *_) = self._db.execute("pragma wal_checkpoint(truncate)").fetchone()
        finally:
            self._db.execute(f"pragma busy_timeout = {before}")
        return not is_busy
