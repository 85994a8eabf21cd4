"""Which plans are run and how much was derived, by party: for the coordinator and for lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from antiphon.core.authority import parties
from antiphon.core.derivations.derived_use import (
    WINDOW_MS,
    DerivedUse,
    cost_of,
    party_of_derived,
)
from antiphon.core.derivations.plan_selection import MOST_PLANS, selected

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.plans.state import Plan
    from antiphon.runtime.replica.replica_plans import HeldBy, ReplicaPlans, StandingPlan

MOST_COUNTED: Final = 1_000_000


def party_of_plan(control: Control, plan: Plan) -> str:
    """For whom a plan is run: its author's party, or its author where that cannot be told."""
    party = parties.party_of(control, plan.author, plan.auth, before=plan.put_seq)
    return party or plan.author


def plans_run(
    plans: ReplicaPlans, control: Control, known: Mapping[int, StandingPlan]
) -> dict[int, StandingPlan]:
    """The plans that are run, by where each was last put, the oldest first.

    `known` has what the caller has read before: only the others are read.
    """
    column: HeldBy = "author" if control.rules.authority == "open" else "root"
    each = min(control.rules.plans_max, MOST_PLANS)
    found: dict[int, StandingPlan] = {}
    for row, put_seq in plans.oldest_of_each(column, each=each):
        one = known.get(put_seq) or plans.at(row)
        if one is not None:
            found[one.first_seq] = one
    pairs = [(party_of_plan(control, one.plan), seq) for seq, one in found.items()]
    run = sorted(selected(pairs, each=each))
    return {found[seq].plan.put_seq: found[seq] for seq in run}


def derived_lately(plans: ReplicaPlans, control: Control, now_ms: int) -> DerivedUse:
    """What was derived for each party within the last minute."""
    use = DerivedUse()
    for job in plans.derived_since(now_ms - WINDOW_MS, limit=MOST_COUNTED):
        use.note(party_of_derived(control, job), job.scheduled_ms, cost_of(job.replicas))
    return use
