"""Removes the bytes of forgotten jobs from a full node's replica, once nothing needs them.

Until a job is archived, verdicts may depend on its records: other ops name them, and a node that is
restarted judges by them. So this waits for the archive, as the log itself does, and removes what no
record on the log can depend on any more. It looks whenever something was forgotten or archived.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.families.erasures.ops import JobForget
from antiphon.core.families.erasures.state import is_about
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.mesh.ops import MeshArchive
from antiphon.core.lane_archive import behind
from antiphon.core.proof.answer import Question
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.replica.replica_archive import ReplicaArchive, replicas_until_ms
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.replica.replica_erasures import Forgotten

AT_ONCE: Final = 64
FORGOTTEN: Final = "forgotten"
"""What a question says that was forgotten: it stays known as one."""
AGAIN_S: Final = 30.0
"""After which time a write-ahead log is emptied that a reader needed."""
_log = LazyLogger(__name__)


class RecordEraser:
    """Follows the orders to forget on one full node."""

    def __init__(self, node: FullNode) -> None:
        """What was ordered before is looked at first."""
        self.node = node
        self._woken = asyncio.Event()
        self._woken.set()
        self._is_left = False
        """Whether bytes that were removed may still be in the write-ahead log."""
        self._is_merged = False
        """Whether the index has no word of errors that were removed; a crash may have left some."""
        node.watchers.append(self._applied)

    def _applied(self, applied: Applied) -> None:
        is_ok = applied.verdict is Verdict.OK
        if is_ok and isinstance(applied.opened.op, JobForget | MeshArchive):
            self._woken.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await self.node.ready.wait()
            if self._is_left:
                await asyncio.sleep(AGAIN_S)
            else:
                await self._woken.wait()
            self._woken.clear()
            await self.look()

    async def look(self) -> int:
        """Remove what may go now; the bytes of how many records."""
        node, erased, after, is_full = self.node, 0, 0, True
        control = node.session.control
        if control.archive.seq <= node.applied:  # else this is woken when it is applied
            node.replica.flush()
            while is_full:
                found = node.replica.ask(ReplicaErasures).with_bytes(after=after, limit=AT_ONCE)
                for one in found:
                    erased += self._erase(control, one)
                    await asyncio.sleep(0)
                is_full = len(found) == AT_ONCE
                after = found[-1].at if found else after
        if not self._is_merged:
            await node.replica.ask(ReplicaErasures).merge_texts()
            self._is_left = self._is_merged = True
        if erased or self._is_left:
            self._is_left = not node.replica.ask(ReplicaErasures).empty_write_ahead_log()
        return erased

    def _erase(self, control: Control, one: Forgotten) -> int:
        """Remove what may go of one job."""
        node, before_ms = self.node, control.archive.before_ms
        below, queries = erasable_below(control, one), node.replica.ask(ReplicaArchive)
        if (
            one.lane.job is not None
            and one.lane.job.is_terminal
            and is_about(one.order, one.lane.job)
        ):
            # Nothing is judged by that.
            self._is_merged &= not node.replica.ask(ReplicaErasures).erase_text(one.row)
        if not below or queries.is_awaited(one.kind, one.name):
            return 0
        if replicas_until_ms(node.replica, one.row) >= before_ms:
            return 0
        self._erase_question(one)  # first: a job without records is not looked at again
        erased = node.replica.ask(ReplicaErasures).erase(one, below=below, before_ms=before_ms)
        if erased:
            self._is_merged = False
            _log.info("job_erased", kind=one.kind, job=one.name, records=erased, by=one.order.by)
        return erased

    def _erase_question(self, one: Forgotten) -> None:
        """Remove what people were asked from the state of a job, which the replica keeps."""
        replica = self.node.replica
        lane = job_lane(replica, one.kind, one.name)
        if lane.job is None or lane.job.question is None or not is_about(one.order, lane.job):
            return
        job = replace(lane.job, question=Question(text=FORGOTTEN))
        with replica.ask(ReplicaErasures).zeros():
            replica.put_lane(job_key(one.kind, one.name), replace(lane, state=job))
            replica.flush()


def erasable_below(control: Control, one: Forgotten) -> int:
    """Below which sequence no verdict depends on a forgotten job's records; 0: they all may."""
    job, newest = one.lane.job, control.archive.seq
    if job is not None and not is_about(one.order, job):
        return min(job.scheduled_seq, newest)  # it began again since
    return newest if behind(control, one.lane).state is None else 0
