"""Writes `mesh.archive` from time to time, makes snapshots, and purges what was emptied (§7.5).

It runs beside a full node that is the coordinator. An archive is one small record. When it is on
the log, this decides which lanes go: those that it emptied, if no record of theirs is younger than
the archive's time (an op may still depend on it), no lane that stays names them, and no job waits
for them. A snapshot says what is left. Lanes are purged when a seal names the snapshot, so whoever
finds records missing finds the snapshot too. One that a reader would refuse is not announced, so no
seal names it. Whatever keeps lanes from being purged is told to people (`antiphon attention`).

Purging takes requests to the engine, each of which costs about as much as a write, so they are made
a few at a time and with pauses. A coordinator that begins makes its first archive after a while:
ticks of plans that passed while none ran are derived first. Those below an archive's time would be
refused, so an archive stays behind what plans and quorums still have to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.archive import snapshot as snapshots
from antiphon.core.archive.snapshot import TOO_LARGE, Head, Snapshot, left_out, ranges
from antiphon.core.derivations.purge_plan import OldLane, Purge, purges
from antiphon.core.families.erasures import ERASURES
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.core.lane_archive import behind
from antiphon.core.proof.merkle import HASH_BYTES
from antiphon.core.record import subjects
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, EngineDenied, Unreadable
from antiphon.read_back import read_back, read_back_stored
from antiphon.runtime.attention.item_guard import ItemGuard, reason_of
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import SEAL_LANE
from antiphon.runtime.node.snapshot_search import stored_snapshot
from antiphon.runtime.replica.replica_archive import OldRow, ReplicaArchive, replicas_until_ms
from antiphon.runtime.replica.replica_waits import ReplicaWaits
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.seals.state import SealLane
    from antiphon.core.family import Family
    from antiphon.ports import Blobs
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.replica.replica_table import LaneTable

LANES_AT_ONCE: Final = 2_000
"""Lanes of one family that are looked at for one round of purges."""
ALONE_AT_ONCE: Final = 16
"""Requests for one lane each that are made at once: one by one, most of their time is waiting."""
LANES_PER_SLICE: Final = 200
HASHES_PER_SLICE: Final = 64
"""What is looked at before other tasks get a turn."""
SHARE: Final = 0.2
"""Of the engine's time for this coordinator's requests, what purges take at most."""
KEPT: Final = 1
"""Snapshots that stay from before the newest seal's: somebody may be reading one."""
SEALED_WITHIN_S: Final = 120.0
BLOCK_BYTES: Final = 256 * 1024
LONGEST_HOLD_MS: Final = 24 * 3_600_000
"""How long something that is still to be written may keep an archive from moving on."""
SERVICE: Final = "purges"
"""What attention and `antiphon doctor` call this."""
_log = LazyLogger(__name__)

Unwritten = Callable[[], int | None]
"""The time of the oldest tick or cause from which something is still to be derived."""


class Archiving(Struct, frozen=True):
    """How a coordinator archives."""

    every_s: float
    is_purging: bool = False
    """Whether what was archived is purged."""


