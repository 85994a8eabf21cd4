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
plan whose party has used up its rate waits, and no other does.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct

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
from antiphon.runtime.plans.running_plan import RunningPlan
from antiphon.runtime.plans.selected_plans import derived_lately, party_of_plan, plans_run
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op
    from antiphon.runtime.log.writer import Written
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.replica.replica_plans import StandingPlan

CAUSES_PER_BATCH: Final = 64
"""How many causes of one plan are looked at in a round."""
TURNS_PER_ROUND: Final = 64
JOBS_PER_ROUND: Final = 256
"""How many plans have a turn before the results are written, and how many jobs they derive."""
LONGEST_SLEEP_S: Final = 1.0
"""The clocks may be set, or the machine suspended, while a node sleeps."""
RETRY_S: Final = 0.25
"""How long to wait after a write that did not take effect."""
MOST_TOLD: Final = 10_000
READERS_KEPT: Final = 10_000
KEEPS_FROM_RUNNING: Final = frozenset({"plan_not_valid", "plan_refused", "plan_may_not_read"})

log = LazyLogger(__name__)


Key = tuple[str, str, int]
"""A plan: its kind, its name, and where it was last put."""


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
        self._running: dict[int, RunningPlan] = {}
        """The plans that are run, by where each was put."""
        self._is_stale = True
        """Whether a plan has changed since they were read."""
        self._read_under = 0
        """The control state under which they were read."""
        self._ended: dict[tuple[str, str], int] = {}
        """By kinds and ending that some plan waits for: where the newest such job ended."""
        self._use: DerivedUse | None = None
        """What was derived for each party lately; None while another node coordinates."""
        self._counted_by: tuple[str, str] = ("", "")
        """The owner, and the rule of authority: by them parties are told apart."""
        self._designated = 0
        """The control state under which this node coordinates; 0 if it does not."""
        self._turns = count(1)
        self._told: set[tuple[str, str]] = set()
        self._readers: dict[tuple[str, str], bool] = {}
        """By author and kind: whether it may be read, as of a control state and a second."""
        self._readers_at: tuple[int, ...] = ()

    def _applied(self, applied: Applied) -> None:
        match applied.after:
            case Plan():
                self._is_stale = True
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
                if (kinds, on) in self._ended:
                    self._ended[kinds, on] = job.ended_seq
                    self._woken.set()

    async def look(self) -> float:
        """One round; how many seconds until the next one."""
        control = self._control()
        if control is None:
            self._running, self._use, self._designated = {}, None, 0
            return LONGEST_SLEEP_S
        if self._designated != control.since:
            # What the coordinator before derived is then in the replica.
            await self.node.reached(control.since)
            self._designated = control.since
        counted_by = (control.owner, control.rules.authority)
        if self._use is None or self._counted_by != counted_by:
            self._begin(control)
            self._counted_by = counted_by
        is_done = await self._derive_all(self._wanted(control))
        return self._pause_s(control) if is_done else RETRY_S

    def _begin(self, control: Control) -> None:
        replica = self.node.replica
        replica.flush()
        self.guard.begin()
        self._told = {one for one in self._told if one[1] not in KEEPS_FROM_RUNNING}
        self._running, self._ended, self._is_stale = {}, {}, True
        self._use = derived_lately(replica.ask(ReplicaPlans), control, self._now_ms)

    def _pause_s(self, control: Control) -> float:
        """Until the next tick, or not at all if there is more to derive."""
        now_ms, wait_ms = self._now_ms, LONGEST_SLEEP_S * 1000
        for one in self._plans(control).values():
            if self._is_due(one, now_ms):
                if self._room(one, control):
                    return 0.0
            elif one.next_ms is not None and not self._is_refused(one):
                wait_ms = min(wait_ms, one.next_ms - now_ms)
        return max(0.0, wait_ms / 1000)

    def _control(self) -> Control | None:
        """The control state, if this node coordinates under it."""
        session = self.node.session
        control = session.history.newest(session.wall.now_ms())
        return control if control is not None and control.coordinator == self.node.did else None

    @property
    def _now_ms(self) -> int:
        return self.node.session.now_by_both_clocks_ms()

    # --- which plans are run ------------------------------------------------------------------

    def _plans(self, control: Control) -> dict[int, RunningPlan]:
        if not self._is_stale and self._read_under == control.since:
            return self._running
        self._is_stale, self._read_under = False, control.since
        replica, known = self.node.replica, self._running
        replica.flush()
        standing = plans_run(
            replica.ask(ReplicaPlans),
            control,
            {seq: one.standing for seq, one in known.items()},
        )
        self._running = {}
        for seq, stands in standing.items():
            with self.guard.about(_key(stands.plan), whose=stands.plan.author):
                self._running[seq] = known.get(seq) or self._begun(stands, control)
        ended, self._ended = self._ended, {}
        for seq, one in self._running.items():
            if one.waits_for is not None:
                least = 0 if seq in known else replica.cursor.seq
                before = self._ended.get(one.waits_for, ended.get(one.waits_for, 0))
                self._ended[one.waits_for] = max(before, least)
        self.guard.keep_only({_key(one.plan) for one in standing.values()})
        self._tell_beyond(replica.ask(ReplicaPlans).standing_count() - len(standing), control)
        return self._running

    def _begun(self, standing: StandingPlan, control: Control) -> RunningPlan:
        plan = standing.plan
        one = RunningPlan(standing, party_of_plan(control, plan))
        if not isinstance(plan.body.trigger, Cron):
            one.cursor = self._floor(plan)
            return one
        try:
            ticks = CronTicks(plan.body.trigger.at, plan.body.trigger.zone)
        except Malformed as problem:
            self._tell("plan_not_valid", plan, problem.message)
            return one
        one.begin_ticks(ticks, self._derived_ms(plan))
        return one

    def _derived_ms(self, plan: Plan) -> int:
        """The time up to which the ticks of a plan are done."""
        newest_ms = self.node.replica.ask(ReplicaPlans).newest_tick(plan.op_id) or 0
        return max(newest_ms, starts_ms(plan.body, plan.put_ms))

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

    def _is_due(self, one: RunningPlan, now_ms: int) -> bool:
        """Whether there may be something to derive."""
        if self._is_refused(one) or self.guard.rests(_key(one.plan)):
            return False
        if one.waits_for is not None:
            return one.cursor < self._ended.get(one.waits_for, 0)
        return one.has_tick(now_ms)

    def _due(self, control: Control, now_ms: int) -> list[RunningPlan]:
        """The plans that may have something to derive: of every party one, then another of each.

        Of a party those first whose last turn is longest ago.
        """
        due = [one for one in self._plans(control).values() if self._is_due(one, now_ms)]
        ranks: Counter[str] = Counter()
        ranked: list[tuple[int, RunningPlan]] = []
        for one in sorted(due, key=lambda one: one.turn):
            ranked.append((ranks[one.party], one))
            ranks[one.party] += 1
        return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]

    def _room(self, one: RunningPlan, control: Control, taken: int = 0) -> int:
        """How many jobs the plan's party may still have derived now."""
        use, cost = self._use, cost_of(one.plan.body.replicas)
        if use is None:
            return 0
        rate = control.rules.derived_per_minute
        return use.room(one.party, cost, rate=rate, taken=taken, now_ms=self._now_ms)

    def _wanted(self, control: Control) -> list[Wanted]:
        """What to derive next, of the plans whose turn it is."""
        now_ms, turns = self._now_ms, 0
        taken: Counter[str] = Counter()
        wanted: list[Wanted] = []
        for one in self._due(control, now_ms):
            if turns >= TURNS_PER_ROUND or len(wanted) >= JOBS_PER_ROUND:
                break
            room = self._room(one, control, taken[one.party])
            if not room:
                rate = control.rules.derived_per_minute
                why = f"its party has used up derived_per_minute, which is {rate:,}"
                self._tell("plan_delayed", one.plan, why)
                continue
            turns, one.turn = turns + 1, next(self._turns)
            with self.guard.about(_key(one.plan), whose=one.plan.author):
                found = self._next_of(one, control, now_ms, room)
                taken[one.party] += len(found) * cost_of(one.plan.body.replicas)
                wanted += found
        return wanted

    def _next_of(self, one: RunningPlan, control: Control, now_ms: int, most: int) -> list[Wanted]:
        if one.waits_for is not None:
            return self._next_causes(one, control, now_ms, most)
        one.see_ticks(now_ms)
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
        upto = replica.cursor.seq
        causes = replica.ask(ReplicaPlans).ended_after(
            one.cursor, trigger.kinds, limit=CAUSES_PER_BATCH
        )
        late_ms, wanted = now_ms - control.rules.start_by_ms, list[Wanted]()
        for cause in causes:
            derived = self._reaction(one, cause, late_ms) if len(wanted) < most else None
            if self._is_refused(one) or len(wanted) >= most:
                return wanted
            if derived is not None:
                wanted.append(Wanted(one, derived, cause.ended_seq))
            elif not wanted:
                one.cursor = cause.ended_seq
        if not wanted and len(causes) < CAUSES_PER_BATCH:
            one.cursor = max(one.cursor, upto)
        return wanted

    def _reaction(self, one: RunningPlan, cause: Job, late_ms: int) -> Cause | None:
        """What follows from a cause by a plan, if anything does that is not on the log yet."""
        plan, trigger = one.plan, one.plan.body.trigger
        if not isinstance(trigger, Reaction) or cause.ended_seq <= plan.put_seq:
            return None
        if cause.replica_of:
            return None  # its parent is what ends
        if not trigger.covers(cause.kind) or not trigger.counts(cause.state.value):
            return None
        if not self._may_read(plan, cause.kind):
            return None
        if depth_of(cause.derived) >= MAX_DEPTH:
            self._tell("plan_too_deep", plan, f"{cause.kind} {cause.id} is the last of a chain")
            return None
        derived = Cause(kind=cause.kind, job=cause.id, depth=depth_of(cause.derived) + 1)
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

    def _may_read(self, plan: Plan, kind: str) -> bool:
        """Whether the plan's author may read a kind now; many plans ask it about every job."""
        session, now_ms = self.node.session, self._now_ms
        control = session.control
        at = (control.since, control.grants.revision, now_ms // 1000)
        if self._readers_at != at or len(self._readers) >= READERS_KEPT:
            self._readers, self._readers_at = {}, at
        key, branches = (plan.author, kind), session.protocol.branches
        if key not in self._readers:
            may = plan_authority.may_read(control, branches, plan.author, kind, now_ms)
            self._readers[key] = may
        if not self._readers[key]:
            self._tell("plan_may_not_read", plan, f"its author may not read {kind}")
        return self._readers[key]

    # --- writing ------------------------------------------------------------------------------

    async def _derive_all(self, wanted: list[Wanted]) -> bool:
        """Write derived jobs; False if some have to be tried again soon."""
        intents: dict[int, Intent] = {}
        for at, each in enumerate(wanted):
            with self.guard.about(_key(each.one.plan), whose=each.one.plan.author):
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
                self.guard.drop(_key(one.plan))
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
                self.guard.note(_key(plan), why, whose=plan.author)
            log.warning(event, kind=plan.body.kind, plan=plan.body.name, why=why)

    def _tell_beyond(self, plans: int, control: Control) -> None:
        """Log once that some plans are not run."""
        which = ("", "plans_not_run")
        if plans <= 0:
            self._told.discard(which)
        elif which not in self._told:
            self._told.add(which)
            each = control.rules.plans_max
            log.warning(
                "plans_not_run",
                plans=plans,
                why=f"a party has more than {each:,}; its oldest are run (rule plans_max)",
                hint="antiphon plan list names them",
            )


def _key(plan: Plan) -> Key:
    return plan.body.kind, plan.body.name, plan.put_seq


def _words(verdict: Verdict | None) -> str:
    return "" if verdict is None else f"{verdict.value}: {verdict.in_words}"
