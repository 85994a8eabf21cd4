"""Writes `mesh.archive` from time to time, and purges what it emptied (spec §7.5).

It runs beside a full node that is the coordinator. An archive is one small record; purging takes
requests to the engine, each of which costs about as much as a write, so they are made a few at a
time and with pauses. A lane is purged when a seal covers the archive, if no record of it is younger
than the archive's time (an op may still depend on it), and after every lane that names it.

A coordinator that has just begun waits for a while before its first archive: ticks of plans that
passed while none ran are derived first, and those below an archive's time would be refused.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.derivations.purge_plan import OldLane, Purge, purges
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.replicas import until_ms
from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.core.lane_archive import behind
from antiphon.core.opened_record import open_anywhere
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.replica.replica_archive import OldRow, ReplicaArchive
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.family import Family
    from antiphon.runtime.node.full_node import FullNode

LANES_AT_ONCE: Final = 2_000
"""Lanes of one family that are looked at for one round of purges."""
SHARE: Final = 0.2
"""Of the engine's time for this coordinator's requests, what purges take at most."""
_log = LazyLogger(__name__)


class Archiving(Struct, frozen=True):
    """How a coordinator archives."""

    every_s: float
    is_purging: bool = False
    """Whether what was archived is purged. New full nodes cannot read what is gone, so this is for
    logs of which somebody keeps a copy."""


class Archiver:
    """Archives and purges beside one full node."""

    def __init__(self, node: FullNode, archiving: Archiving) -> None:
        """Nothing is archived yet."""
        self.node = node
        self.archiving = archiving
        self.requests = 0
        self.purged = 0
        """Purge requests, and the records that they removed."""

    async def run(self) -> None:
        """Go on until cancelled."""
        await self.node.ready.wait()
        while True:
            chance = self.node.session.entropy.random()
            await asyncio.sleep(self.archiving.every_s * (0.9 + chance / 5))
            try:
                if self._is_due():
                    await self.archive()
                if self.archiving.is_purging:
                    await self.purge_all()
            except AntiphonError as problem:
                _log.warning("archiver_waits", problem=problem.message)

    @property
    def _control(self) -> Control:
        return self.node.session.control

    def _is_due(self) -> bool:
        return self._control.coordinator == self.node.did

    async def archive(self) -> bool:
        """Write an archive, as late as the rules allow; whether it was accepted."""
        session, control = self.node.session, self._control
        # A little less than allowed: its stamp may be earlier than this machine's time.
        now_ms = session.now_by_both_clocks_ms() - control.rules.max_drift_ms
        rules, last = control.rules, control.archive
        body = ArchiveBody(
            before=max(last.before_ms, now_ms - rules.retention_ms, 0),
            memo_before=max(last.memo_before_ms, now_ms - rules.horizon_ms, 0),
        )
        await session.sync_control()
        written = await write_one(session, Intent(MeshArchive, body))
        await self.node.reached(written.seq)
        return written.verdict is Verdict.OK

    async def purge_all(self) -> None:
        """Purge until nothing is left that may go."""
        has_more = True
        while has_more:
            has_more = await self.purge()

    async def purge(self) -> bool:
        """One round of requests; whether there may be more to do."""
        node, archive = self.node, self._control.archive
        if not self._is_due() or not archive.seq or node.seals.upto < archive.seq:
            return False
        node.replica.flush()
        has_more = False
        for family in node.session.protocol.families:
            if family.is_asked_again is not None:
                has_more |= await self._purge_family(family, archive.seq)
        return has_more

    async def _purge_family(self, family: Family, below: int) -> bool:
        replica = self.node.replica
        old = replica.ask(ReplicaArchive).old(
            replica.tables[family.name], below, limit=LANES_AT_ONCE
        )
        if len(old) == LANES_AT_ONCE:
            below = old[-1].first  # lanes behind this one are not known here
        before = self.requests
        for kind, rows in groupby(sorted(old, key=_kind), key=_kind):
            found = list(rows)
            lanes = [
                OldLane(one.name, one.first, one.last, one.last < below and self._may_go(one))
                for one in found
            ]
            ids = {one.name: one.row for one in found}
            for step in purges(self.node.session.mesh, family, kind, lanes, below=below):
                await self._request(step, [ids[name] for name in step.lanes])
        return len(old) > 0 and self.requests > before

    async def _request(self, step: Purge, rows: list[int]) -> None:
        wall = self.node.session.wall
        began_s = wall.boot_s()
        self.purged += await self.node.session.log.purge(step.subject, upto=step.upto)
        self.requests += 1
        self.node.replica.ask(ReplicaArchive).went(rows, step.upto)
        await asyncio.sleep((wall.boot_s() - began_s) * (1 / SHARE - 1))

    def _may_go(self, one: OldRow) -> bool:
        """Whether all of a lane's records below the archive may leave the log."""
        control, queries = self._control, self.node.replica.ask(ReplicaArchive)
        lane, before_ms = behind(control, one.lane), control.archive.before_ms
        floor = control.archive.seq if lane.state is None else lane.floor
        if one.last >= floor or one.newest_ms > before_ms or queries.is_named(one.row):
            return False
        return all(
            self._until_ms(payload) < before_ms for payload in queries.with_replicas(one.row)
        )

    def _until_ms(self, payload: bytes) -> int:
        """Until when replicas may name this schedule, accepted or not."""
        session = self.node.session
        op = open_anywhere(session.protocol, session.mesh, payload).op
        return until_ms(op) if isinstance(op, JobSchedule) else 0


def _kind(one: OldRow) -> str:
    return one.kind
