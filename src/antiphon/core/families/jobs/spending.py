"""What the tenures of a job cost, as their workers said it; no verdict depends on it (spec §11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.core.cost.job_cost import Spent

if TYPE_CHECKING:
    from antiphon.core.cost.job_cost import Cost
    from antiphon.core.families.jobs.ops import CompleteBody
    from antiphon.core.families.jobs.state import Job


def with_cost(job: Job, node: str, cost: Cost | None) -> Job:
    """The job after a tenure of this node."""
    if cost is None:
        return job
    spent = dict(job.spent)
    spent[node] = spent.get(node, Spent()).plus(cost)
    return replace(job, spent=tuple(spent.items()))


def cost_in_proof(body: CompleteBody) -> Cost | None:
    """What a completion says that its tenure cost; its proof has been checked."""
    return None if body.proof is None else body.proof.cost
