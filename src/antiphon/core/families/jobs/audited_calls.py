"""Whether the model calls of a tenure are audited, and whether its completion accounts for them.

The owner's rule puts audit in force for every tenure (spec §12). A delegation puts it in force for
every tenure that is claimed under it or below it. What holds at the claim holds for the whole
tenure, so a worker knows it before it runs anything.

A completion says how many calls there were, and names a snapshot of each among its outputs: exactly
those that the runs of the job have stored on its lane, in their order. So nobody can name one that
is not on the log, or leave one out that is. What no rule can see is a call that was never captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.authority.grant_terms import AUDIT
from antiphon.core.families.jobs import run_artifacts
from antiphon.core.inference.snapshot import SNAPSHOT_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.ops import CompleteBody
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.proof.output import Output


def is_in_force(control: Control, auth: tuple[str, ...], *, before: int) -> bool:
    """Whether what is claimed under these delegations, before a sequence, is audited."""
    if control.rules.audit_inference:
        return True
    chain = control.grants.chain(control.owner, auth, before=before) if auth else None
    return chain is not None and AUDIT in chain.says


def snapshots_in(outputs: Iterable[Output]) -> tuple[Output, ...]:
    """The snapshots among the outputs of a completion."""
    return tuple(one for one in outputs if one.type == SNAPSHOT_TYPE)


def are_accounted_for(job: Job, body: CompleteBody) -> bool:
    """Whether a completion of this job says what it has to about model calls."""
    if body.calls is None:
        return not job.is_audited
    named = snapshots_in(body.outputs)
    stored = (job.artifacts or run_artifacts.NONE).snapshots_digest
    is_all = stored == run_artifacts.snapshots_digest(one.hash for one in named)
    return is_all and len(named) == body.calls
