"""Jobs: submitted, claimed, run, completed with a proof (spec §7.2)."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.jobs import columns, ops, state, table, words
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
        ops.JobExpire,
        ops.JobCancel,
        ops.JobEvict,
    ),
    branches=(ops.WAIT, ops.CALL, ops.JOB),
    lane=state.JobLane,
    standing=table.standing,
    entitled=table.entitled,
    last=table.last,
    step=table.step,
    unfinished=table.unfinished,
    words=words.sentence,
    columns=columns.COLUMNS,
    indexes=columns.INDEXES,
    blobs=columns.blobs,
)