class Archiver:
    """Archives and purges beside one full node."""

    def __init__(
        self,
        node: FullNode,
        archiving: Archiving,
        *,
        blobs: Blobs | None = None,
        unwritten: Unwritten = lambda: None,
        copied: Callable[[], float] = lambda: inf,
    ) -> None:
        """Nothing is archived yet. Snapshots go to `blobs`; None: to the engine's.

        `copied` says how many records are in the archive's files: only those are purged.
        """
        self.node = node
        self.archiving = archiving
        self.blobs = blobs or node.session.engine.blobs
        self.unwritten = unwritten
        self.copied = copied
        self.guard = ItemGuard[str](SERVICE, node.session, node.replica.attention)
        self.requests = 0
        self.purged = 0
        """Purge requests, and the records that they removed."""
        self.purging_s = 0.0
        """What these requests took."""
        self.snapshot: Snapshot | None = None
        """The newest that was made here."""
        self._going: set[int] = set()
        """The rows of the lanes that it leaves out."""
        self._seals: tuple[int, SealLane] | None = None
        """The newest archive that was applied while this ran, and the seals there."""
        node.watchers.append(self._applied)

    async def run(self) -> None:
        """Go on until cancelled."""
        self.guard.begin()
        await self.node.ready.wait()
        tries = 0
        while True:
            chance = self.node.session.entropy.random()
            await asyncio.sleep(self.archiving.every_s * (0.9 + chance / 5))
            tries += 1
            try:
                await self.look()
            except EngineDenied as denied:
                _log.warning("archiver_denied", problem=denied.message)
                self.guard.tell(f"nothing is purged: {reason_of(denied)}", denied, tries)
                if self.blobs is self.node.session.engine.blobs:
                    return  # a coordinator that is a member may not purge
                # A bucket also says so while a clock is wrong, or a key is being replaced.
            except AntiphonError as problem:
                _log.warning("archiver_waits", problem=problem.message)
                self.guard.tell(f"nothing is purged: {reason_of(problem)}", problem, tries)
            else:
                tries = 0
                self.guard.recovered()

    async def look(self) -> None:
        """One round: first what the last one could not finish, then an archive."""
        if not self._is_due():
            self.guard.begin()  # whoever coordinates now says what is wrong
            return
        if self.archiving.is_purging:
            await self.purge()
            self._tell_unsealed()
        if not self.node.replica.ask(ReplicaArchive).has_old(self._archivable()):
            return  # nothing could leave
        if not await self.archive():
            self.guard.put("archive", "its record was rejected: nothing leaves the log behind it")
            return
        self.guard.drop("archive")
        if self.archiving.is_purging and await self._has_snapshot():
            await self._until_sealed()
            await self.purge()
            self._tell_unsealed()

    async def _has_snapshot(self) -> bool:
        """Make a snapshot; whether there is one. People are told if readers would refuse it."""
        try:
            made = await self.make_snapshot()
        except Unreadable as problem:
            remedy = "check the disk or the bucket that has the mesh's stored values"
            if problem.reason == TOO_LARGE:
                remedy = "watch its disk, and delete documents (antiphon memory delete)"
            self.guard.put(
                "snapshot",
                f"{problem.message}; until one can be read, nothing is purged and the log grows:"
                f" {remedy}",
                problem=problem,
            )
            return False
        if made is not None:
            self.guard.drop("snapshot")
        return made is not None

    def _tell_unsealed(self) -> None:
        """Tell people if the newest snapshot still cannot be relied on; if it can, no longer."""
        newest = self.snapshot
        if newest is None or newest.head.at != self._control.archive.seq or self._is_sealed:
            self.guard.drop("seal")
            return
        why = f"no seal names {_what(newest.head)} yet"
        if self.copied() < newest.head.size:
            why = f"the archive does not have all that {_what(newest.head)} leaves out"
        self.guard.put("seal", f"{why}; until then nothing is purged and the log grows")

    async def _until_sealed(self) -> None:
        """Wait until a seal names the snapshot; not for ever: the next round looks again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(SEALED_WITHIN_S, self.archiving.every_s)):
                while self.snapshot is not None and not self._is_sealed:
                    await self.node.reached(self.node.applied + 1)

    def _archivable(self) -> list[LaneTable]:
        """The lanes that can leave the log."""
        session, replica = self.node.session, self.node.replica
        found = [one for one in session.protocol.families if one.is_asked_again is not None]
        return [replica.tables[family.name] for family in found]

    @property
    def _control(self) -> Control:
        return self.node.session.control

    def _is_due(self) -> bool:
        return self._control.coordinator == self.node.did

    def _applied(self, applied: Applied) -> None:
        if isinstance(applied.opened.op, MeshArchive) and applied.verdict is Verdict.OK:
            self._seals = (applied.record.seq, self.node.seals)

    # --- archives ---------------------------------------------------------------------------------

    async def archive(self) -> bool:
        """Write an archive, as late as the rules and what is unwritten allow; whether it counts."""
        session, control = self.node.session, self._control
        # A little less than allowed: its stamp may be earlier than this machine's time.
        now_ms = session.now_by_both_clocks_ms() - control.rules.max_drift_ms
        rules, last = control.rules, control.archive
        limit_ms = now_ms - rules.retention_ms
        for unwritten_ms in (self.unwritten(), self._unresolved_ms()):
            if unwritten_ms is not None and unwritten_ms > limit_ms - LONGEST_HOLD_MS:
                limit_ms = min(limit_ms, unwritten_ms - 1)
        body = ArchiveBody(
            before=max(last.before_ms, limit_ms, 0),
            memo_before=max(last.memo_before_ms, min(limit_ms, now_ms - rules.horizon_ms), 0),
        )
        await session.sync_control()
        written = await write_one(session, Intent(MeshArchive, body))
        await self.node.reached(written.seq)
        return written.verdict is Verdict.OK

    def _unresolved_ms(self) -> int | None:
        """Until when the oldest job may have replicas that waits for them: these stay, too."""
        oldest = self.node.replica.ask(ReplicaWaits).replicated(0, limit=1)
        return max(one.replica_until_ms for one in oldest) if oldest else None

    # --- snapshots --------------------------------------------------------------------------------

    async def make_snapshot(self) -> Snapshot | None:
        """A snapshot at the newest archive, stored where seals name it.

        None where the archive was applied before this began: the next one is waited for.
        `Unreadable` if readers would refuse it.
        """
        node, archive = self.node, self._control.archive
        if self._seals is None or self._seals[0] != archive.seq or not node.replica.tree.is_kept:
            return None
        node.replica.flush()
        going = await self._find_going(archive.seq)
        head = await self._head(archive.seq, self._seals[1], going)
        snapshot = Snapshot(head, await self._hashes(head))
        data = snapshot.encoded()
        name = digest(data)
        await self._store(snapshot, data, name)
        node.snapshot_made = (archive.seq, name)
        self.snapshot, self._going = snapshot, going
        await self._remove_older(name)
        _log.info("snapshot_made", at=archive.seq, bytes=len(data), going=len(going))
        return snapshot

    async def _hashes(self, head: Head) -> bytes:
        """The hashes of what is left out. They take long, so limits are checked on the way."""
        read_back(_what(head), None, snapshots.check_head, head)
        found: list[bytes] = []
        for level, place in left_out(head.size, head.kept):
            found.append(self.node.replica.tree.subtree(level, place))
            if len(found) % HASHES_PER_SLICE == 0:
                read_back(_what(head), None, snapshots.check_size, len(found) * HASH_BYTES)
                await asyncio.sleep(0)
        return b"".join(found)

    async def _store(self, snapshot: Snapshot, data: bytes, name: str) -> None:
        """Store a snapshot where readers find it, and read it there.

        `Unreadable` if they would refuse it; then it is removed.
        """
        await self.blobs.put(_blocks(data), digest=name)
        what = _what(snapshot.head)
        try:
            await read_back_stored(what, snapshot, stored_snapshot, self.blobs, name)
        except Unreadable:
            if not self.node.is_snapshot(name):
                await self.blobs.remove(name)
            raise

    async def _find_going(self, at: int) -> set[int]:
        """The lanes that the newest archive lets go."""
        node, going = self.node, set[int]()
        for family in node.session.protocol.families:
            if family.is_asked_again is None:
                continue
            after, is_full, table = 0, True, node.replica.tables[family.name]
            while is_full:
                found = node.replica.ask(ReplicaArchive).old(
                    table, at, limit=LANES_PER_SLICE, after=after
                )
                going |= {one.row for one in found if self._may_go(family, one)}
                is_full = len(found) == LANES_PER_SLICE
                after = found[-1].first if found else after
                await asyncio.sleep(0)
        return going

    def _may_go(self, family: Family, one: OldRow) -> bool:
        """Whether all of a lane's records below the archive may leave the log."""
        control, queries = self._control, self.node.replica.ask(ReplicaArchive)
        lane, before_ms = behind(control, one.lane), control.archive.before_ms
        floor = control.archive.seq if lane.state is None else lane.floor
        if one.last >= floor or one.newest_ms > before_ms or queries.is_named(one.row):
            return False
        if family.follows is not None and queries.is_awaited(one.kind, one.name):
            return False
        if family is ERASURES and queries.is_on_log(job_key(one.kind, one.name)):
            return False  # whoever begins with the snapshot is to forget the job, too
        return replicas_until_ms(self.node.replica, one.row) < before_ms

    async def _head(self, at: int, seals: SealLane, going: set[int]) -> Head:
        """What a snapshot says besides hashes."""
        replica = self.node.replica
        queries, tree = replica.ask(ReplicaArchive), replica.tree
        beside = going | {replica.row_of(SEAL_LANE)}
        kept = [one.seq for one in replica.control_records() if one.seq <= at]
        after = 0
        while True:
            found, after = queries.records_upto(at, after=after, lanes=LANES_PER_SLICE)
            kept += [seq for lane, seq in found if lane not in beside]
            if not after:
                break
            await asyncio.sleep(0)
        size = tree.size_at(at)
        head = Head(
            mesh=self.node.session.mesh,
            at=at,
            size=size,
            root=tree.root_at(size).hex(),
            kept=(),
            gaps=tuple(queries.gaps(at)),
            seals=seals,
            sealed=replica.accepted_upto(SEAL_LANE, at),
        )
        return replace(head, kept=ranges(map(head.leaf, sorted(kept))))

    async def _remove_older(self, newest: str) -> None:
        """Snapshots that were made here before the one that seals name, but the last of them."""
        last, stored = self.node.seals.state, self.node.stored_snapshots
        named = last.snapshot if last is not None else None
        if named and named not in stored:
            stored.insert(0, named)  # of a coordinator before this one
        if newest not in stored:
            stored.append(newest)
        while named in stored and stored.index(named) > KEPT:
            await self.blobs.remove(stored.pop(0))

    # --- purging ----------------------------------------------------------------------------------

    @property
    def _is_sealed(self) -> bool:
        """Whether the newest seal names the newest archive's snapshot, which was made here.

        And whether all that it leaves out is in the archive's files.
        """
        node, at = self.node, self._control.archive.seq
        last = node.seals.state
        if self.snapshot is None or last is None or self.snapshot.head.at != at:
            return False
        if self.copied() < self.snapshot.head.size:
            return False
        return last.snapshot == node.snapshot_made[1] and last.upto >= at

    async def purge(self) -> int:
        """Purge everything that may go now; how many records that were."""
        node, before = self.node, self.purged
        if not self._is_due() or not self._is_sealed:
            return 0
        node.replica.flush()
        for family in node.session.protocol.families:
            if family.is_asked_again is not None:
                await self._purge_family(family, self._control.archive.seq)
        await self._purge_seals()
        return self.purged - before

    async def _purge_seals(self) -> None:
        """Seals below the snapshot, which has what they come to, if no reader may lack them."""
        session, replica, archive = self.node.session, self.node.replica, self._control.archive
        row, queries = replica.row_of(SEAL_LANE), replica.ask(ReplicaArchive)
        # Whoever has read up to the archive's time has read them all: as with other lanes.
        before_ms = archive.before_ms - 2 * archive.drift_ms
        upto = queries.newest_upto(row, min(archive.seq, self.node.seals.tail), before_ms)
        if upto and self._is_due():
            seals = Purge(subjects.seal(session.mesh), upto, (SEAL_LANE.name,))
            await self._request([seals], {SEAL_LANE.name: row})

    async def _purge_family(self, family: Family, at: int) -> None:
        """Page by page, by where the lanes begin: each kind together until one that stays."""
        replica, session = self.node.replica, self.node.session
        lines: dict[str, int] = {}
        after, is_full = 0, bool(self._going)
        while is_full and self._is_due():
            old = replica.ask(ReplicaArchive).old(
                replica.tables[family.name], at, limit=LANES_AT_ONCE, after=after
            )
            is_full = len(old) == LANES_AT_ONCE and bool(self._going)
            after = old[-1].first if old else after
            for kind, rows in groupby(sorted(old, key=_kind), key=_kind):
                found = list(rows)
                ids = {one.name: one.row for one in found}
                lanes = [
                    OldLane(one.name, one.first, one.last, one.row in self._going) for one in found
                ]
                staying = [one.first for one in lanes if not one.is_gone]
                if staying:
                    lines.setdefault(kind, min(staying))
                line = lines.get(kind, after if is_full else at)
                steps = purges(session.mesh, family, kind, lanes, below=at, line=line)
                for turn in _turns(steps):
                    await self._request(turn, ids)

    async def _request(self, turn: Sequence[Purge], rows: Mapping[str, int]) -> None:
        """Make requests that may go at once; `rows` by the names of their lanes."""
        session, replica = self.node.session, self.node.replica
        began_s = session.wall.boot_s()
        removed = await asyncio.gather(
            *(session.log.purge(step.subject, upto=step.upto) for step in turn)
        )
        self.purged += sum(removed)
        self.requests += len(turn)
        for step in turn:
            gone = [rows[name] for name in step.lanes]
            replica.ask(ReplicaArchive).went(gone, step.upto)
            self._going.difference_update(gone)
        took_s = session.wall.boot_s() - began_s
        self.purging_s += took_s
        await asyncio.sleep(took_s * (1 / SHARE - 1))


def _turns(steps: Sequence[Purge]) -> Iterator[Sequence[Purge]]:
    """Lanes that go alone do not matter to each other; what is purged together comes after them."""
    alone = [one for one in steps if len(one.lanes) == 1]
    for first in range(0, len(alone), ALONE_AT_ONCE):
        yield alone[first : first + ALONE_AT_ONCE]
    yield from ([one] for one in steps if len(one.lanes) > 1)


def _what(head: Head) -> str:
    return f"the snapshot at record {head.at:,}"


def _kind(one: OldRow) -> str:
    return one.kind


async def _blocks(data: bytes) -> AsyncGenerator[bytes]:
    for first in range(0, len(data), BLOCK_BYTES):
        yield data[first : first + BLOCK_BYTES]
