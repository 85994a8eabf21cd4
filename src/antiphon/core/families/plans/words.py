"""A sentence for each op about a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.jobs.derivation import Cron, Reaction, Trigger
from antiphon.core.families.plans.ops import PlanPut

if TYPE_CHECKING:
    from antiphon.core.record.op import Op


def sentence(op: Op) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    if isinstance(op, PlanPut):
        return f"put the plan {op.body.name}: {op.body.kind} {when(op.body.trigger)}"
    return f"dropped the plan {op.body.name}"


def when(trigger: Trigger) -> str:
    """When a plan submits its job."""
    match trigger:
        case Cron(at=at, zone=zone):
            return f"at '{at}' in {zone}"
        case Reaction(on=on, kinds=kinds):
            return f"whenever {kinds} {'has' if on != 'aborted' else 'was'} {on}"
