"""Which plans are run and how much was derived, by party: for the coordinator and for lists.

The coordinator keeps the plans that are run in step with the log: a plan that is put, replaced or
dropped changes that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.authority import parties
from antiphon.core.derivations import plan_selection
from antiphon.core.derivations.derived_use import (
    WINDOW_MS,
    DerivedUse,
    cost_of,
    party_of_derived,
)
from antiphon.core.derivations.plan_selection import MOST_PLANS, selected
from antiphon.core.families.jobs.derivation import Reaction
from antiphon.runtime.plans.running_plan import RunningPlan
from antiphon.runtime.replica.replica_plans import ReplicaPlans, StandingPlan
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.plans.state import Plan
    from antiphon.runtime.attention.item_guard import ItemGuard
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.plans.due_plans import DuePlans
    from antiphon.runtime.replica.replica_plans import HeldBy

MOST_COUNTED: Final = 1_000_000
RESTS: Final = 3
"""How many times as long as something took it is not done again."""

log = LazyLogger(__name__)


def party_of_plan(control: Control, plan: Plan) -> str:
    """For whom a plan is run: its author's party, or its author where that cannot be told."""
    party = parties.party_of(control, plan.author, plan.auth, before=plan.put_seq)
    return party or plan.author


def most_of_one(control: Control) -> int:
    """How many plans of one party are run."""
    return min(control.rules.plans_max, MOST_PLANS)


def plans_run(
    plans: ReplicaPlans, control: Control, known: Mapping[int, Plan]
) -> dict[int, StandingPlan]:
    """The plans that are run, by where each was last put, the oldest first.

    `known` has what the caller has read before: only the others are read.
    """
    column: HeldBy = "author" if control.rules.authority == "open" else "whose"
    each = most_of_one(control)
    found: dict[int, StandingPlan] = {}
    for first_seq, row, put_seq in plans.oldest_of_each(column, each=each):
        plan = known.get(put_seq)
        one = plans.at(row) if plan is None else StandingPlan(plan, first_seq)
        if one is not None:
            found[first_seq] = one
    pairs = [(party_of_plan(control, one.plan), seq) for seq, one in found.items()]
    run = sorted(selected(pairs, each=each))
    return {found[seq].plan.put_seq: found[seq] for seq in run}


def derived_lately(plans: ReplicaPlans, control: Control, now_ms: int) -> DerivedUse:
    """What was derived for each party within the last minute."""
    use = DerivedUse()
    for job in plans.derived_since(now_ms - WINDOW_MS, limit=MOST_COUNTED):
        use.note(party_of_derived(control, job), job.scheduled_ms, cost_of(job.replicas))
    return use


class SelectedPlans:
    """The plans that the coordinator runs."""

    def __init__(self, node: FullNode, due: DuePlans, guard: ItemGuard[Any]) -> None:
        """Keeps `due` in step with the log, and forgets in `guard` what is no more."""
        self._node, self._due, self._guard = node, due, guard
        self.is_stale = True
        """Whether all plans have to be read again."""
        self.read_s = 0.0
        """Until when they are not (seconds since boot)."""
        self._read_under = 0
        """The control state under which they were read."""
        self._are_beyond = False
        """Whether there are plans that are not run, since there are too many."""
        self._is_told = False

    def begin(self) -> None:
        """Begin with what is in the replica."""
        self._due.clear()
        self.is_stale, self.read_s = True, 0.0

    def note(self, before: Plan | None, plan: Plan) -> None:
        """A plan was put, replaced or dropped; the record is the last one that was applied."""
        if before is not None and (before.op_id, before.is_dropped) == (
            plan.op_id,
            plan.is_dropped,
        ):
            return  # the same once more
        control = self._node.session.control
        was = self._due.running.get(before.put_seq) if before is not None else None
        if was is not None:
            self._forget(was)
        if plan.is_dropped:
            self.is_stale |= was is not None and self._are_beyond
            return
        if was is None and before is not None and not before.is_dropped:
            return  # it was too many, and still is
        party, each = party_of_plan(control, plan), most_of_one(control)
        self.is_stale |= self._are_beyond and was is not None and was.party != party
        ran = self._due.of_party[party]
        if ran >= each or len(self._due.running) >= plan_selection.MOST_PLANS:
            # Unless it is the newest of its party, it may come before another.
            self.is_stale |= before is not None or ran < each
            self._tell_beyond(1, control)
            return
        # Nothing can have ended since it was put, so a reaction has nothing to look at.
        is_begun = isinstance(plan.body.trigger, Reaction)
        self._due.add(RunningPlan(plan, party, is_begun=is_begun, cursor=plan.put_seq))

    def read(self, control: Control) -> None:
        """Read all plans again if that is necessary."""
        wall, replica, known = self._node.session.wall, self._node.replica, self._due.running
        self.is_stale |= self._read_under != control.since
        begun_s = wall.boot_s()
        if not self.is_stale or begun_s < self.read_s:
            return
        self.is_stale, self._read_under = False, control.since
        replica.flush()
        plans = replica.ask(ReplicaPlans)
        standing = plans_run(plans, control, {seq: one.plan for seq, one in known.items()})
        for gone in [one for seq, one in known.items() if seq not in standing]:
            self._forget(gone)
        for plan in [one.plan for seq, one in standing.items() if seq not in known]:
            self._due.add(RunningPlan(plan, party_of_plan(control, plan)))
        self._tell_beyond(plans.standing_count() - len(standing), control)
        now_s = wall.boot_s()
        self.read_s = now_s + RESTS * (now_s - begun_s)

    def _forget(self, one: RunningPlan) -> None:
        self._due.remove(one)
        self._guard.drop(one.key)

    def _tell_beyond(self, plans: int, control: Control) -> None:
        """Log once that some plans are not run."""
        self._are_beyond = plans > 0
        if self._are_beyond and not self._is_told:
            each = control.rules.plans_max
            log.warning(
                "plans_not_run",
                plans=plans,
                why=f"a party has more than {each:,}; its oldest are run (rule plans_max)",
                hint="antiphon plan list names them",
            )
        self._is_told = self._are_beyond
