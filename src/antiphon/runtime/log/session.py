"""The session: one node's reads, verdicts and writes on one mesh's log.

Everything above it (worker, full node, client) uses a `Session`, so there is one place where a
read-set is loaded, one where an unknown outcome is resolved, and one where a clock is merged. It
decides nothing: verdicts come from `antiphon.core`.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import lane_archive, opened_record
from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.authority.control import Control
from antiphon.core.authority.rules import RETENTION_LEAST_MS
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.families.jobs.state import job_key
from antiphon.core.family import UNSEEN_ROOT, Dep, Lane, Needs, Reads
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.opened_record import OpenedRecord, placed
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.record import subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import message_id
from antiphon.core.record.op import Op, subject_of
from antiphon.core.record.verdict import ABOUT_TIME, Verdict
from antiphon.core.reducer import Outcome, judge, settled
from antiphon.errors import (
    AntiphonError,
    Corrupt,
    Unavailable,
)
from antiphon.ports import Append
from antiphon.runtime.log import acting
from antiphon.runtime.log.appending import append
from antiphon.runtime.log.entry_search import Entered, EntrySearch
from antiphon.runtime.log.known_end import KnownEnd
from antiphon.runtime.log.lane_reader import JobView, LaneReader, LaneView
from antiphon.runtime.rate_books import RateBooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from antiphon.core.clock.hlc import Hlc
    from antiphon.core.policy.circuit_breaker import CircuitBreaker
    from antiphon.core.protocol import Protocol
    from antiphon.ports import Engine, Entropy, Record, WallClock
    from antiphon.runtime.log.author import Author, Draft

PAUSED_PATIENCE_S: Final = 60.0
"""How long a write waits for the end of a pause (docs/decisions/0061)."""
RETRY_BASE_MS: Final = 50
RETRY_CAP_MS: Final = 2_000
OPENED_KEPT: Final = 4096
OPENED_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Verified records that are cached for their second use, and their total size."""
DEPS_KEPT: Final = 4096
DEPS_KEPT_BYTES: Final = 1024 * 1024
"""Records named by ops, and the total size of their subjects: naming one again costs no read."""
FIRST_KEPT: Final = 1024
SENT_KEPT: Final = 64
"""Records of ours whose stamps show the time when they come back."""


def open_stored(protocol: Protocol, mesh: str, record: Record) -> OpenedRecord:
    """A record of the log, opened by the core."""
    return opened_record.open_record(
        protocol, mesh, record.seq, record.commit_ms, record.subject, record.payload
    )


def dep_of(protocol: Protocol, record: Record) -> Dep:
    """A record as a dependency of the op that names it."""
    return opened_record.dep_of(protocol, record.subject, record.payload, record.commit_ms)


_ControlKnown = tuple[Control, int]
"""A control state, and the newest control record known then: grants and revocations are seen by
every state, also by those that were there before them."""


def _let_it_fail(begun: asyncio.Task[None]) -> None:
    """A read begun ahead may fail silently: the code that needs it starts it again and sees why."""
    if not begun.cancelled():
        begun.exception()


