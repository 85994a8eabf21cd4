"""Full nodes look whether a snapshot keeps what it must, and name what it leaves out (spec §7.5).

A node that begins with a snapshot cannot know which records an archive took: it believes the
coordinator. Whoever has read the whole log can tell. A snapshot must keep every control record, the
records of every lane that its archive did not empty, and those that are younger than the archive's
time, which ops may still name. Nobody but the owner can replace a coordinator, so what is missing
is logged as an error and kept for whoever looks (`antiphon doctor`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.seals import SEALS
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.lane_archive import behind
from antiphon.core.record.branches import CONTROL, LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.attention.item_guard import ItemGuard
from antiphon.runtime.node.snapshot_search import newest_snapshot
from antiphon.runtime.replica.replica_archive import ReplicaArchive
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.archive.snapshot import Snapshot
    from antiphon.core.authority.control import Control
    from antiphon.ports import Blobs
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.replica.replica_archive import LiveRow

AT_ONCE: Final = 200
LEFT_OUT_KEPT: Final = 100
"""What is missing from one snapshot; more of it is not looked for."""
AGAIN_S: Final = 60.0
TRIES: Final = 10
_log = LazyLogger(__name__)


class LeftOut(Struct, frozen=True):
    """A record that a snapshot does not keep, although it counts."""

    coordinator: str
    at: int
    """The snapshot's place."""
    key: LaneKey
    seq: int


class SnapshotAudit:
    """Looks at every snapshot that a seal names, beside one full node."""

    def __init__(self, node: FullNode, *, blobs: Blobs | None = None) -> None:
        """`blobs` is where snapshots are; None: with the engine."""
        self.node = node
        self.left_out: deque[LeftOut] = deque(maxlen=LEFT_OUT_KEPT)
        self._blobs = blobs or node.session.engine.blobs
        self._guard = ItemGuard[tuple[str, str]](
            "snapshot audit", node.session, node.replica.attention
        )
        self._named, self._seen = "", ""
        """The digest of the newest snapshot that a seal names, and of the last one looked at."""
        self._woken = asyncio.Event()
        node.watchers.append(self._applied)

    def _applied(self, applied: Applied) -> None:
        op = applied.opened.op
        if isinstance(op, MeshSeal) and applied.verdict is Verdict.OK:
            self._named = op.body.state or ""
            if self._named != self._seen:
                self._woken.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        tries = 0
        while True:
            await self._woken.wait()
            await self.node.ready.wait()
            self._woken.clear()
            try:
                await self.look()
            except AntiphonError as problem:
                _log.warning("snapshot_audit_waits", problem=problem.message)
                tries += 1
                if tries < TRIES:
                    await asyncio.sleep(AGAIN_S)
                    self._woken.set()
            else:
                tries = 0

    async def look(self) -> bool:
        """Look at the newest snapshot; False if this node cannot, or there is none."""
        node = self.node
        if not node.replica.tree.is_kept or node.replica.tree.is_filling:
            return False
        snapshot = await newest_snapshot(node.session, self._blobs)
        if snapshot is None or snapshot.head.at > node.applied:
            return False
        archives = node.session.control.archives
        control = next(one for one in archives if one.archive.seq == snapshot.head.at)
        node.replica.flush()
        found = 0
        for key, seq in self._control_left_out(snapshot):
            self._tell(control, key, seq)
            found += 1
        for family in node.session.protocol.families:
            if not family.is_control and family is not SEALS:
                found += await self._lanes(control, snapshot, family.name)
        self._seen = self._named
        _log.info("snapshot_audited", at=snapshot.head.at, left_out=found)
        return True

    def _control_left_out(self, snapshot: Snapshot) -> Iterator[tuple[LaneKey, int]]:
        for record in self.node.replica.control_records():
            if record.seq <= snapshot.head.at and not snapshot.keeps(record.seq):
                yield LaneKey(CONTROL, "", record.subject), record.seq

    async def _lanes(self, control: Control, snapshot: Snapshot, family: str) -> int:
        """How many lanes of a family lack something."""
        queries, table = self.node.replica.ask(ReplicaArchive), self.node.replica.tables[family]
        after, is_full, found = 0, True, 0
        while is_full:
            rows = queries.live(table, after=after, limit=AT_ONCE)
            emptied: list[int] = []
            for one in rows:
                seq = self._first_left_out(control, snapshot, one)
                if seq:
                    self._tell(control, LaneKey(family, one.kind, one.name), seq)
                    found += 1
                elif (
                    behind(control, one.lane).state is None
                    and max(one.lane.tails) < snapshot.head.at
                ):
                    emptied.append(one.row)
            queries.not_live(emptied)
            is_full = len(rows) == AT_ONCE
            after = rows[-1].row if rows else after
            await asyncio.sleep(0)
        return found

    def _first_left_out(self, control: Control, snapshot: Snapshot, one: LiveRow) -> int:
        """The first record of a lane that should have been kept; 0 if there is none."""
        lane, archive = behind(control, one.lane), control.archive
        is_empty = lane.state is None
        records = self.node.replica.ask(ReplicaArchive).stamps(one.row, archive.seq)
        for seq, stamp_ms in records:
            counts = not is_empty and seq > lane.floor
            if (counts or stamp_ms > archive.before_ms) and not snapshot.keeps(seq):
                return seq
        return 0

    def _tell(self, control: Control, key: LaneKey, seq: int) -> None:
        coordinator, at = control.coordinator, control.archive.seq
        self.left_out.append(LeftOut(coordinator, at, key, seq))
        what = f"the snapshot at record {at} by {coordinator} leaves out record {seq}"
        self._guard.note((key.kind, key.name), what, whose=coordinator)
        _log.error("snapshot_leaves_out", at=at, coordinator=coordinator, lane=key, record=seq)
