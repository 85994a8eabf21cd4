"""The coordinator's: submits what follows from plans (spec §7.4).

What was derived is on the log and nowhere else, so a coordinator that was just named, or killed and
started again, continues where the last one stopped.

- *Ticks* of a plan are written one after the other. So no tick before the newest derived one is
  still to be written, and the walk begins there.
- *Reactions* of a plan are written in batches, by the order in which their causes ended, and a
  batch begins when the one before is on the log. So what is older than a batch before the newest
  derived job is done, and the walk begins there.
- *Rates*: what was derived for each party within the last minute is counted from the log.

Every look at a job's lane comes before its write, and two that write at once write the same job, of
which the log takes one.

A round takes the plans that have something to derive, of every party one, then another of each. A
plan whose party has used up its rate waits, and no other does. Whatever a party's plans cost to
look at, it rests for three times as long, so they take a quarter of the node's time at most.

A plan that is put, replaced or dropped changes what is run by that one plan. All are read again
only if the rules change, or if a plan that was too many has a place now.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.derivations import plan_authority
from antiphon.core.derivations.derived_use import DerivedUse, cost_of, party_of_derived
from antiphon.core.families.jobs.derivation import (
    MAX_DEPTH,
    Cause,
    Cron,
    Derivation,
    Reaction,
    Tick,
    depth_of,
    patterns_of,
)
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import derived_body, starts_ms
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.plans.state import Plan
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Rejected, Unavailable
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.node.woken_service import WokenService
from antiphon.runtime.plans.cron_ticks import CronTicks
from antiphon.runtime.plans.due_plans import DuePlans
from antiphon.runtime.plans.running_plan import RunningPlan, key_of
from antiphon.runtime.plans.selected_plans import RESTS, SelectedPlans, derived_lately
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op
    from antiphon.runtime.log.writer import Written
    from antiphon.runtime.node.full_node import Applied, FullNode

CAUSES_PER_BATCH: Final = 64
"""How many causes of one plan are looked at in a round."""
TURNS_PER_ROUND: Final = 64
JOBS_PER_ROUND: Final = 256
"""How many plans have a turn before the results are written, and how many jobs they derive."""
LONGEST_ROUND_S: Final = 0.01
"""How long plans are looked at before other services have a turn."""
LONGEST_SLEEP_S: Final = 1.0
"""The clocks may be set, or the machine suspended, while a node sleeps."""
RETRY_S: Final = 0.25
"""How long to wait after a write that did not take effect."""
MOST_TOLD: Final = 10_000
READERS_KEPT: Final = 10_000
KEEPS_FROM_RUNNING: Final = frozenset({"plan_not_valid", "plan_refused", "plan_may_not_read"})

log = LazyLogger(__name__)


class Wanted(Struct, frozen=True):
    """A job that follows from a plan."""

    one: RunningPlan
    derived: Derivation
    upto: int
    """The tick's time, or where the cause ended: up to here the plan is done once it is written."""