class Session:
    """A node that reads and writes one mesh's log through one engine with one key."""

    def __init__(self, engine: Engine, author: Author, wall: WallClock, entropy: Entropy) -> None:
        """Nothing is read before `sync_control`."""
        self.engine = engine
        self.log = engine.log
        self.author = author
        self.mesh = author.mesh
        self.wall = wall
        self.entropy = entropy
        self.protocol = author.protocol
        self.history = ControlHistory(self.protocol, author.mesh)
        self._drift_ms = author.clock.max_drift_ms
        self._end = KnownEnd(engine, self.pause)
        self._confirmed = 0
        self._confirming: asyncio.Task[None] | None = None
        self._wanted = 0
        self._feeding = asyncio.Lock()
        self._control_watchers: list[Callable[[], None]] = []
        self.control_verdicts: dict[int, Verdict] = {}
        """Verdicts on all control records: a replica that is rebuilt needs every one."""
        self._opened = BoundedCache[int, tuple[bytes, OpenedRecord]](
            most=OPENED_KEPT, most_bytes=OPENED_KEPT_BYTES
        )
        self._first = BoundedCache[int, tuple[OpenedRecord, Lane, _ControlKnown, Outcome]](
            most=FIRST_KEPT, most_bytes=0
        )
        """First records of lanes and their verdicts, until the lanes are read back."""
        self._deps = BoundedCache[int, Dep](most=DEPS_KEPT, most_bytes=DEPS_KEPT_BYTES)
        self._sent: dict[bytes, tuple[int, float]] = {}
        self.last_pause_s = -math.inf
        """When the mesh was last seen to have paused this node (seconds since boot)."""
        self.breaker: CircuitBreaker | None = None
        """What `guarded` asks; None: every request is tried."""
        self.key_names: Callable[[], dict[str, str]] = dict
        """The names of this machine's keys, by their ids."""
        self.is_over = False
        """Whether whoever opened the mesh has closed it."""
        self.written = RateBooks(engine.messages, wall.now_ms, acting.ALLOWED, name="written")
        """What is written and stored for others, by party."""
        self.lanes = LaneReader(self, author.did)
        self._entry_search = EntrySearch(self)
        self._chain_choice = ChainChoice(author.did)

    # --- our own ops ------------------------------------------------------------------------------

    def compose(
        self, op_type: type[Op], body: Struct, *, prev: int, deps: tuple[tuple[int, str], ...] = ()
    ) -> Op:
        """An op as it would be drafted right now, unsigned."""
        auth, hlc = self.choose_auth(op_type, body), self.author.now()
        return self.author.compose(op_type, body, prev=prev, hlc=hlc, auth=auth, deps=deps)

    def compose_behind(
        self,
        op_type: type[Op],
        body: Struct,
        lane: Lane,
        *,
        hlc: Hlc,
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Op:
        """An op that follows the last one on its subject of this lane, unsigned."""
        auth = self.choose_auth(op_type, body)
        op = self.author.compose(op_type, body, prev=0, hlc=hlc, auth=auth, deps=deps)
        place = self.protocol.place_of(subject_of(op))
        prev = lane.tails[place.slot] if place is not None else 0
        return replace(op, prev=prev) if prev else op

    def draft(
        self,
        op_type: type[Op],
        body: Struct,
        *,
        prev: int,
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Draft:
        """A signed op of ours, with the delegations that permit it.

        `Rejected` if whoever it is written for could not write it.
        """
        auth = self.choose_auth(op_type, body)
        if acting.acting() is not None:
            hlc = self.author.now()
            self.check_acting(self.author.compose(op_type, body, prev=prev, hlc=hlc, auth=auth))
        return self.author.draft(op_type, body, prev=prev, auth=auth, deps=deps)

    def check_acting(self, op: Op) -> None:
        """`Rejected` if whoever this process writes for now could not write such an op."""
        now_ms = self.wall.now_ms()
        acting.check(op, control=self.control, protocol=self.protocol, now_ms=now_ms)

    def choose_auth(self, op_type: type[Op], body: Struct) -> tuple[str, ...]:
        """The delegations that such an op of ours would name now."""
        now_ms = self.wall.now_ms()
        control = self.history.newest(now_ms)
        return () if control is None else self._chain_choice.choose(control, op_type, body, now_ms)

    # --- records ------------------------------------------------------------------------------

    def open(self, record: Record, ahead: OpenedRecord | None = None) -> OpenedRecord:
        """A record of the log, opened by the core; `ahead` if that has been done already.

        Bytes that this process signed, or opened a moment ago, are not verified again: a light
        worker reads each schedule twice and each record of its own once.
        """
        known, commit_ms = self._opened.get(record.seq), record.commit_ms
        if known is not None and known[0] == record.payload and known[1].subject == record.subject:
            opened = known[1]
            if opened.seq == record.seq and opened.commit_ms == commit_ms:
                return opened
            self._tell_time(record)
            return placed(opened, record.seq, commit_ms)
        self._tell_time(record)
        opened = ahead or open_stored(self.protocol, self.mesh, record)
        if record.seq > self._end.seq:
            self._end.saw(record.seq, record.payload)
        if opened.op is not None:
            self._opened.put(record.seq, (record.payload, opened), len(record.payload))
        return opened

    def forget_own(self, seq: int) -> None:
        """Open and verify this record as somebody else's when it is read next."""
        self._opened.drop(seq)

    def _tell_time(self, record: Record) -> None:
        """Every stamp is the engine's time. For a record just sent it is an upper bound, too."""
        time, drift_ms, commit_ms = self.author.mesh_time, self._drift_ms, record.commit_ms
        time.saw(commit_ms, max_drift_ms=drift_ms)
        sent = self._sent.pop(record.payload, None) if self._sent else None
        if sent is not None:
            stamp_ms, boot_s = sent
            time.told(commit_ms, stamp_ms, sent_boot_s=boot_s, max_drift_ms=drift_ms)

    # --- control ------------------------------------------------------------------------------

    @property
    def control(self) -> Control:
        """The newest control state; `Unavailable` before the genesis was read."""
        current = self.history.newest(self.wall.now_ms())
        if current is None:
            raise Unavailable(
                f"mesh {self.mesh} has no genesis yet",
                hint="is this the right mesh? 'antiphon doctor' shows what is on the engine",
            )
        return current

    @property
    def confirmed(self) -> int:
        """The sequence up to which every control op is known."""
        return self._confirmed

    async def sync_control(self) -> Control:
        """Read all control ops that are on the log now."""
        newest = await self.log.last()
        if newest is not None:
            self._tell_time(newest)
            if newest.seq < self._end.seq:
                self._end.line = -1  # a copy that lags, or another log: look
            await self.confirm(newest.seq)
            self._end.saw(newest.seq, newest.payload)
        return self.control

    def confirm_soon(self, upto: int) -> asyncio.Task[None] | None:
        """Start to confirm up to `upto` unless a read is already running."""
        if self._confirmed >= upto:
            return None
        self._wanted = max(self._wanted, upto)
        task = self._confirming
        if task is None or task.done():
            task = self._confirming = asyncio.ensure_future(self._confirm_wanted())
            task.add_done_callback(_let_it_fail)
        return task

    async def confirm(self, upto: int) -> None:
        """Make sure that every control op up to `upto` was read, from the log that is there now.

        Concurrent calls share reads: while one is running, the others wait for the next. Whoever
        judges by what is remembered calls this after reading: `LogReplaced` if that is void.
        """
        if self._end.line != self.engine.reconnects:
            await self._end.check()
        while (task := self.confirm_soon(upto)) is not None:
            await asyncio.shield(task)

    async def _confirm_wanted(self) -> None:
        upto = self._wanted
        found = await self.log.confirm(
            subjects.all_control(self.mesh), after=self._confirmed, upto=upto
        )
        await self.feed_control(found, upto)

    async def feed_control(self, found: Iterable[Record], upto: int) -> None:
        """Apply control records that were not applied yet, and remember how far they reach."""
        async with self._feeding:
            applied = self.history.applied
            for record in found:
                if record.seq <= self.history.applied:
                    continue
                opened = self.open(record)
                verdict = self.history.apply(opened)
                self.control_verdicts[record.seq] = verdict
                if verdict.is_accepted:
                    self.merge(opened)
                    self._drift_ms = self.control.rules.max_drift_ms
                    self.author.clock.max_drift_ms = self._drift_ms
            self._confirmed = max(self._confirmed, upto)
        if self.history.applied > applied:
            for changed in tuple(self._control_watchers):
                changed()

    @contextmanager
    def watching_control(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call `changed` after control records were applied, while the block runs."""
        self._control_watchers.append(changed)
        try:
            yield
        finally:
            self._control_watchers.remove(changed)

    # --- lanes --------------------------------------------------------------------------------

    def merge(self, opened: OpenedRecord) -> None:
        """Let the clock see a verified op, unless it is too far ahead of its own commit time.

        Such an op is rejected as `drift`. If our clock is a little fast it could still look
        acceptable, and its author would cause our next ops to be rejected as well. Our own ops
        count too: another process may have signed them, or we did before our clock was set back.
        """
        op = opened.op
        if op is not None and op.hlc[0] <= opened.commit_ms + self._drift_ms:
            self.author.observe(op.hlc)

    async def judge(self, opened: OpenedRecord, lane: Lane, *, is_named: bool = False) -> Outcome:
        """The verdict on one record outside control, which must be confirmed up to it.

        `is_named`: its lane is read because an op on another lane names it.
        """
        control = self.history.at(opened.seq, opened.commit_ms)
        first = self._first.get(opened.seq)
        if first is not None and first[0] is opened and first[1] == lane:
            known, applied = first[2]
            if known is control and applied == self.history.applied:
                return first[3]
        outcome = judge(control, lane, opened)
        if isinstance(outcome, Needs):
            reads = await self._read(outcome, opened.seq, is_named=is_named)
            outcome = judge(control, lane, opened, reads)
        self.merge(opened)
        return settled(outcome)

    def judge_first(self, opened: OpenedRecord, lane: Lane) -> Outcome | None:
        """The verdict on a record by what is known of control; None if it takes a read.

        If control turns out to be the same up to the record, `judge` need not come to it again.
        """
        control = self.control
        outcome = judge(control, lane, opened)
        self.merge(opened)
        if isinstance(outcome, Needs):
            return None
        known = (control, self.history.applied)
        self._first.put(opened.seq, (opened, lane, known, outcome), 0)
        return outcome

    async def _read(self, needs: Needs, seq: int, *, is_named: bool) -> Reads:
        """What a verdict needs, in a few reads. Lane readers do not see every record.

        Lanes that a named lane names in turn count as empty (`Needs.lanes` says why that is
        right): otherwise a coordinator could make everyone read without end.
        """
        if needs.lanes:
            empty = {key: self.protocol.empty(key) for key, _ in needs.lanes}
            return Reads(lanes=empty if is_named else await self._read_named(needs, seq))
        found = {seq: self._deps.get(seq) for seq in needs.records}
        unknown = [seq for seq, dep in found.items() if dep is None]
        for record in await self.log.fetch_many(unknown) if unknown else ():
            dep = found[record.seq] = dep_of(self.protocol, record)
            self._deps.put(record.seq, dep, len(record.payload) if dep.op else len(dep.kind))
        return Reads(records=found, mark=UNSEEN_ROOT)

    async def _read_named(self, needs: Needs, seq: int) -> dict[LaneKey, Lane]:
        """Lanes as they were before a record, from copies of the log that have what it names."""
        named = {upto: key for key, upto in needs.lanes if 0 < upto < seq}
        found = await self.log.fetch_many(list(named)) if named else []
        known = {one.seq for one in found if self.protocol.lane_of(one.subject) == named[one.seq]}
        return {
            key: await self.lanes.before(key, seq, at_least=upto if upto in known else 0)
            for key, upto in needs.lanes
        }

    def behind(self, lane: Lane) -> Lane:
        """A lane behind every archive that is known: empty if one of them took it."""
        control = self.history.current
        return lane if control is None else lane_archive.behind(control, lane)

    def is_archived_since(self, seq: int) -> bool:
        """Whether an archive is known that came after this sequence."""
        control = self.history.current
        return control is not None and control.archive.seq > seq

    def may_be_purged(self, commit_ms: int) -> bool:
        """Whether a lane whose newest record has this stamp may be purged by now.

        Nothing leaves within the shortest retention. Where no archive is known, this machine's
        clock is good enough to tell.
        """
        latest_ms = self.author.mesh_time.most_ms()
        if not self.is_archived_since(0):
            latest_ms = min(latest_ms, self.wall.now_ms())
        return commit_ms + RETENTION_LEAST_MS < latest_ms

    async def read(self, key: LaneKey, *, at_least: int = 0) -> LaneView:
        """Load a whole lane with the control state it needs, and judge every record.

        `at_least` is a sequence that is known to be on the lane: control is confirmed up to it
        while the lane is being read, and a copy of the log without it is not used.
        """
        self.confirm_soon(at_least)
        return await self.lanes.read(key, at_least=at_least)

    async def enter(self, key: LaneKey) -> LaneView:
        """A lane as it is now; of a long one perhaps only the end (`LaneReader.enter`)."""
        return await self.lanes.enter(key)

    async def find_entry(self, key: LaneKey) -> Entered | None:
        """The newest sealed record at which a lane can be entered, if a full node tells one."""
        return await self._entry_search.find(key)

    async def read_lane(self, kind: str, job_id: str, *, at_least: int = 0) -> JobView:
        """The lane of a job."""
        self.confirm_soon(at_least)
        return cast("JobView", await self.lanes.read(job_key(kind, job_id), at_least=at_least))

    async def read_lanes(
        self, wanted: Mapping[LaneKey, int], *, no_further: bool = False
    ) -> dict[LaneKey, LaneView]:
        """Several lanes as `read` has them, in a few reads; with each its `at_least`.

        With `no_further` each ends with that record.
        """
        self.confirm_soon(max(wanted.values(), default=0))
        return await self.lanes.read_many(wanted, no_further=no_further)

    async def read_on(self, known: Mapping[LaneKey, Lane]) -> dict[LaneKey, LaneView]:
        """Several lanes from where each was read to before; the views show only what is new."""
        return await self.lanes.read_on(known)

    def now_by_both_clocks_ms(self) -> int:
        """The time by both clocks that count: this machine's and, as far as known, the engine's."""
        return int(min(self.wall.now_ms(), self.author.mesh_time.most_ms()))

    def foresee(
        self,
        op_type: type[Op],
        body: Struct,
        lane: Lane,
        *,
        prev: int,
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Verdict:
        """The verdict that an op would get if it were drafted and committed right now.

        Nothing is signed, and nothing is read. A clock that ran ahead of its own machine shows as
        `drift`, and so does a machine's clock that is known to be ahead of the mesh's.
        """
        return self.foresee_op(self.compose(op_type, body, prev=prev, deps=deps), lane)

    def foresee_op(self, op: Op, lane: Lane) -> Verdict:
        """The same for an op that is composed already."""
        opened = opened_record.unsigned(self.protocol, op, 0, 0)
        newest = max(*lane.tails, self.history.applied, *(seq for seq, _ in op.deps)) + 1
        commit_ms = self.now_by_both_clocks_ms()
        outcome = judge(self.control, lane, replace(opened, seq=newest, commit_ms=commit_ms))
        verdict = Verdict.OK if isinstance(outcome, Needs) else outcome.verdict
        if verdict in ABOUT_TIME:
            self.author.mesh_time.complain(self.author.clock.max_drift_ms)
        return verdict

    # --- committing ---------------------------------------------------------------------------

    async def commit(
        self, draft: Draft, *, timeout_s: float = 5.0, told: AntiphonError | None = None
    ) -> int:
        """Write a draft to the log; its sequence, or `LostRace` if another record came first.

        A write whose outcome is unknown is looked for on the log before it is sent again. The
        signed compare-and-set and the message id make a second send safe (spec §3). `told` is
        what `send` returned for this draft: it counts as the first try.
        """
        if told is None:
            self._sends(draft)
        seq = await append(
            self.log, draft, before_try=self._before_try, timeout_s=timeout_s, told=told
        )
        self._opened.put(seq, (draft.payload, draft.opened), len(draft.payload))
        self._end.saw(seq, draft.payload)
        return seq

    async def send(
        self, drafts: Sequence[Draft], *, timeout_s: float = 5.0
    ) -> list[int | AntiphonError]:
        """Write several drafts at once, each once; the sequence of each, or what went wrong.

        An error says nothing final: give it to `commit` with its draft.
        """
        for draft in drafts[-SENT_KEPT:]:
            self._sends(draft)
        records = [
            Append(one.subject, one.payload, message_id(one.payload), one.op.prev) for one in drafts
        ]
        answers = await self.log.append_many(records, timeout_s=timeout_s)
        last: tuple[int, bytes] = (0, b"")
        for draft, seq in zip(drafts, answers, strict=True):
            if isinstance(seq, int):
                self._opened.put(seq, (draft.payload, draft.opened), len(draft.payload))
                last = max(last, (seq, draft.payload))
        self._end.saw(*last)
        return answers

    def _sends(self, draft: Draft) -> None:
        self._sent[draft.payload] = (draft.op.hlc[0], self.wall.boot_s())
        if len(self._sent) > SENT_KEPT:
            del self._sent[next(iter(self._sent))]

    async def _before_try(self, attempt: int) -> None:
        if attempt:
            await self.pause(attempt - 1)
        await self.admitted()

    async def admitted(self) -> bool:
        """Wait while the mesh has paused this node; False: that takes too long."""
        until_s = self.wall.boot_s() + PAUSED_PATIENCE_S
        while wait_s := self.engine.paused_s:
            self.last_pause_s = self.wall.boot_s()
            if self.wall.boot_s() + wait_s > until_s:
                return False
            await asyncio.sleep(wait_s)
        return True

    async def pause(self, attempt: int) -> None:
        """Wait before trying again: exponential backoff with jitter."""
        delay_ms = backoff_ms(
            attempt, base_ms=RETRY_BASE_MS, cap_ms=RETRY_CAP_MS, chance=self.entropy.random()
        )
        await asyncio.sleep(delay_ms / 1000)

    async def record_at(self, seq: int) -> Record | None:
        """The record at an acknowledged sequence; None only if it is gone from the log.

        A copy that lags has nothing there either, and a verdict must not depend on which copy
        answered. So an empty answer counts only from a copy that is known to reach that far.
        """
        found = await self.log.fetch_many([seq])
        return found[0] if found else None

    async def fetch_opened(self, seq: int, *, newest_on: str = "") -> OpenedRecord:
        """The record that was just committed at `seq`, with its stamp."""
        record = await self.log.fetch(seq, newest_on=newest_on) if newest_on else None
        record = record or await self.record_at(seq)
        if record is None:
            raise Corrupt(f"record {seq} was acknowledged but is not on the log")
        return self.open(record)
