"""The coordinator's derivations from plans: ticks and reactions, each exactly once (spec §7.4).

Runs beside every full node and acts only where the node's own key is the coordinator. It keeps no
file: what was derived is on the log, so a coordinator that was just named, or killed and started
again, continues where the last one stopped.

- *Ticks* of a plan are written one after the other. So no tick before the newest derived one is
  still to be written, and the walk begins there.
- *Reactions* are written in batches, by the order in which their causes ended, and a batch begins
  when the one before is on the log. So what is older than a batch before the newest derived job is
  done, and the walk begins there.

Both look whether the job exists before they write, and two that write at once write the same job,
of which the log takes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.derivations import missed_ticks, plan_authority
from antiphon.core.families.jobs.derivation import (
    MAX_DEPTH,
    Cause,
    Cron,
    Derivation,
    Reaction,
    Tick,
    depth_of,
)
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import derived_body, starts_ms
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.plans.state import Plan
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.node.woken_service import WokenService
from antiphon.runtime.plans.cron_ticks import CronTicks
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.runtime.node.full_node import Applied, FullNode

MOST_PLANS: Final = 10_000
"""How many plans are run: the oldest."""
CAUSES_PER_BATCH: Final = 64
LONGEST_SLEEP_S: Final = 1.0
"""The clocks may be set, or the machine suspended, while a node sleeps."""
RETRY_S: Final = 0.25
"""How long to wait after a write that did not take effect."""

log = LazyLogger(__name__)


class _Running(Struct):
    """A plan that stands, and how far it was run."""

    plan: Plan
    ticks: CronTicks | None = None
    """None for a reaction, and where the expression is not valid here."""
    next_ms: int | None = None
    refused_under: tuple[int, int] | None = None
    """The control state under which the log refused it: it is not tried again before the next."""


class PlanRunner(WokenService):
    """Derives jobs from plans, if its full node is the coordinator."""

    WAITS = "plan_runner_waits"
    AFTER_PROBLEM_S = LONGEST_SLEEP_S

    def __init__(self, node: FullNode) -> None:
        super().__init__(node)
        self._running: dict[str, _Running] = {}
        """The plans that stand, by op id."""
        self._is_stale = True
        """Whether a plan has changed since they were read."""
        self._changed_seq = 0
        self._cursor: int | None = None
        """Every cause that ended up to here was looked at, for every reaction."""
        self._designated = 0
        """The control state under which this node coordinates; 0 if it does not."""
        self._told: set[tuple[str, str]] = set()

    def _applied(self, applied: Applied) -> None:
        match applied.after:
            case Plan():
                self._is_stale, self._changed_seq = True, applied.record.seq
                self._woken.set()
            case Job() as job if job.is_terminal and self._designated:
                self._woken.set()
            case None:  # control
                self._woken.set()
            case _:
                pass

    async def look(self) -> float:
        """One round; how many seconds until the next one."""
        control = self._control()
        if control is None:
            self._running, self._is_stale, self._cursor = {}, True, None
            self._designated = 0
            return LONGEST_SLEEP_S
        if self._designated != control.since:
            # What the coordinator before derived is then in the replica.
            await self.node.reached(control.since)
            self._designated = control.since
        is_done = await self._react()
        for one in list(self._plans().values()):
            is_done &= await self._tick(one)
        return self._pause_s() if is_done else RETRY_S

    def _pause_s(self) -> float:
        """Until the next tick, or not at all if causes are left."""
        if self._causes(limit=1):
            return 0.0
        now_ms = self.node.session.now_by_both_clocks_ms()
        due_ms = [
            one.next_ms - now_ms
            for one in self._plans().values()
            if one.next_ms is not None and not self._is_refused(one)
        ]
        return max(0.0, min([*due_ms, LONGEST_SLEEP_S * 1000]) / 1000)

    def _control(self) -> Control | None:
        """The control state, if this node coordinates under it."""
        session = self.node.session
        control = session.history.newest(session.wall.now_ms())
        return control if control is not None and control.coordinator == self.node.did else None

    # --- which plans stand --------------------------------------------------------------------

    def _plans(self) -> dict[str, _Running]:
        if self._is_stale:
            # What was applied a moment ago may not be in the file yet.
            self._is_stale = self.node.replica.cursor.seq < self._changed_seq
            known = self._running
            plans = self.node.replica.plans.standing(limit=MOST_PLANS)
            self._running = {
                plan.op_id: known.get(plan.op_id) or self._begun(plan) for plan in plans
            }
            for one in self._reactions():
                if one.plan.op_id not in known:
                    floor = self._floor(one.plan)
                    self._cursor = floor if self._cursor is None else min(self._cursor, floor)
        return self._running

    def _begun(self, plan: Plan) -> _Running:
        trigger = plan.body.trigger
        if not isinstance(trigger, Cron):
            return _Running(plan)
        try:
            ticks = CronTicks(trigger.at, trigger.zone)
        except Malformed as problem:
            self._tell("plan_not_valid", plan, problem.message)
            return _Running(plan)
        return _Running(plan, ticks, ticks.next(self._derived_ms(plan)))

    def _derived_ms(self, plan: Plan) -> int:
        """The time up to which the ticks of a plan are done."""
        newest_ms = self.node.replica.plans.newest_tick(plan.op_id) or 0
        return max(newest_ms, starts_ms(plan.body, plan.put_ms))

    def _reactions(self) -> list[_Running]:
        running = self._plans().values()
        return [one for one in running if isinstance(one.plan.body.trigger, Reaction)]

    def _floor(self, plan: Plan) -> int:
        """A sequence up to which every cause has had its reaction."""
        replica = self.node.replica
        older = replica.plans.derived(plan.op_id, limit=1, skip=CAUSES_PER_BATCH)
        for job in older:
            if isinstance(job.derived, Cause):
                cause = replica.job_lane(job.derived.kind, job.derived.job).job
                if cause is not None:
                    return max(cause.ended_seq, plan.put_seq)
        return plan.put_seq

    # --- ticks --------------------------------------------------------------------------------

    async def _tick(self, one: _Running) -> bool:
        """Derive what is due; False if that has to be tried again soon."""
        now_ms = self.node.session.now_by_both_clocks_ms()
        ticks, trigger = one.ticks, one.plan.body.trigger
        if one.next_ms is None or one.next_ms > now_ms or ticks is None:
            return True
        if not isinstance(trigger, Cron) or self._is_refused(one):
            return True
        since_ms = self._derived_ms(one.plan)
        due = ticks.due(since_ms, now_ms, most=missed_ticks.MOST_MISSED)
        for tick_ms in missed_ticks.wanted(due, now_ms, trigger.missed):
            if self._stands(one) and not await self._derive(one, Tick(tick_ms=tick_ms)):
                return self._is_refused(one)
        one.next_ms = ticks.next(max(now_ms, since_ms))
        return True

    # --- reactions ----------------------------------------------------------------------------

    async def _react(self) -> bool:
        """Derive from a batch of causes; False if that has to be tried again soon."""
        causes, reactions = self._causes(limit=CAUSES_PER_BATCH), self._reactions()
        wanted = [
            (one, derived)
            for cause in causes
            for one in reactions
            if (derived := self._reaction(one, cause)) is not None
        ]
        if not await self._derive_all(wanted):
            return False
        # A plan that was put meanwhile counts only what ends after it, and sets the cursor back.
        if causes:
            self._cursor = causes[-1].ended_seq
        return True

    def _causes(self, *, limit: int) -> list[Job]:
        """The next jobs that ended, of the kinds that some plan waits for."""
        triggers = [one.plan.body.trigger for one in self._reactions()]
        kinds = sorted({one.kinds for one in triggers if isinstance(one, Reaction)})
        if not kinds or self._cursor is None:
            return []
        return self.node.replica.plans.ended_after(self._cursor, kinds, limit=limit)

    def _reaction(self, one: _Running, cause: Job) -> Cause | None:
        """What follows from a cause by a plan, if anything does that is not on the log yet."""
        plan, trigger = one.plan, one.plan.body.trigger
        if not isinstance(trigger, Reaction) or cause.ended_seq <= plan.put_seq:
            return None
        if cause.replica_of:
            return None  # its parent is what ends
        if not trigger.covers(cause.kind) or not trigger.counts(cause.state.value):
            return None
        if depth_of(cause.derived) >= MAX_DEPTH:
            self._tell("plan_too_deep", plan, f"{cause.kind} {cause.id} is the last of a chain")
            return None
        derived = Cause(kind=cause.kind, job=cause.id, depth=depth_of(cause.derived) + 1)
        if self._is_derived(plan, derived) or self._is_refused(one):
            return None
        return derived if self._was_allowed(plan, derived, cause) else None

    def _was_allowed(self, plan: Plan, derived: Cause, cause: Job) -> bool:
        """Whether the plan's author could submit and read this when the cause ended.

        So a plan does not make up for what ended while its author had no right.
        """
        session = self.node.session
        then = session.history.at(cause.ended_seq + 1, cause.ended_ms)
        if then is None:
            return False
        seq, at_ms = cause.ended_seq + 1, cause.ended_ms
        if plan_authority.fault(then, plan, derived, seq=seq, at_ms=at_ms) is not None:
            return False
        branches = session.protocol.branches
        if plan_authority.may_read(
            session.control,
            branches,
            plan.author,
            cause.kind,
            self.node.session.now_by_both_clocks_ms(),
        ):
            return True
        self._tell("plan_may_not_read", plan, f"its author may not read {cause.kind}")
        return False

    # --- writing ------------------------------------------------------------------------------

    async def _derive_all(self, wanted: list[tuple[_Running, Cause]]) -> bool:
        allowed = [pair for pair in wanted if self._is_allowed(*pair)]
        intents = [self._intent(one.plan, derived) for one, derived in allowed]
        results = await self.node.write_all(intents) if intents else []
        is_done = True
        for (one, derived), written in zip(allowed, results, strict=True):
            if written.problem is not None:
                raise written.problem
            is_done &= self._is_settled(one, derived, written.verdict)
        return is_done

    async def _derive(self, one: _Running, derived: Derivation) -> bool:
        """Write one derived job; whether it is on the log now."""
        if self._is_derived(one.plan, derived):
            return True
        if not self._is_allowed(one, derived):
            return False
        written = await self.node.write(self._intent(one.plan, derived))
        return self._is_settled(one, derived, written.verdict) and not self._is_refused(one)

    def _intent(self, plan: Plan, derived: Derivation) -> Intent:
        body = derived_body(plan.body, plan.op_id, derived)
        lane = self.node.replica.lane(plan_authority.derived_key(plan, derived))
        return Intent(JobSchedule, body, lane, deps=((plan.put_seq, plan.op_id),))

    def _is_settled(self, one: _Running, derived: Derivation, verdict: Verdict | None) -> bool:
        """Whether there is nothing to try again."""
        if verdict is not None and verdict.is_accepted:
            return True
        if self._is_derived(one.plan, derived):
            return True
        if verdict in (None, Verdict.EARLY, Verdict.PREV, Verdict.NOT_COORDINATOR, Verdict.STALE):
            return False  # another record came first, or it is not our turn any more
        self._refuse(one, verdict)
        return True

    def _is_derived(self, plan: Plan, derived: Derivation) -> bool:
        lane = self.node.replica.lane(plan_authority.derived_key(plan, derived))
        job = lane.state
        if job is not None and job.plan != plan.op_id:
            self._tell("plan_job_taken", plan, f"somebody submitted {job.id} before its time")
        return job is not None

    def _is_allowed(self, one: _Running, derived: Derivation) -> bool:
        """Whether the plan's author could submit this now."""
        session = self.node.session
        seq, at_ms = session.history.applied + 1, self.node.session.now_by_both_clocks_ms()
        fault = plan_authority.fault(session.control, one.plan, derived, seq=seq, at_ms=at_ms)
        if fault is not None:
            self._refuse(one, fault)
        return fault is None

    def _refuse(self, one: _Running, verdict: Verdict | None) -> None:
        one.refused_under = self._state()
        if verdict is not None:
            self._tell("plan_refused", one.plan, f"{verdict.value}: {verdict.in_words}")

    def _is_refused(self, one: _Running) -> bool:
        return one.refused_under == self._state()

    def _state(self) -> tuple[int, int]:
        session = self.node.session
        return (session.control.since, session.history.grants.revision)

    def _stands(self, one: _Running) -> bool:
        """Whether the plan was neither replaced nor dropped meanwhile."""
        return one.plan.op_id in self._plans()

    def _tell(self, event: str, plan: Plan, why: str) -> None:
        """Log something about a plan once."""
        if (plan.op_id, event) not in self._told:
            if len(self._told) >= MOST_PLANS:
                self._told.clear()
            self._told.add((plan.op_id, event))
            log.warning(event, kind=plan.body.kind, plan=plan.body.name, why=why)
