"""What a full node's replica says about the jobs that other jobs wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.authority.rules import Rules
from antiphon.core.authority.scope import admits, scope_of
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.derivations.limit_use import LimitUse
from antiphon.core.derivations.offer_derivation import (
    Derived,
    MayRead,
    Predecessor,
    Waiter,
    derive,
    derive_in_steps,
)
from antiphon.core.families.erasures.state import erasure_key, is_about
from antiphon.core.families.jobs.ops import JobComplete, JobResolve, JobSchedule, JobYield
from antiphon.core.families.jobs.state import Job, State, job_key
from antiphon.errors import Rejected
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.runtime.replica.replica_waits import ReplicaWaits

if TYPE_CHECKING:
    from antiphon.core.manifest import Manifest
    from antiphon.core.record.op import Op
    from antiphon.runtime.node.full_node import FullNode

MOST_LABELLED: Final = 1_000_000
SCOPES_KEPT: Final = 4_096
ENDS_KEPT: Final = 8_192
ENDS_KEPT_BYTES: Final = 16 * 1024 * 1024
_END_BYTES, _OUTPUT_BYTES = 4 * 1024, 512
"""Roughly what is kept besides texts."""


class Predecessors:
    """Answers what `offer_derivation` and the coordinator ask, from one node's replica."""

    def __init__(self, node: FullNode) -> None:
        self.node = node
        self._scopes: dict[str, tuple[str, ...]] = {}
        self._scopes_at: tuple[int, ...] = ()
        """The control state and the second for which those were computed."""
        self._ends = BoundedCache[int, Predecessor](most=ENDS_KEPT, most_bytes=ENDS_KEPT_BYTES)
        """How jobs ended, by the record that ended them: many may wait for the same ones."""

    def states_for(
        self, job: Job, op: Op | None = None
    ) -> Callable[[tuple[str, str]], State | None]:
        """Gives the states of the jobs that a job waits for, since `op` if that is at hand.

        None if such a job was not submitted before, or may not be read for the waiting one: in both
        cases the waiting job is cancelled at once. To wait until it ends would tell when it ended.
        """
        waiter = self._waiter(job, op)
        may_read = waiter is not None and waiter.unread_kind(self._readers()) is None

        replica = self.node.replica

        def state(key: tuple[str, str]) -> State | None:
            if not may_read:
                return None
            lane = replica.held(job_key(*key))
            if lane is None:
                # Not the whole lane: it may wait for a thousand jobs itself.
                found = replica.ask(ReplicaWaits).glance(*key)
                if found is not None and found[1] < job.waiting_seq:
                    return found[0]
            before = self._find_for(job, key)
            return before.state if before is not None else None

        return state

    def derive(self, job: Job) -> Derived | None:
        """What the log says should be written about a waiting job."""
        known = self._known(job)
        find, look = partial(self._find_for, job), partial(self._look_for, job)
        return derive(*known, find, look, self._readers()) if known else None

    async def derive_in_turns(self, job: Job) -> Derived | None:
        """The same, while other tasks have their turns; `Rejected` without the job's records."""
        known = self._known(job)
        if known is None:
            raise Rejected("its own records are not in this node's replica", reason="replica")
        find, look = partial(self._find_for, job), partial(self._look_for, job)
        steps = derive_in_steps(*known, find, look, self._readers())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                derived: Derived | None = end.value
                return derived
            await asyncio.sleep(0)

    def text(self, of: tuple[str, str], name: str) -> str | None:
        """The text of an output of a job that has ended."""
        job = self._find(of)
        outputs = self._read_end(job).outputs if job is not None else ()
        return next((one.text for one in outputs if one.name == name), None)

    def _known(self, job: Job) -> tuple[Waiter, Manifest | None] | None:
        """A waiting job, who waits with it, and its content; None if its records are not here.

        Its content only where it reads results: most jobs do not, and it takes another record.
        """
        waiter = self._waiter(job)
        if waiter is None or not job.results_read:
            return None if waiter is None else (waiter, None)
        schedule = self._op(job.scheduled_seq)
        return (waiter, schedule.body.manifest) if isinstance(schedule, JobSchedule) else None

    def _waiter(self, job: Job, op: Op | None = None) -> Waiter | None:
        """A waiting job and who waits with it; only after a yield that takes another record."""
        if not job.continuations:
            return Waiter(job)
        yielded = op or self._op(job.waiting_seq)
        return Waiter(job, yielded.author) if isinstance(yielded, JobYield) else None

    def _find(self, key: tuple[str, str]) -> Job | None:
        return job_lane(self.node.replica, *key).job

    def _find_for(self, waiting: Job, key: tuple[str, str]) -> Job | None:
        """The job that was meant: of those with this id, the last that was submitted before."""
        found = self._find(key)
        if found is None or found.scheduled_seq >= waiting.waiting_seq:
            former = self.node.replica.former(job_key(*key))
            found = former.state if former is not None else None
        is_older = found is not None and found.scheduled_seq < waiting.waiting_seq
        return found if is_older else None

    def _look_for(self, waiting: Job, job: Job) -> Predecessor:
        """How a job ended whose result is read; without it, if it was forgotten before that.

        Whoever was submitted before the order gets the result: it was promised to them.
        """
        # As of the last record that was noted: orders may not be in the file yet.
        order = self.node.replica.lane(erasure_key(job.kind, job.id)).state
        if order is not None and is_about(order, job) and order.seq < waiting.scheduled_seq:
            return Predecessor(job, is_forgotten=True)
        return self._look(job)

    def _look(self, job: Job) -> Predecessor:
        if not job.is_terminal:
            return Predecessor(job)
        known = self._ends.get(job.ended_seq)
        if known is None:
            known = self._read_end(job)
            # All but its outputs takes a few KiB at most.
            weight = sum(len(one.text or "") + _OUTPUT_BYTES for one in known.outputs)
            self._ends.put(job.ended_seq, known, weight + _END_BYTES)
        return known

    def _read_end(self, job: Job) -> Predecessor:
        op = self._op(job.ended_seq) if job.is_terminal else None
        if isinstance(op, JobComplete):
            return Predecessor(job, op.body.outputs, op.body.error)
        if isinstance(op, JobResolve):
            return Predecessor(job, op.body.outputs)
        return Predecessor(job, (), op.body.error if isinstance(op, JobYield) else None)

    def _op(self, seq: int) -> Op | None:
        replica, session = self.node.replica, self.node.session
        stored = replica.record(seq)
        if stored is None:
            replica.flush()
            stored = replica.record(seq)
        return None if stored is None else session.open(stored.record).op

    def _readers(self) -> MayRead:
        """Who may read which kinds now; each node's scope is computed once in a second."""
        session = self.node.session
        now_ms = session.wall.now_ms()
        control = session.history.newest(now_ms)
        state = () if control is None else (control.since, control.grants.revision)
        at = (*state, now_ms // 1000)
        if self._scopes_at != at or len(self._scopes) >= SCOPES_KEPT:
            self._scopes, self._scopes_at = {}, at
        known = self._scopes

        def may_read(node: str, kind: str) -> bool:
            if control is None:
                return False
            if node not in known:
                scope = scope_of(control, session.protocol.branches, node, now_ms // 1000)
                known[node] = scope.of(*READ_BY)
            return any(admits(one, kind) for one in known[node])

        return may_read


def limit_use_in(node: FullNode, rules: Rules) -> LimitUse:
    """How much of the limits is in use, as the replica has it."""
    replica, use = node.replica, LimitUse(rules.limits)
    replica.flush()
    now_ms = node.session.wall.now_ms()
    for limit in rules.limits:
        for job in replica.ask(ReplicaWaits).labelled(limit.label, limit=MOST_LABELLED):
            use.see(job_lane(replica, job.kind, job.id).job or job)
        if limit.rate is not None:
            since_ms = now_ms - limit.per_ms
            use.offered(
                limit.label,
                replica.ask(ReplicaWaits).offered_since(limit.label, since_ms, limit=limit.rate),
            )
    return use
