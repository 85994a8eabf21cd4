"""`mesh.plans`: jobs that the mesh submits by itself (docs/do/plans.md).

    @mesh.cron("0 3 * * *", zone="Europe/Berlin")
    @mesh.task("report.daily")
    async def report() -> None: ...

    @mesh.on("succeeded", kind="build.*")
    @mesh.task("test.unit")
    async def test() -> None: ...

    async with mesh:
        await mesh.plans.put_all()

The decorators only write down what is planned. `put_all` puts it on the log, with this process's
right to submit; from then on the coordinator submits the jobs, whether or not this process runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from antiphon.core.derivations import plan_authority
from antiphon.core.derivations.derived_use import DerivedUse, cost_of
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.plans.ops import PLAN, DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.ops import when as in_words
from antiphon.core.families.plans.state import Plan, PlanLane, plan_key
from antiphon.core.record.ids import short_node
from antiphon.errors import Malformed, Misconfigured
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.plans.selected_plans import derived_lately, party_of_plan, plans_run
from antiphon.runtime.replica.lane_lists import LaneList
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from antiphon.sdk.many.bound_calls import Call, Caller
from antiphon.sdk.plans.triggers import Cron, Reaction, Trigger
from antiphon.sdk.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.manifest import Manifest
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.call_options import CallOptions, Scheduling
    from antiphon.sdk.connection.connection import Connection

T = TypeVar("T", bound=Task[..., Any])

MOST_LISTED: Final = 10_000
STANDING_PLANS: Final = LaneList[Plan]("plans", PlanLane, PLAN, "whose")
"""Plans that were put and not dropped."""
TICKS_SHOWN: Final = 3
_OF_ONE_JOB: Final = {
    "delay_ms": "delay",
    "at_ms": "at",
    "start_by_ms": "start_by",
    "start_within_ms": "start_by",
    "idempotency_key": "idempotency_key",
    "after": "after",
}


def plan_body(name: str, trigger: Trigger, schedule: ScheduleBody) -> PlanBody:
    """A plan of what would be submitted; `Misconfigured` for what no plan can have."""
    if isinstance(trigger, Reaction) and trigger.covers(schedule.kind):
        raise Misconfigured(
            f"the plan {name} would trigger itself: {trigger.kinds} includes {schedule.kind}",
            hint="react to other kinds than the one that it submits",
        )
    fields = {field: getattr(schedule, field) for field in schedule.__struct_fields__}
    return PlanBody(**fields, name=name, trigger=trigger)


class Planned(Struct, frozen=True):
    """A plan that a decorator wrote down."""

    name: str
    trigger: Trigger
    call: Call[Any]


class PlanStatus(Struct, frozen=True, kw_only=True):
    """A plan that stands, for people."""

    name: str
    kind: str
    when: str
    """In words."""
    trigger: Trigger
    author: str
    priority: str
    put_ms: int
    problem: str
    """Why it derives nothing; empty if it runs."""
    delayed: str
    """Why its jobs come late, or some of its ticks are left out; empty if neither."""
    next: list[datetime]
    """The next ticks, in the plan's zone."""
    newest: str
    """The id of the newest job derived from it; empty if there is none yet."""


class PlanOptions(TypedDict, total=False):
    """How `Mesh.cron` and `Mesh.on` plan a task."""

    name: str
    args: Sequence[object]
    kwargs: Mapping[str, object]


