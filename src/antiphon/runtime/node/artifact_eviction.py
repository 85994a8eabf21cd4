"""Evicts artifacts: a finished job's outputs are kept for as long as a rule says (spec §12).

Runs beside every full node and acts only where the node's own key is the coordinator. It writes
an eviction for each output whose time is over, and for those of jobs that were forgotten. It
removes the bytes of every evicted output, whoever evicted it, unless another job still needs them.
While a job waits for this one, nothing is evicted. The record of the output stays.

A job's stored arguments and checkpoints go with its outputs; checkpoints that newer ones replaced
go while it still runs. A job that was archived is empty for everybody: what it stored goes at the
same time, without a record. Any scheduler can name any digest as arguments, and any worker as a
checkpoint, so those bytes are removed only if they begin as such: somebody else's file stays.
Any worker can name any digest as its output, and seals tell everybody those of the mesh's
snapshots: whatever names them, they stay.

Bytes are removed a while after their eviction: a node that was just storing the same bytes has
named them by then. What is left to remove is in the replica, so a crash loses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.families.jobs.ops import EvictBody, JobEvict
from antiphon.core.families.jobs.state import Job, job_key
from antiphon.core.inference.snapshot import SNAPSHOT_BEGINS
from antiphon.errors import AntiphonError, Corrupt, EngineDenied, Rejected
from antiphon.runtime.attention.item_guard import ItemGuard
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.replica.replica_archive import ReplicaArchive
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_lane
from antiphon.runtime.replica.replica_records import ReplicaBlobs
from antiphon.runtime.values.checkpoint_bytes import CHECKPOINT_BEGINS
from antiphon.runtime.values.signature import CALL_BEGINS
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import JobLane
    from antiphon.core.family import Evicted
    from antiphon.ports import Blobs
    from antiphon.runtime.node.full_node import FullNode

ROUND_S: Final = 30.0
GRACE_S: Final = 60.0
"""Between an eviction and the removal of the bytes."""
JOBS_PER_ROUND: Final = 64
BLOBS_PER_ROUND: Final = 1_024
CHECKPOINTS_PER_ROUND: Final = 512
BEGINS: Final = {
    "output": (),
    "arguments": (CALL_BEGINS,),
    "checkpoint": (CHECKPOINT_BEGINS, SNAPSHOT_BEGINS),
}
"""How the bytes begin that are named so."""

log = LazyLogger(__name__)


class Evictor:
    """Evicts and removes for one mesh, if its full node is the coordinator."""

    def __init__(
        self,
        node: FullNode,
        *,
        blobs: Blobs | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        """`blobs` is where artifacts are stored; None: with the engine."""
        self.node = node
        self.blobs = blobs or node.session.engine.blobs
        self.grace_s = grace_s
        self.guard = ItemGuard[str]("artifacts", node.session, node.replica.attention)

    async def run(self) -> None:
        """Evict and remove until cancelled."""
        self.guard.begin()
        while True:
            await asyncio.sleep(ROUND_S * (0.5 + self.node.session.entropy.random()))
            await self.node.ready.wait()  # records not read yet may need what looks evictable
            try:
                await self.look()
            except EngineDenied as denied:
                log.warning("artifact_removal_denied", problem=denied.message)
                if self.blobs is self.node.session.engine.blobs:
                    return  # a coordinator that is a member can only evict
                # A bucket also says so while a clock is wrong, or a key is being replaced.
            except AntiphonError as problem:
                log.warning("evictor_waits", problem=problem.message)

    async def look(self) -> None:
        """One round: first what is due, then what was evicted a while ago."""
        node = self.node
        now_ms = node.session.wall.now_ms()
        control = node.session.history.newest(now_ms)
        if control is None or control.coordinator != node.session.author.did:
            return
        node.replica.flush()  # who waits for a job is asked of the file
        due_ms = now_ms - control.rules.artifact_ttl_ms
        aside = len(self.guard.aside)
        limit = JOBS_PER_ROUND + aside
        for job in (
            *node.replica.ask(ReplicaErasures).with_stored(limit=limit),
            *node.replica.ask(ReplicaJobs).kept_before(due_ms, limit=limit),
        ):
            await self._evict(job, job.stored)
        left = CHECKPOINTS_PER_ROUND
        for job in node.replica.ask(ReplicaJobs).with_replaced(limit=JOBS_PER_ROUND + aside):
            await self._evict(job, job.replaced[:left])
            left -= len(job.replaced[:left])
        past_ms = now_ms - round(self.grace_s * 1000)
        for evicted in node.replica.ask(ReplicaBlobs).evicted_before(
            past_ms, limit=BLOBS_PER_ROUND + aside
        ):
            if not self.guard.rests(evicted.digest):
                with self.guard.about(evicted.digest):
                    await self._remove(evicted)
                    self.guard.drop(evicted.digest)

    async def _evict(self, job: Job, digests: tuple[str, ...]) -> None:
        key = f"{job.kind} {job.id}"
        if self.guard.rests(key):
            return
        if job.is_terminal and self.node.replica.ask(ReplicaArchive).is_awaited(job.kind, job.id):
            self.guard.rest(key)  # its result is named as read only once that job is offered
            return
        with self.guard.about(key):
            await self._write_evictions(job, digests)
            self.guard.drop(key)

    async def _write_evictions(self, job: Job, digests: tuple[str, ...]) -> None:
        node = self.node
        lane = job_lane(node.replica, job.kind, job.id)
        if node.session.behind(lane).state is None and lane.job is not None:
            self._forget_archived(lane, lane.job)
            return
        for digest in digests:
            lane = job_lane(node.replica, job.kind, job.id)
            body = EvictBody(kind=job.kind, job=job.id, hash=digest)
            if (await node.write(Intent(JobEvict, body, lane))).verdict is None:
                return  # another record came first: next time

    def _forget_archived(self, lane: JobLane, job: Job) -> None:
        """Give up what an archived job stored: on an empty lane there is nothing to write about."""
        over = replace(job, stored=(), evicted=tuple(dict.fromkeys((*job.evicted, *job.stored))))
        key, now_ms = job_key(job.kind, job.id), self.node.session.wall.now_ms()
        self.node.replica.put_lane(key, replace(lane, state=over), at_ms=now_ms)
        self.node.replica.flush()

    async def _remove(self, evicted: Evicted) -> None:
        replica, digest = self.node.replica, evicted.digest
        if replica.ask(ReplicaBlobs).is_needed(digest):
            pass
        elif self.node.is_snapshot(digest):
            log.warning("artifact_is_snapshot", digest=digest, named_as=evicted.named_as)
        elif not await self._begins(digest, BEGINS[evicted.named_as]):
            log.warning("artifact_is_something_else", digest=digest, named_as=evicted.named_as)
        else:
            await self.blobs.remove(digest)
            log.info("artifact_removed", digest=digest)
        replica.ask(ReplicaBlobs).settle_eviction(digest)

    async def _begins(self, digest: str, with_: tuple[bytes, ...]) -> bool:
        """Whether the bytes of this digest begin in one of these ways; with none, they do."""
        if not with_:
            return True
        longest = max(map(len, with_))
        begin = b""
        try:
            async with self.blobs.get(digest) as chunks:
                async for chunk in chunks:
                    begin += chunk
                    if len(begin) >= longest:
                        break
        except (Rejected, Corrupt):  # not stored: nothing to remove; or damaged: it is not that
            return False
        return begin.startswith(with_)
