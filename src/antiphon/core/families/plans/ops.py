"""The two ops about a plan (spec §7.4).

A plan's lane is one subject, named after the kind that it submits and its own name. Whoever may
submit jobs of that kind may put a plan and drop it.
"""

from __future__ import annotations

from typing import ClassVar, Final

from antiphon.core.authority.job_rights import READ_BY
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


class PlanDrop(_PlanOp, frozen=True, tag="plan.drop"):
    """Drops a plan."""

    body: DropBody
