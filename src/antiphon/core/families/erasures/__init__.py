"""Erasures: jobs whose bytes are kept no longer, by whose order, and since when (spec §7.5).

An erasure has a lane of its own beside its job's: it can be written long after the job's lane was
archived, and no verdict on a job depends on it. Stores follow it: the archive, the blob store, and
replicas once nothing on the log can depend on the job's records any more.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.families.erasures import ops, state, table
from antiphon.core.family import Family

ERASURES: Final = Family(
    name=state.FAMILY,
    ops=(ops.JobForget,),
    branches=(ops.FORGET,),
    rights={"forget": (ops.MAY_FORGET, "/job/read")},
    lane=state.ErasureLane,
    entitled=table.entitled,
    step=table.step,
    is_asked_again=lambda _op: True,
)
