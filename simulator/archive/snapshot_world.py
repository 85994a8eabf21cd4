"""The same log with full nodes: the coordinator's makes snapshots, others begin with one.

The coordinator archives, makes snapshots, seals and purges by the real services. Other full nodes
begin at any time and read slowly, so that lanes go while they are being read; some read only jobs;
some stop, and come back hours later with what they had. Once such a node has caught up, it is held
against the coordinator's node and against the laws' own reader, which forgets nothing:

    all_agree       every lane is in the same state, every record has the same verdict
    same_root       a node that reads everything comes to the same root
    it_begins       a node that reads a log which nobody damaged gets to its end
    snapshot_whole  no node that has read everything misses something in the coordinator's snapshot
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.lane_archive import behind
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.archive.record_eraser import RecordEraser
from antiphon.runtime.archive.snapshot_audit import SnapshotAudit
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.replica.replica import Replica
from simulator.archive.archive_world import ArchiveWorld

if TYPE_CHECKING:
    from antiphon.ports import Record
    from antiphon.runtime.log.session import Session

AT_ONCE: Final = 3
"""Nodes that read beside the coordinator's."""
JOBS_ONLY: Final = ("ctl.>", "jobs.>", "plan.>", "forget.>", "seal")
LONGEST_READ_S: Final = 3_000.0
"""Between two parts of the log."""
PATIENCE_S: Final = 10 * 24 * 3_600.0


class Visitor:
    """A full node that came to the log."""

    def __init__(self, session: Session, mesh: str, *, reads: tuple[str, ...]) -> None:
        """It has read nothing."""
        self.session = session
        self.replica = Replica(":memory:", mesh=mesh)
        self.reads = reads
        self.begin()

    def begin(self) -> None:
        """Read on with what it has."""
        self.node = FullNode(self.session, self.replica)
        self.audit, self.eraser = SnapshotAudit(self.node), RecordEraser(self.node)
        self.running = asyncio.ensure_future(self.node.run())

    async def stop(self) -> None:
        """As if its process had ended."""
        self.running.cancel()
        await asyncio.wait([self.running])
        self.replica._load()  # noqa: SLF001 - what was not written is gone
        self.replica.tree.load(self.replica.cursor.seq)