class Plans:
    """The plans of a mesh."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.plans`."""
        self._connection = connection

    def plan_task(
        self,
        trigger: Trigger,
        *,
        name: str = "",
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Callable[[T], T]:
        """What `Mesh.cron` and `Mesh.on` decorate a task with; `put_all` puts it on the mesh."""
        planned = self._connection.declared.planned

        def register(task: T) -> T:
            if not isinstance(task, Task):
                raise Misconfigured(
                    "a plan needs a task",
                    hint='put @mesh.cron(...) above @mesh.task("report.daily")',
                )
            chosen = check_name(name or default_name(task))
            if any((one.name, one.call.kind) == (chosen, task.kind) for one in planned):
                raise Misconfigured(
                    f"{task.kind} already has a plan named {chosen}",
                    hint='give each a name: @mesh.cron("0 3 * * *", name="nightly")',
                )
            planned.append(Planned(chosen, trigger, task.bind(*args, **(kwargs or {}))))
            return task

        return register

    async def put_all(self) -> list[str]:
        """Put every plan of this process's tasks on the mesh; the names of those that changed.

        Plans that have not changed are not written again, so a program may call it at every start.
        A plan whose decorator is gone stays until `drop`.
        """
        return [
            one.name
            for one in self._connection.declared.planned
            if await self.put(one.name, one.trigger, one.call)
        ]

    async def put(self, name: str, when: Trigger, call: Call[Any]) -> bool:
        """Put a plan: what `Task.bind` or `Mesh.bind` made, at a `cron(...)` or an `on(...)`.

        It replaces the plan of that name and kind. False if nothing changed.
        """
        _refuse_single(call.scheduling)
        # Every derived job gets its own nonce from the plan.
        repeatable = replace(call.scheduling, once=True, idempotency_key=None)
        schedule = await Caller(self._connection).body_of(replace(call, scheduling=repeatable))
        return await self._put(name, when, schedule)

    async def put_manifest(
        self,
        name: str,
        when: Trigger,
        kind: str,
        job: Manifest,
        *,
        options: CallOptions | None = None,
    ) -> bool:
        """Put a plan that submits a manifest, such as a command's."""
        from antiphon.sdk.call_options import Scheduling

        scheduling = Scheduling.of(options or {})
        _refuse_single(scheduling)
        content = replace(job, ulid=UNSET)
        body = scheduling.body(kind, content, now_ms=self._connection.session.wall.now_ms())
        return await self._put(name, when, body)

    async def _put(self, name: str, when: Trigger, schedule: ScheduleBody) -> bool:
        body, session = plan_body(check_name(name), when, schedule), self._connection.session
        view = await session.enter(plan_key(body.kind, name))
        control = await session.sync_control()
        plan = view.lane.state
        stands = isinstance(plan, Plan) and plan.body == body and not plan.is_dropped
        if stands and not _fault(control, plan, session):
            return False
        await write_one(session, Intent(PlanPut, body, view.lane), BEHIND)
        return True

    async def list(self, name: str = "") -> list[PlanStatus]:
        """The plans that stand, or those of a name, and what each does next, as seen from here."""
        session = self._connection.session
        control = await session.sync_control()
        async with self._connection.replica() as replica:
            plans = replica.ask(ReplicaPlans)
            if name:
                shown = plans.named(name, limit=MOST_LISTED)
            else:
                # However many plans one party has, those that are run are in the list.
                run, oldest = plans_run(plans, control, {}), plans.oldest(limit=MOST_LISTED)
                more = {one.first_seq: one for one in (*run.values(), *oldest)}
                shown = [more[seq] for seq in sorted(more)]
            return statuses(session, replica, [one.plan for one in shown])

    async def drop(self, name: str, *, kind: str = "") -> str:
        """Drop a plan by its name; its kind. Jobs that were derived from it stay."""
        async with self._connection.replica() as replica:
            named = replica.ask(ReplicaPlans).named(name, limit=MOST_LISTED)
        found = [one.plan.body.kind for one in named if kind in ("", one.plan.body.kind)]
        if not found:
            raise Misconfigured(
                f"there is no plan named {name}" + (f" for {kind}" if kind else ""),
                hint="antiphon plan list, or mesh.plans.list(), lists those that stand",
            )
        if len(found) > 1:
            raise Misconfigured(
                f"{len(found)} kinds have a plan named {name}: {', '.join(found)}",
                hint=f"say which: --kind {found[0]}, or kind={found[0]!r}",
            )
        session = self._connection.session
        view = await session.enter(plan_key(found[0], name))
        body = DropBody(kind=found[0], name=name)
        await write_one(session, Intent(PlanDrop, body, view.lane), BEHIND)
        return found[0]


def statuses(session: Session, replica: Replica, plans: Sequence[Plan]) -> list[PlanStatus]:
    """What each of these plans does next, as seen from here."""
    control, asked = session.control, replica.ask(ReplicaPlans)
    run = plans_run(asked, control, {one.put_seq: one for one in plans}) if plans else {}
    use = derived_lately(asked, control, session.wall.now_ms())
    view = _View(replica, session, control, run.keys(), use)
    return [_status(view, one) for one in plans]


def check_name(name: str) -> str:
    """`name`, or `Malformed` with what a plan's name looks like."""
    try:
        msgspec.convert({"kind": "a", "name": name}, DropBody)
    except msgspec.ValidationError as problem:
        raise Malformed(
            f"{name!r} is not a plan's name",
            reason="name",
            hint="use up to 63 of a-z, 0-9, '-' and '_', such as nightly",
        ) from problem
    return name


def default_name(task: Task[..., Any]) -> str:
    """The name of a task's plan that names none: its function's."""
    return str(getattr(task, "__name__", "")).strip("_").lower() or task.kind.rpartition(".")[2]


def _refuse_single(scheduling: Scheduling) -> None:
    given = asdict(scheduling)
    absent = (None, ())
    wrong = next((word for name, word in _OF_ONE_JOB.items() if given[name] not in absent), None)
    if wrong is not None:
        raise Misconfigured(
            f"a plan cannot have {wrong}: it would be the same for every job that it submits",
            hint=f"leave out {wrong}; the trigger says when",
        )


def _fault(control: Control, plan: Plan, session: Session) -> str:
    """Why a plan's author could not submit its job now; empty if it could."""
    derived = plan_authority.example(plan)
    seq, at_ms = session.confirmed + 1, session.wall.now_ms()
    fault = plan_authority.fault(control, plan, derived, seq=seq, at_ms=at_ms)
    return "" if fault is None else f"its author may not submit it: {fault.in_words}"


class _View(Struct, frozen=True):
    """What a status is made of."""

    replica: Replica
    session: Session
    control: Control
    run: Collection[int]
    """Where the plans that are run were put."""
    use: DerivedUse


def _beyond(view: _View, plan: Plan) -> str:
    """Why a plan is not among those that are run; empty if it is."""
    if plan.put_seq in view.run:
        return ""
    most, party = view.control.rules.plans_max, party_of_plan(view.control, plan)
    return (
        f"{short_node(party)} and those that it delegated to have more than {most:,} plans, and"
        " only the oldest run; drop some, or ask the owner to raise the rule plans_max"
    )


def _delayed(view: _View, plan: Plan) -> str:
    """Why the jobs of a plan come late; empty if they do not."""
    rate, party = view.control.rules.derived_per_minute, party_of_plan(view.control, plan)
    now_ms, cost = view.session.wall.now_ms(), cost_of(plan.body.replicas)
    if view.use.room(party, cost, rate=rate, now_ms=now_ms):
        return ""
    used = view.use.used(party, now_ms)
    return (
        f"the plans of {short_node(party)} and those that it delegated to have submitted {used:,}"
        f" jobs within a minute, and the rule derived_per_minute allows {rate:,}"
    )


def _status(view: _View, plan: Plan) -> PlanStatus:
    from antiphon.core.families.jobs.planned import starts_ms
    from antiphon.runtime.plans.cron_ticks import CronTicks

    session, ticks = view.session, list["datetime"]()
    problem = _fault(view.control, plan, session) or _beyond(view, plan)
    trigger = plan.body.trigger
    if isinstance(trigger, Cron):
        try:
            cron_ticks = CronTicks(trigger.at, trigger.zone)
            after_ms = max(session.wall.now_ms(), starts_ms(plan.body, plan.put_ms))
            ticks = cron_ticks.first(TICKS_SHOWN, after_ms=after_ms)
        except Malformed as wrong:
            problem = problem or wrong.message
        if not ticks:
            problem = problem or "the expression has no tick in the next fifty years"
    newest = view.replica.ask(ReplicaPlans).derived(plan.op_id, limit=1)
    return PlanStatus(
        name=plan.body.name,
        kind=plan.body.kind,
        when=in_words(trigger),
        trigger=trigger,
        author=plan.author,
        priority=plan.body.priority,
        put_ms=plan.put_ms,
        problem=problem,
        delayed="" if problem else _delayed(view, plan),
        next=[] if problem else ticks,
        newest=newest[0].id if newest else "",
    )


__all__ = ["PlanOptions", "PlanStatus", "Planned", "Plans", "check_name"]
