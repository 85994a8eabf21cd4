"""The two ops about a plan (spec §7.4).

A plan's lane is one subject, named after the kind that it submits and its own name. Whoever may
submit jobs of that kind may put a plan and drop it.
"""

from __future__ import annotations

from typing import ClassVar, Final

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.families.jobs.derivation import Cron, Reaction, Trigger
from antiphon.core.families.jobs.planned import PlanBody, PlanName
from antiphon.core.record.branches import Branch
from antiphon.core.record.op import Body, Kind, Op

PLAN: Final = Branch(stem="plan", read_by=READ_BY, written_by=("/job/schedule",))
"""Who reads a kind's jobs also reads its plans: a derived job names its plan."""


class DropBody(Body, frozen=True):
    """Ends a plan; jobs that were derived from it stay."""

    kind: Kind
    name: PlanName


class _PlanOp(Op, frozen=True):
    COMMAND: ClassVar[str] = "/job/schedule"
    BRANCH: ClassVar[Branch] = PLAN

    def subject(self, mesh: str) -> str:
        """The plan's own subject."""
        return PLAN.subject(mesh, self.body.kind, self.body.name)


class PlanPut(_PlanOp, frozen=True, tag="plan.put"):
    """Puts a plan, or replaces it: the last one stands."""

    body: PlanBody

    def words(self) -> str:
        """In a sentence."""
        return f"put the plan {self.body.name}: {self.body.kind} {when(self.body.trigger)}"


class PlanDrop(_PlanOp, frozen=True, tag="plan.drop"):
    """Drops a plan."""

    body: DropBody

    def words(self) -> str:
        """In a sentence."""
        return f"dropped the plan {self.body.name}"


def when(trigger: Trigger) -> str:
    """When a plan submits its job, in words."""
    match trigger:
        case Cron(at=at, zone=zone):
            return f"at '{at}' in {zone}"
        case Reaction(on=on, kinds=kinds, result=result, output=output):
            named = "" if output == result else f" as {result}"
            given = f", with its {output or 'result'}{named}" if result else ""
            return f"whenever {kinds} {'has' if on != 'aborted' else 'was'} {on}{given}"