class SnapshotWorld(ArchiveWorld):
    """One mesh whose coordinator's services run, and full nodes that come and go."""

    async def _begin(self) -> None:
        self.replica = Replica(":memory:", mesh=self.mesh)
        self.node = FullNode(self.session(0), self.replica)
        self.running = asyncio.ensure_future(self.node.run())
        self.archiver = Archiver(self.node, Archiving(every_s=600, is_purging=True))
        self.sealer, self.eraser = Sealer(self.node, bar_s=1), RecordEraser(self.node)
        self.visitors: list[Visitor] = []
        self.away: list[Visitor] = []
        await self.node.ready.wait()

    async def _end_all(self) -> None:
        for one in self.visitors:
            await self._compare(one)
        for task in (self.running, *(one.running for one in (*self.visitors, *self.away))):
            task.cancel()
            with suppress(asyncio.CancelledError, AntiphonError):
                await task
        for replica in (self.replica, *(one.replica for one in (*self.visitors, *self.away))):
            replica.close()

    def _menu(self) -> list[tuple[int, Callable[[], Awaitable[object]]]]:
        dropped = {"_hand_over", "_purge", "_archive"}
        return [
            *((weight, deed) for weight, deed in super()._menu() if deed.__name__ not in dropped),
            (4, self._archive_and_seal),
            (6, self._purge_some),
            (5, self._arrive),
            (4, self._leave),
            (6, self._meet),
        ]

    async def _caught_up(self) -> None:
        last = await self.node.session.log.last()
        await self.node.reached(last.seq if last is not None else 0)

    async def _archive_and_seal(self) -> None:
        await self._caught_up()
        await self.archiver.archive()
        if self.chance.random() < 0.9:
            await self.archiver.make_snapshot()
        if self.chance.random() < 0.8:
            await self._caught_up()
            await self.sealer.seal()

    async def _purge_some(self) -> None:
        """Everything that may go; others read meanwhile."""
        await self._caught_up()
        if self.chance.random() < 0.5:
            await self.sealer.seal()
            await self._caught_up()
        self.purged += await self.archiver.purge()

    async def _arrive(self) -> None:
        """Somebody new, or somebody comes back."""
        if len(self.visitors) >= AT_ONCE:
            return
        if self.away and self.chance.random() < 0.6:
            back = self.away.pop(self.chance.randrange(len(self.away)))
            back.begin()
            self.visitors.append(back)
            return
        session = self.session(2)
        reads = self.chance.choice([WHOLE, WHOLE, JOBS_ONLY])
        self._slow(session, reads)
        self.visitors.append(Visitor(session, self.mesh, reads=reads))

    def _slow(self, session: Session, reads: tuple[str, ...]) -> None:
        """Let a log be read a few records at a time, and only what is in scope."""
        log: Any = session.log
        log.reads, chance = reads, self.chance
        stems = tuple(f"ap.{self.mesh}.{one.rstrip('>')}" for one in reads)

        def is_seen(record: Record) -> bool:
            return reads == WHOLE or record.subject.startswith(stems)

        @asynccontextmanager
        async def followed(after: int) -> AsyncIterator[AsyncIterator[list[Record]]]:
            async def parts() -> AsyncIterator[list[Record]]:
                seen = after
                while True:
                    page = await log.read(seen, limit=chance.randrange(1, 12))
                    found = [one for one in page.records if is_seen(one)]
                    seen = page.records[-1].seq if page.records else seen
                    if found:
                        yield found
                    await asyncio.sleep(chance.choice([0.01, 0.01, LONGEST_READ_S]))

            yield parts()

        async def last() -> Record | None:
            return self.store.at(self._last_seen(reads, max(self.laws.records)))

        log.follow, log.last = followed, last

    async def _leave(self) -> None:
        """Somebody stops, perhaps in the middle of the log."""
        if self.visitors:
            one = self.visitors.pop(self.chance.randrange(len(self.visitors)))
            await one.stop()
            self.away.append(one)

    async def _meet(self) -> None:
        """Compare one that has arrived."""
        if self.visitors:
            await self._compare(self.chance.choice(self.visitors))

    async def _compare(self, one: Visitor) -> None:
        await self._caught_up()
        last = await self.node.session.log.last()
        goal = last.seq if last is not None else 0
        visible = self._last_seen(one.reads, goal)
        waiting = asyncio.ensure_future(self._reached(one, visible))
        await asyncio.wait(
            [waiting, one.running], return_when="FIRST_COMPLETED", timeout=PATIENCE_S
        )
        if not waiting.done():
            waiting.cancel()
            why = one.running.exception() if one.running.done() else "it waits"
            self.laws.break_("it_begins", f"a full node does not get to record {goal}: {why}")
            return
        self.joined += 1
        self.erased += await one.eraser.look()
        self._compare_lanes(one)
        if await one.audit.look() and one.audit.left_out:
            self.laws.break_("snapshot_whole", f"a snapshot leaves out {one.audit.left_out[0]}")
        if one.reads == WHOLE and one.replica.cursor.seq == self.replica.cursor.seq:
            here = self.replica.tree.mark_at(goal)
            if one.replica.tree.mark_at(goal) != here:
                self.laws.break_("same_root", f"a full node has another root up to record {goal}")

    def _last_seen(self, reads: tuple[str, ...], goal: int) -> int:
        stems = tuple(f"ap.{self.mesh}.{one.rstrip('>')}" for one in reads)
        seen = (
            seq
            for seq, record in self.laws.records.items()
            if seq <= goal and self.store.at(seq) is not None
            if reads == WHOLE or record.subject.startswith(stems)
        )
        return max(seen, default=0)

    @staticmethod
    async def _reached(one: Visitor, seq: int) -> None:
        await one.node.reached(seq)
        await one.node.ready.wait()
        await one.node.reached(seq)

    def _compare_lanes(self, one: Visitor) -> None:
        one.replica.flush()
        control = self.laws.control
        for key in self.laws.lanes:
            if key.family == "seals" or (one.reads != WHOLE and key.family != "jobs"):
                continue
            found, truth = behind(control, one.replica.lane(key)), self.laws.lane(key)
            if found.state != truth.state:
                seen, here = found.state is not None, truth.state is not None
                what = f"a full node finds {key.name[:8]} otherwise: {seen}, not {here}"
                self.laws.break_("all_agree", what)
                return
        for seq, known in self.laws.verdicts.items():
            stored = one.replica.record(seq)
            if stored is None or Verdict.UNSEEN in (known, stored.verdict):
                continue
            if stored.verdict is not known and one.reads == WHOLE:
                what = f"a full node says {stored.verdict.value} of record {seq}, not {known.value}"
                self.laws.break_("all_agree", what)
                return


class ForgettingWorld(SnapshotWorld):
    """The same, and some jobs are forgotten: nodes erase what they may, and no law notices."""

    def _menu(self) -> list[tuple[int, Callable[[], Awaitable[object]]]]:
        return [*super()._menu(), (3, self._forget)]

    async def _forget(self) -> None:
        """Somebody has a job forgotten that was once on the log; the coordinator's node erases."""
        jobs = [key for key in self.laws.lanes if key.family == "jobs"]
        if jobs:
            key = self.chance.choice(jobs)
            await forget(self.members[0], key.kind, key.name)
        await self._caught_up()
        self.erased += await self.eraser.look()
