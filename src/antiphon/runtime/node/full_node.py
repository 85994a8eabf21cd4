"""The full node: follows and verifies the whole log, keeps the replica, answers queries locally.

It applies records in sequence, in batches, and never blocks the event loop for long; signatures
are verified ahead, in threads (`record_verifier.py`). When the
kinds that it may read change, the replica is built again: some records of new kinds are before
its cursor, and jobs of lost kinds would never end. The same if it was away while records were
purged that it had not read. It begins with the newest snapshot, if there is one. Where the log is
shorter than the cursor, or has another record there, it stops with `Corrupt`: what to do about a
restored engine is a decision for a person, not for a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.families.jobs.ops import JobResolve
from antiphon.core.families.jobs.state import HELD, JobLane, State
from antiphon.core.families.seals import SEALS
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.families.seals.state import SealLane
from antiphon.core.family import UNSEEN_ROOT, Lane, Mark, Needs, Reads
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.core.record.op import subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, EngineDenied, LogReplaced, Unavailable
from antiphon.guard import Guard
from antiphon.runtime.attention.item_guard import ItemGuard, reason_of
from antiphon.runtime.log.known_end import find_end
from antiphon.runtime.log.session import Session, dep_of
from antiphon.runtime.log.writer import Intent, Policy, Written, give_up, write
from antiphon.runtime.node import purged_lanes
from antiphon.runtime.node.snapshot_search import newest_snapshot
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.archive.snapshot import Snapshot
    from antiphon.core.families.jobs.priority import Priority
    from antiphon.core.record.op import Op
    from antiphon.ports import Blobs, Record
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.node.record_verifier import RecordVerifier
    from antiphon.runtime.replica.replica import Replica

T = TypeVar("T")

AHEAD: Final = 256
"""Records that are opened ahead of their verdicts; fewer if they are large."""
AHEAD_BYTES: Final = 1024 * 1024
APPLY_SLICE: Final = 16
"""Records that are applied before other tasks get a turn; fewer if they are large."""
APPLY_SLICE_BYTES: Final = 16 * 1024
APPLY_BATCH_BYTES: Final = 1024 * 1024
"""After so much, what was applied is written to the file, and whoever waits for it goes on."""
LONGEST_HOLD_S: Final = 2.0
"""How long a node stands still for something that others need more urgently."""
QUEUES_KEPT: Final = 4096
"""Queues for which the newest answered job is remembered; the most recent ones."""
LONGEST_PAUSE: Final = 6
"""Doublings of the pause while the engine does not return what an op depends on."""


SEAL_LANE: Final = LaneKey(SEALS.name, "", "")
TRIES_WITH_NEW_LOGIN: Final = 20
"""About half a minute."""
LOOKS_FOR_SCOPE: Final = 4
TELL_EVERY_S: Final = 2.0
"""How often a node that is catching up logs its progress."""


_log = LazyLogger(__name__)


class Applied(Struct, frozen=True, gc=False):
    """A record that was just applied, as watchers receive it."""

    record: Record
    opened: OpenedRecord
    verdict: Verdict
    after: Any
    """The state of its lane, with it applied; None where there is no lane, as with control."""
    before: Any = None
    """That state without it."""


Watcher = Callable[[Applied], None]


def parts_of(batch: list[Record]) -> Iterator[list[Record]]:
    """A batch in parts that are small enough to be held opened."""
    part: list[Record] = []
    size = 0
    for record in batch:
        part.append(record)
        size += len(record.payload)
        if len(part) >= AHEAD or size >= AHEAD_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def named_by(op: Op | None) -> tuple[int, ...]:
    """The sequences that an op names."""
    if op is None or (not op.deps and not isinstance(op, JobResolve)):
        return ()
    ends = (seq for _, seq in op.body.children) if isinstance(op, JobResolve) else ()
    return (*(seq for seq, _ in op.deps), *ends)


class FullNode:
    """Keeps one replica up to date with the log."""

    def __init__(
        self,
        session: Session,
        replica: Replica,
        verifier: RecordVerifier | None = None,
        *,
        blobs: Blobs | None = None,
    ) -> None:
        """The replica may contain any prefix of the log, or nothing.

        `verifier` opens records ahead of it, in threads. `blobs` is where snapshots are; None: with
        the engine.
        """
        self._verifier = verifier
        self._blobs = blobs or session.engine.blobs
        self._snapshot: Snapshot | None = None
        """What this node began with, if it did."""
        self._is_behind = False
        """Whether records that it has not read were purged."""
        self.session = session
        self.replica = replica
        self.watchers: list[Watcher] = []
        self.ready = asyncio.Event()
        """Set once everything is applied that was on the log when `run` began."""
        self.applied = 0
        self.snapshot_made = (0, "")
        """The archive of the newest snapshot that was made here, and its digest: seals name it."""
        self.stored_snapshots: list[str] = []
        """Those that this coordinator keeps, oldest first: somebody may be reading one."""
        self.passed: dict[tuple[str, Priority], tuple[int, int]] = {}
        """By kind and priority: the newest announcement that was answered, and when (wall ms)."""
        self.guard = Guard()
        """Counts everybody whom this process answers, over whatever protocol."""
        self._progress = asyncio.Condition()
        self._watched: dict[str, set[asyncio.Event]] = {}
        self._touched: set[str] = set()
        """Names of watched lanes with records that are not written to the replica yet."""
        self._moving = asyncio.Event()
        self._moving.set()
        self._guard = ItemGuard[tuple[str, int]]("records", session, replica.attention)
        self._adopt_scope()

    @property
    def did(self) -> str:
        """The key that it signs with."""
        return self.session.author.did

    async def run(self) -> None:
        """Catch up, then follow until cancelled; start again when the scope changes."""
        log = self.session.log
        goal = await self._begin()
        while True:
            following = log.follow(self.applied)
            if log.reads == self.replica.reads:
                try:
                    async with following as batches:
                        await self._catch_up(batches, goal)
                except EngineDenied:
                    # The server may refuse before the new login is there.
                    if not await self._has_another_scope():
                        raise
                except Unavailable:
                    if not self.replica.tree.is_unfinished:
                        raise
                    # What the snapshot counts on was purged meanwhile: there is a newer one.
                    await self.session.pause(LONGEST_PAUSE)
            goal = await self._patiently(self._begin)

    async def _has_another_scope(self) -> bool:
        for attempt in range(LOOKS_FOR_SCOPE):
            if self.session.log.reads != self.replica.reads:
                return True
            await self.session.pause(attempt)
        return False

    async def _begin(self) -> int:
        """Continue from the replica, or build it again; the sequence to catch up to."""
        await self.resume()
        newest = await self.session.log.last()
        return newest.seq if newest else 0

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read with another login, whose connection may not be open yet, or be cut for a newer."""
        for attempt in range(TRIES_WITH_NEW_LOGIN):
            try:
                return await read()
            except EngineDenied:
                raise
            except Unavailable:
                await self.session.pause(min(attempt, LONGEST_PAUSE))
        return await read()

    async def _read_purged(self) -> None:
        await purged_lanes.read_again(self.session, self.replica)

    async def _catch_up(self, batches: AsyncIterator[list[Record]], goal: int) -> None:
        """Apply what arrives, and log the progress while that takes long."""
        wall = self.session.wall
        told_s = wall.boot_s()
        if self.applied >= goal:
            await self._patiently(self._read_purged)
            self.ready.set()
        async for found in batches:
            batch = self._counting(found)
            if not batch:
                continue
            if await self._has_missed(batch):
                self._is_behind = True
                return
            await self.apply(batch)
            if self.ready.is_set():
                continue
            if self.applied >= goal:
                await self._patiently(self._read_purged)
                self.ready.set()
            elif wall.boot_s() - told_s >= TELL_EVERY_S:
                told_s = wall.boot_s()
                _log.warning("replica_catching_up", applied=self.applied, upto=goal)

    def _adopt_scope(self) -> None:
        """Make the replica one of the kinds that the log shows now."""
        before, reads = self.replica.reads, self.session.log.reads
        if before == reads:
            return
        if self.replica.cursor.seq:
            _log.warning("replica_rebuilding", read=before, reads=reads)
        self.ready.clear()
        self.passed.clear()
        self.replica.begin_anew(reads)

    def _counting(self, batch: list[Record]) -> list[Record]:
        """Without the records before the snapshot's place that no longer count."""
        snapshot = self._snapshot
        if snapshot is None or batch[0].seq > snapshot.head.at:
            return batch
        at = snapshot.head.at
        return [one for one in batch if one.seq > at or snapshot.keeps(one.seq)]

    def _has_gap(self, batch: list[Record]) -> bool:
        """Whether records are missing that a reader of the whole log should find here."""
        if self.replica.reads != WHOLE:
            return False
        at = self._snapshot.head.at if self._snapshot is not None else 0
        found = [max(self.applied, at), *(one.seq for one in batch if one.seq > at)]
        return found[-1] - found[0] != len(found) - 1

    async def _has_missed(self, batch: list[Record]) -> bool:
        """Whether records before these were purged that this node has not read."""
        if self._has_gap(batch):
            return await self._may_begin_anew()
        # One that has just begun looks when it has caught up.
        return self.ready.is_set() and await purged_lanes.missed_some(self.session, self.replica)

    async def _may_begin_anew(self) -> bool:
        """Whether records are missing because they were purged, and a snapshot replaces them."""
        session = self.session
        if not (await session.sync_control()).archives:
            return False
        found = await newest_snapshot(session, self._blobs)
        if found is None or found.head.at <= self.applied:
            raise Corrupt(
                f"records behind {self.applied} were purged, and there is no snapshot of them",
                hint="move the replica's file away, or copy one from another full node",
            )
        _log.warning("replica_rebuilding", applied=self.applied, snapshot=found.head.at)
        return True

    async def _begin_with_snapshot(self) -> None:
        """Begin anew, with the newest snapshot if there is one."""
        self.ready.clear()
        self.passed.clear()
        self._is_behind, reads = False, self.session.log.reads
        snapshot = None
        if reads == WHOLE:
            snapshot = await newest_snapshot(self.session, self._blobs)
        self.replica.begin_anew(reads, snapshot)
        self._snapshot = snapshot
        if snapshot is not None:
            head = snapshot.head
            self.replica.put_lane(SEAL_LANE, head.seals, accepted=head.sealed)
            _log.info("replica_begins", snapshot=snapshot.head.at, records=snapshot.head.size)

    async def resume(self) -> None:
        """Restore the control state from the replica, and check that the log agrees with it."""
        self._adopt_scope()
        replica = self.replica
        is_whole = not (self._is_behind or replica.tree.is_unfinished)
        if (
            replica.cursor.seq == 0
            or not is_whole
            or await purged_lanes.missed_some(self.session, replica)
        ):
            await self._begin_with_snapshot()
        cursor = replica.cursor
        await self.session.feed_control(self.replica.control_records(), cursor.seq)
        self.applied = cursor.seq
        if cursor.seq == 0:
            return
        session = self.session
        seq, known = cursor.seq, cursor.record_digest
        record = await find_end(session.log, seq, session.pause)
        if record is None:  # purged since; control never is
            *_, newest = self.replica.control_records()
            seq, known = newest.seq, digest(newest.payload)
            record = await find_end(session.log, seq, session.pause)
        if record is None or digest(record.payload) != known:
            raise LogReplaced(
                f"record {seq} on the log differs from the one in this replica",
            )

    async def apply(self, batch: list[Record]) -> None:
        """Judge and store a run of records, oldest first."""
        await self._until_moving()
        records = size = unwritten = 0
        async for record, opened in self._opened_ahead(batch):
            await self._apply_one(record, opened)
            records, size = records + 1, size + len(record.payload)
            if records >= APPLY_SLICE or size >= APPLY_SLICE_BYTES:
                unwritten += size
                records = size = 0
                if unwritten >= APPLY_BATCH_BYTES:
                    unwritten = 0
                    await self._written(record.seq)
                await asyncio.sleep(0)
                await self._until_moving()
        await self._written(batch[-1].seq)

    async def _opened_ahead(
        self, batch: list[Record]
    ) -> AsyncIterator[tuple[Record, OpenedRecord | None]]:
        """Each record, opened if somebody does that ahead of this node; a part at a time."""
        verifier = self._verifier
        for part in parts_of(batch):
            ahead = await verifier.open(part) if verifier is not None else [None] * len(part)
            for pair in zip(part, ahead, strict=True):
                yield pair

    async def _until_moving(self) -> None:
        """Stand still while the node is held."""
        if not self._moving.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_HOLD_S):
                    await self._moving.wait()
            self._moving.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Apply nothing beside the block, which has the process to itself; not for long."""
        self._moving.clear()
        try:
            yield
        finally:
            self._moving.set()

    async def _written(self, seq: int) -> None:
        self.replica.flush()
        self.applied = seq
        async with self._progress:
            self._progress.notify_all()
        for name in self._touched:
            for event in self._watched.get(name, ()):
                event.set()
        self._touched.clear()

    @contextmanager
    def watching(self, name: str) -> Iterator[asyncio.Event]:
        """Set when a record was applied on a lane of this name, such as a job's id."""
        event = asyncio.Event()
        self._watched.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._watched[name].discard(event)
            if not self._watched[name]:
                del self._watched[name]

    async def _apply_one(self, record: Record, ahead: OpenedRecord | None) -> None:
        opened = self.session.open(record, ahead)
        if opened.is_control:
            verdict = await self._control_verdict(record)
            self.replica.note(record, verdict)
            self._tell(Applied(record, opened, verdict, None))
            return
        key = opened.place.key if opened.place is not None else None
        if key is not None and key.name in self._watched:
            self._touched.add(key.name)
        before = self._before(key, opened) if key is not None else Lane()
        outcome = self.session.history.settle(before, opened, self._read)
        if outcome.changed:
            self.session.merge(opened)
            self._note_passage(before, outcome.lane)
        elif outcome.verdict is Verdict.SEAL:
            self._tell_mismatch(opened)
        error_text = opened.op.error_text() if outcome.changed and opened.op is not None else ""
        named = named_by(opened.op)
        self.replica.note(record, outcome.verdict, key, outcome.lane, error_text, named)
        if self.watchers:
            self._tell(Applied(record, opened, outcome.verdict, outcome.lane.state, before.state))

    def _before(self, key: LaneKey, opened: OpenedRecord) -> Lane:
        """The lane of a record before it.

        Older seals may have left the log. Who reads only some kinds begins with no snapshot, which
        says what they came to, and takes the first that is left as it says itself.
        """
        lane, family = self.replica.lane(key), opened.family
        if self.replica.reads == WHOLE or any(lane.tails) or opened.op is None or family is None:
            return lane
        return lane if family.lane_before is None else family.lane_before(opened.op)

    async def _control_verdict(self, record: Record) -> Verdict:
        """The verdict on a control record, however long the engine does not answer.

        This session may have confirmed control ops beyond it already.
        """
        for attempt in count():
            try:
                await self.session.feed_control([record], record.seq)
                break
            except Unavailable:
                await self.session.pause(min(attempt, LONGEST_PAUSE))
        return self.session.control_verdicts.get(record.seq, Verdict.MALFORMED)

    def _read(self, needs: Needs) -> Reads:
        """What a verdict needs, from the replica alone."""
        self.replica.flush()
        stored = {seq: self.replica.record(seq) for seq in needs.records}
        protocol = self.session.protocol
        return Reads(
            records={
                seq: dep_of(protocol, found.record)
                if found is not None and found.erased is None
                else None
                for seq, found in stored.items()
            },
            mark=self._own_mark(needs.upto) if needs.upto else None,
            lanes={key: self.replica.lane(key) for key, _ in needs.lanes},
        )

    def look_up(self, seq: int) -> Op | None:
        """The op at a sequence, where it is one that others are judged by."""
        dep = self._read(Needs(records=(seq,))).records[seq]
        return dep.op if dep is not None else None

    def _own_mark(self, upto: int) -> Mark:
        tree = self.replica.tree
        return tree.mark_at(upto, since=self.seals.upto) if tree.is_kept else UNSEEN_ROOT

    @property
    def seals(self) -> SealLane:
        """The seals as of the last record that was applied."""
        return cast("SealLane", self.replica.lane(SEAL_LANE))

    def is_snapshot(self, digest: str) -> bool:
        """Whether these are the bytes of a snapshot that others may begin with: no lane says so."""
        last = self.seals.state
        named = last.snapshot if last is not None else None
        return digest in {named, self.snapshot_made[1], *self.stored_snapshots}

    def _tell_mismatch(self, opened: OpenedRecord) -> None:
        """Log that a seal does not match, as an error."""
        if not isinstance(opened.op, MeshSeal):
            return
        body = opened.op.body
        _log.error(
            "seal_mismatch",
            seal=opened.seq,
            coordinator=opened.op.author,
            upto=body.upto,
            sealed=body.root,
            here=self._own_mark(body.upto).root,
        )

    def _note_passage(self, before: Lane, after: Lane) -> None:
        """Queues hand out in log order: remember how far each one has come."""
        if not isinstance(before, JobLane) or not isinstance(after, JobLane):
            return
        if before.job is None or before.job.state is not State.PENDING or after.job is None:
            return
        if after.job.state in HELD:
            queue = (after.job.kind, after.job.priority)
            reached = max(after.call_tail, self.passed.get(queue, (0, 0))[0])
            self.passed.pop(queue, None)
            self.passed[queue] = (reached, self.session.wall.now_ms())
            if len(self.passed) > QUEUES_KEPT:
                del self.passed[next(iter(self.passed))]

    def _tell(self, applied: Applied) -> None:
        for watcher in self.watchers:
            try:
                watcher(applied)
            except Exception as problem:  # noqa: BLE001 - a watcher must not end the node
                name = getattr(watcher, "__qualname__", type(watcher).__name__)
                self._guard.put((name, applied.record.seq), reason_of(problem), problem=problem)

    async def reached(self, seq: int) -> None:
        """Wait until the record with this sequence is applied."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.applied >= seq)

    async def write(self, intent: Intent) -> Written:
        """Write what the replica calls for, unless another record comes first; its verdict.

        Nothing is read for it: the node sees its own record when it follows the log.
        """
        return (await self.write_all([intent]))[0].check()

    async def write_all(self, intents: Sequence[Intent]) -> list[Written]:
        """The same for several that are independent of one another; each result has its problem."""
        policy = Policy(again=give_up, foresees=True, insists=False, look=self._look_back)
        return await write(self.session, [await self._placed(one) for one in intents], policy)

    async def _placed(self, intent: Intent) -> Intent:
        """With what it follows, where only the log knows whether that was purged."""
        lane, session = intent.lane, self.session
        if lane is None or intent.prev is not None:
            return intent
        lane = session.behind(lane)
        floor = lane.floor if lane.state is not None else session.control.archive.seq
        is_known = lane.state is not None or any(lane.tails) or self.replica.tree.base > 0
        if not floor or not is_known:
            return intent  # nothing was ever there
        subject = subject_of(session.compose(intent.op, intent.body, prev=0))
        place, last = session.protocol.place_of(subject), 0
        if place is None or lane.tails[place.slot] > floor:
            return intent
        async for page in session.log.read_lane([subject]):
            last = page[-1].seq
        return replace(intent, prev=last)

    async def _look_back(self, _session: Session, _draft: Draft, sent: Written) -> Written:
        await self.reached(sent.seq)
        stored = self.replica.record(sent.seq) if sent.seq else None
        return sent if stored is None else replace(sent, verdict=stored.verdict)