class PlanRunner(WokenService):
    """Derives jobs from plans, if its full node is the coordinator."""

    SERVICE = "plans"
    WAITS = "plan_runner_waits"
    AFTER_PROBLEM_S = LONGEST_SLEEP_S

    def __init__(self, node: FullNode) -> None:
        super().__init__(node)
        self._due = DuePlans()
        self._selected = SelectedPlans(node, self._due, self.guard)
        self._refused_under: tuple[int, int] = (0, 0)
        self._rests: dict[str, float] = {}
        """By party: until when it has no turn (seconds since boot)."""
        self._held: set[str] = set()
        """Parties that have used up their rate, as of the last round."""
        self._use: DerivedUse | None = None
        """What was derived for each party lately; None while another node coordinates."""
        self._counted_by: tuple[str, str] = ("", "")
        """The owner, and the rule of authority: by them parties are told apart."""
        self._designated = 0
        """The control state under which this node coordinates; 0 if it does not."""
        self._told: set[tuple[str, str]] = set()
        self._readers: dict[tuple[str, str], bool] = {}
        """By author and kind: whether it may be read, as of a control state and a second."""
        self._readers_at: tuple[int, ...] = ()

    def _applied(self, applied: Applied) -> None:
        match applied.after:
            case Plan() as plan if self._use is not None and applied.verdict.is_accepted:
                self._selected.note(applied.before, plan)
                self._woken.set()
            case Job() as job if self._use is not None:
                if job.plan and job.scheduled_seq == applied.record.seq:
                    self._note_derived(job, applied.opened.op)
                elif job.ended_seq == applied.record.seq:
                    self._note_end(job)
            case None:  # control
                self._woken.set()
            case _:
                pass

    def _note_derived(self, job: Job, op: Op | None) -> None:
        if op is None or op.author != self.node.did:
            # Another node coordinated for a while: begin again with what it left.
            self._use = None
        elif self._use is not None:
            party = party_of_derived(self.node.session.control, job)
            self._use.note(party, job.scheduled_ms, cost_of(job.replicas))

    def _note_end(self, job: Job) -> None:
        for kinds in patterns_of(job.kind):
            for on in (job.state.value, "ended"):
                if self._due.ended((kinds, on), job.ended_seq):
                    self._woken.set()

    async def look(self) -> float:
        """One round; how many seconds until the next one."""
        control = self._control()
        if control is None:
            self._due.clear()
            self._use, self._designated = None, 0
            return LONGEST_SLEEP_S
        if self._designated != control.since:
            # What the coordinator before derived is then in the replica.
            await self.node.reached(control.since)
            self._designated = control.since
        counted_by = (control.owner, control.rules.authority)
        if self._use is None or self._counted_by != counted_by:
            self._begin(control)
            self._counted_by = counted_by
        self._selected.read(control)
        wanted: list[Wanted] = []
        try:
            self._take_turns(control, wanted)
            is_done = await self._derive_all(wanted)
        finally:
            for one in {each.one.plan.put_seq: each.one for each in wanted}.values():
                self._settle(one)
        return self._pause_s() if is_done else RETRY_S

    def _begin(self, control: Control) -> None:
        replica = self.node.replica
        replica.flush()
        self.guard.begin()
        self._told = {one for one in self._told if one[1] not in KEEPS_FROM_RUNNING}
        self._selected.begin()
        self._use = derived_lately(replica.ask(ReplicaPlans), control, self._now_ms)

    def _pause_s(self) -> float:
        """Until the next tick, or not at all if there is more to derive."""
        now_s = self._now_s
        if self._due.first({*self._rests, *self._held}) is not None:
            return 0.0
        times = [end_s - now_s for end_s in self._rests.values()]
        if self._selected.is_stale:
            times.append(self._selected.read_s - now_s)
        if self._due.next_ms is not None:
            times.append((self._due.next_ms - self._now_ms) / 1000)
        return max(0.0, min((*times, LONGEST_SLEEP_S)))

    def _control(self) -> Control | None:
        """The control state, if this node coordinates under it."""
        session = self.node.session
        control = session.history.newest(session.wall.now_ms())
        return control if control is not None and control.coordinator == self.node.did else None

    @property
    def _now_ms(self) -> int:
        return self.node.session.now_by_both_clocks_ms()

    @property
    def _now_s(self) -> float:
        return self.node.session.wall.boot_s()

    def unwritten_ms(self) -> int | None:
        """The time of the oldest tick or cause from which something is still to be derived.

        An archive stays behind it: below an archive's time it would be refused. What the log
        refuses anyway is not waited for.
        """
        self.node.replica.flush()
        found = [self._unwritten_of(one) for one in self._due.running.values()]
        return min((at_ms for at_ms in found if at_ms is not None), default=None)

    def _unwritten_of(self, one: RunningPlan) -> int | None:
        if self._is_refused(one) or self._has_rest(one):
            return None
        if one.waits_for is None and not one.is_begun:
            return self._derived_ms(one.plan) + 1
        if one.waits_for is None:
            one.see_ticks(self._now_ms)
            return one.due[0] if one.due else None
        cursor = one.cursor if one.is_begun else self._floor(one.plan)
        causes = self.node.replica.ask(ReplicaPlans).ended_after(cursor, one.waits_for[0], limit=1)
        return causes[0].ended_ms if causes else None

    # --- where a plan continues ---------------------------------------------------------------

    def _start(self, one: RunningPlan) -> None:
        """Find out from where a plan continues."""
        plan, one.is_begun = one.plan, True
        if not isinstance(plan.body.trigger, Cron):
            one.cursor = self._floor(plan)
            return
        try:
            ticks = CronTicks(plan.body.trigger.at, plan.body.trigger.zone)
        except Malformed as problem:
            self._tell("plan_not_valid", plan, problem.message)
            return
        one.begin_ticks(ticks, self._derived_ms(plan))

    def _derived_ms(self, plan: Plan) -> int:
        """The time up to which the ticks of a plan are done."""
        newest_ms = self.node.replica.ask(ReplicaPlans).newest_tick(plan.op_id) or 0
        # What is not later than an archive's time was derived, or left out, before.
        archived_ms = self.node.session.control.archive.before_ms
        return max(newest_ms, archived_ms, starts_ms(plan.body, plan.put_ms))

    def _floor(self, plan: Plan) -> int:
        """A sequence up to which every cause has had its reaction."""
        replica = self.node.replica
        older = replica.ask(ReplicaPlans).derived(plan.op_id, limit=1, skip=CAUSES_PER_BATCH)
        for job in older:
            if isinstance(job.derived, Cause):
                cause = job_lane(replica, job.derived.kind, job.derived.job).job
                if cause is not None:
                    return max(cause.ended_seq, plan.put_seq)
        return plan.put_seq

    # --- whose turn it is ---------------------------------------------------------------------

    def _room(self, one: RunningPlan, control: Control, taken: int = 0) -> int:
        """How many jobs the plan's party may still have derived now."""
        use, cost = self._use, cost_of(one.plan.body.replicas)
        if use is None:
            return 0
        rate = control.rules.derived_per_minute
        return use.room(one.party, cost, rate=rate, taken=taken, now_ms=self._now_ms)

    def _take_turns(self, control: Control, wanted: list[Wanted]) -> None:
        """Look at the plans whose turn it is, and add what to derive next."""
        now_ms, begun_s, turns = self._now_ms, self._now_s, 0
        taken: Counter[str] = Counter()
        spent_s: dict[str, float] = {}
        self._rests = {one: end_s for one, end_s in self._rests.items() if end_s > begun_s}
        self._held = set()
        self._see(now_ms)
        while turns < TURNS_PER_ROUND and len(wanted) < JOBS_PER_ROUND:
            one, at_s = self._due.first({*self._rests, *self._held}), self._now_s
            if one is None or at_s - begun_s > LONGEST_ROUND_S:
                break
            room = self._room(one, control, taken[one.party])
            if not room:
                self._held.add(one.party)
                self._tell_delayed(one, control)
                continue
            turns += 1
            self._due.take(one)
            found = self._turn(one, control, now_ms, room)
            wanted += found
            taken[one.party] += len(found) * cost_of(one.plan.body.replicas)
            spent_s[one.party] = spent_s.get(one.party, 0.0) + self._now_s - at_s
        now_s = self._now_s
        self._rests |= {one: now_s + RESTS * took_s for one, took_s in spent_s.items() if took_s}

    def _see(self, now_ms: int) -> None:
        """Queue the plans for which something has happened."""
        self._due.see_times(now_ms)
        if self._refused_under != self._state() or len(self.guard.aside):
            self._refused_under = self._state()
            self._due.try_again(lambda one: not (self._is_refused(one) or self._has_rest(one)))

    def _turn(self, one: RunningPlan, control: Control, now_ms: int, most: int) -> list[Wanted]:
        """What follows from a plan next; it waits until that is written."""
        found: list[Wanted] = []
        try:
            with self.guard.about(one.key, whose=one.plan.author):
                if not one.is_begun:
                    self._start(one)
                found = self._next_of(one, control, now_ms, most)
        finally:
            if not found:
                self._settle(one)
        return found

    def _settle(self, one: RunningPlan) -> None:
        """After its turn."""
        if self._is_refused(one) or self._has_rest(one):
            self._due.put_aside(one)
        else:
            self._due.settle(one)

    def _has_rest(self, one: RunningPlan) -> bool:
        return self.guard.rests(one.key)

    def _next_of(self, one: RunningPlan, control: Control, now_ms: int, most: int) -> list[Wanted]:
        if one.waits_for is not None:
            return self._next_causes(one, control, now_ms, most)
        one.see_ticks(now_ms)
        one.done(control.archive.before_ms)
        while one.due:
            derived = Tick(tick_ms=one.due[0])
            if not self._is_derived(one.plan, derived):
                return [Wanted(one, derived, one.due[0])] if self._is_allowed(one, derived) else []
            one.done(one.due[0])
        return []

    # --- reactions ----------------------------------------------------------------------------

    def _next_causes(
        self, one: RunningPlan, control: Control, now_ms: int, most: int
    ) -> list[Wanted]:
        """What follows from the next causes of a plan, by the order in which they ended."""
        replica, trigger = self.node.replica, one.plan.body.trigger
        if not isinstance(trigger, Reaction):
            return []
        replica.flush()
        one.upto = replica.cursor.seq
        causes = replica.ask(ReplicaPlans).ended_after(
            one.cursor, trigger.kinds, limit=CAUSES_PER_BATCH
        )
        late_ms, wanted = now_ms - control.rules.start_by_ms, list[Wanted]()
        is_all, is_passed = len(causes) < CAUSES_PER_BATCH, True
        for cause in causes:
            if len(wanted) >= most:
                is_all = False
                break
            derived = None
            if self._concerns(one, trigger, cause):
                is_passed = False
                derived = self._reaction(one, cause, late_ms)
            if self._is_refused(one):
                return wanted
            if derived is not None:
                wanted.append(Wanted(one, derived, cause.ended_seq))
            elif not wanted:
                one.cursor = cause.ended_seq
        if is_all and wanted:
            wanted[-1] = replace(wanted[-1], upto=one.upto)
        elif is_all:
            one.cursor = max(one.cursor, one.upto)
        if is_passed:
            self._due.passes(one)
        else:
            self._due.answers(one)
        return wanted

    def _concerns(self, one: RunningPlan, trigger: Reaction, cause: Job) -> bool:
        """Whether a cause concerns a plan, and all others of its author that wait for such jobs."""
        if cause.replica_of:
            return False  # its parent is what ends
        if not trigger.covers(cause.kind) or not trigger.counts(cause.state.value):
            return False
        if self._may_read(one.plan.author, cause.kind):
            return True
        for each in self._due.untold(one):
            self._tell("plan_may_not_read", each.plan, f"its author may not read {cause.kind}")
        return False

    def _reaction(self, one: RunningPlan, cause: Job, late_ms: int) -> Cause | None:
        """What follows from a cause by a plan, if anything does that is not on the log yet."""
        plan = one.plan
        archived_ms = self.node.session.control.archive.before_ms
        if cause.ended_seq <= plan.put_seq or cause.ended_ms <= archived_ms:
            return None
        if depth_of(cause.derived) >= MAX_DEPTH:
            self._tell("plan_too_deep", plan, f"{cause.kind} {cause.id} is the last of a chain")
            return None
        depth = depth_of(cause.derived) + 1
        self.node.session.author.observe((cause.ended_ms, 0))  # nothing follows from the future
        derived = Cause(kind=cause.kind, job=cause.id, ended_ms=cause.ended_ms, depth=depth)
        if self._is_derived(plan, derived):
            return None
        if cause.ended_ms < late_ms:
            self._tell("plan_too_late", plan, f"{cause.kind} {cause.id} ended too long ago")
            return None
        if not self._was_allowed(plan, derived, cause) or not self._is_allowed(one, derived):
            return None
        return derived

    def _was_allowed(self, plan: Plan, derived: Cause, cause: Job) -> bool:
        """Whether the plan's author could submit this when the cause ended.

        So a plan does not make up for what ended while its author had no right.
        """
        session = self.node.session
        then = session.history.at(cause.ended_seq + 1, cause.ended_ms)
        if then is None:
            return False
        seq, at_ms = cause.ended_seq + 1, cause.ended_ms
        return plan_authority.fault(then, plan, derived, seq=seq, at_ms=at_ms) is None

    def _may_read(self, author: str, kind: str) -> bool:
        """Whether a plan's author may read a kind now; many plans ask it about every job."""
        session, now_ms = self.node.session, self._now_ms
        control = session.control
        at = (control.since, control.grants.revision, now_ms // 1000)
        if self._readers_at != at or len(self._readers) >= READERS_KEPT:
            self._readers, self._readers_at = {}, at
        key, branches = (author, kind), session.protocol.branches
        if key not in self._readers:
            may = plan_authority.may_read(control, branches, author, kind, now_ms)
            self._readers[key] = may
        return self._readers[key]

    # --- writing ------------------------------------------------------------------------------

    async def _derive_all(self, wanted: list[Wanted]) -> bool:
        """Write derived jobs; False if some have to be tried again soon."""
        intents: dict[int, Intent] = {}
        for at, each in enumerate(wanted):
            with self.guard.about(each.one.key, whose=each.one.plan.author):
                intents[at] = self._intent(each.one.plan, each.derived)
        results = await self.write_each(intents) if intents else {}
        unfinished, problem = set[int](), None
        for at, each in enumerate(wanted):
            one, written = each.one, results.get(at)
            if written is not None and isinstance(written.problem, Unavailable):
                problem = problem or written.problem
            if written is None or not self._is_settled(each, written):
                unfinished.add(one.plan.put_seq)
            elif one.plan.put_seq not in unfinished and not self._is_refused(one):
                one.done(each.upto)
                self.guard.drop(one.key)
                self._told -= {(one.plan.op_id, event) for event in KEEPS_FROM_RUNNING}
        if problem is not None:
            raise problem
        return not unfinished

    def _intent(self, plan: Plan, derived: Derivation) -> Intent:
        body = derived_body(plan.body, plan.op_id, derived)
        lane = self.node.replica.lane(plan_authority.derived_key(plan, derived))
        return Intent(JobSchedule, body, lane, deps=((plan.put_seq, plan.op_id),))

    def _is_settled(self, each: Wanted, written: Written) -> bool:
        """Whether there is nothing to try again."""
        verdict = written.verdict
        if verdict is not None and verdict.is_accepted:
            return True
        if self._is_derived(each.one.plan, each.derived):
            return True
        if isinstance(written.problem, Rejected):
            self._refuse(each.one, written.problem.message)
            return True
        if verdict in (None, Verdict.EARLY, Verdict.PREV, Verdict.NOT_COORDINATOR, Verdict.STALE):
            return False  # another record came first, or it is not our turn any more
        self._refuse(each.one, _words(verdict))
        return True

    def _is_derived(self, plan: Plan, derived: Derivation) -> bool:
        lane = self.node.replica.lane(plan_authority.derived_key(plan, derived))
        job = lane.state
        if job is not None and job.plan != plan.op_id:
            self._tell("plan_job_taken", plan, f"somebody submitted {job.id} before its time")
        return job is not None

    def _is_allowed(self, one: RunningPlan, derived: Derivation) -> bool:
        """Whether the plan's author could submit this now."""
        session = self.node.session
        seq, at_ms = session.history.applied + 1, self._now_ms
        fault = plan_authority.fault(session.control, one.plan, derived, seq=seq, at_ms=at_ms)
        if fault is not None:
            self._refuse(one, _words(fault))
        return fault is None

    def _refuse(self, one: RunningPlan, why: str) -> None:
        one.refused_under = self._state()
        self._tell("plan_refused", one.plan, why)

    def _is_refused(self, one: RunningPlan) -> bool:
        return one.refused_under == self._state()

    def _state(self) -> tuple[int, int]:
        session = self.node.session
        return (session.control.since, session.history.grants.revision)

    def _tell(self, event: str, plan: Plan, why: str) -> None:
        """Log something about a plan once; what keeps it from running is also kept for people."""
        if (plan.op_id, event) not in self._told:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told.add((plan.op_id, event))
            if event in KEEPS_FROM_RUNNING:
                self.guard.note(key_of(plan), why, whose=plan.author)
            log.warning(event, kind=plan.body.kind, plan=plan.body.name, why=why)

    def _tell_delayed(self, one: RunningPlan, control: Control) -> None:
        """Log once for each party that its plans wait."""
        which, rate = (one.party, "plan_delayed"), control.rules.derived_per_minute
        if which not in self._told:
            self._told.add(which)
            log.warning(
                "plan_delayed",
                kind=one.plan.body.kind,
                plan=one.plan.body.name,
                party=one.party,
                why=f"its party has used up derived_per_minute, which is {rate:,}",
                hint="antiphon plan list names all that wait",
            )


def _words(verdict: Verdict | None) -> str:
    return "" if verdict is None else f"{verdict.value}: {verdict.in_words}"
