"""Jobs: submitted, claimed, run, completed with a proof (spec §7.2).

    ops                what can be written about a job
    table              whether each op is accepted, in every state (`_complete`, `_expire_held`, …)
    scheduling         the job that a first schedule creates, or why there is none
    completion_proof   the check of the proof in a completion
    audited_calls      the check of what a completion says about model calls
    replicas           replicas of a job, and which of them are a quorum
    state              the job and its lane, derived from the accepted ops
    priority           which waiting job is handed out first
    derivation         what a job was derived from, and what a plan waits for
    planned            whether a derived schedule follows from its plan
    questions          questions to people, and who may answer them
    entitlement        who may write without a chain of delegations
    run_artifacts      what the runs of a job store before its end: steps, parts, snapshots
    stored_content     what is stored outside the log for a job
    subjects           where the records are on the log
    columns            what a replica can be queried by

To add an op, follow docs/ARCHITECTURE.md, "A new op in an existing family": it also lists the
places outside this folder.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.families.jobs import columns, entitlement, ops, replicas, state, table
from antiphon.core.family import Family

JOBS: Final = Family(
    name="jobs",
    ops=(
        ops.JobSchedule,
        ops.JobOffer,
        ops.JobClaim,
        ops.JobStart,
        ops.JobComplete,
        ops.JobYield,
        ops.JobArtifact,
        ops.JobExpire,
        ops.JobResolve,
        ops.JobCancel,
        ops.JobEvict,
    ),
    branches=(ops.WAIT, ops.CALL, ops.JOB),
    rights={
        "claim": ("/job/claim", "/job/complete"),
        "answer": ("/job/answer",),
        "schedule": ("/job/schedule", "/job/read"),
        "read": ("/job/read",),
        "cancel": ("/job/cancel",),
    },
    lane=state.JobLane,
    standing=table.standing,
    entitled=entitlement.entitled,
    last=table.last,
    step=table.step,
    unfinished=table.unfinished,
    is_asked_again=table.is_asked_again,
    deps_checked=replicas.deps_checked,
    columns=columns.COLUMNS,
    indexes=columns.INDEXES,
    blobs=columns.blobs,
    follows=columns.follows,
    is_named=True,
    lanes_named=replicas.lanes_named,
)
