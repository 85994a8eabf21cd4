"""Tenures that ended because their authority ended: which control record ended each (spec §6).

A revocation is not in the job's lane, but it ends the lease there. A job's story shows it in its
place. Nothing here decides: `standing` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from antiphon.core.families.jobs.ops import JobCancel, JobClaim, JobComplete, JobExpire, JobYield
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.families.jobs.table import standing
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.history.control_history import ControlHistory
    from antiphon.core.opened_record import OpenedRecord

MAX_LAPSES: Final = 64
"""If there are more, the newest are kept."""


def lapses(
    control: ControlHistory, job: Job, lane: Iterable[tuple[OpenedRecord, Verdict]], *, before: int
) -> tuple[int, ...]:
    """The sequences of the control records that ended a tenure of this job, oldest first.

    `lane` has its judged records; control must be known up to `before`, which is excluded.
    """
    found: list[int] = []
    holder: _Holder | None = None
    for record, verdict in lane:
        if verdict is not Verdict.OK:
            continue
        if holder is not None and (at := _lapse(control, holder, record.seq)) is not None:
            found.append(at)
            holder = None
        match record.op:
            case JobClaim(author=who, auth=auth):
                held = replace(
                    job, state=State.CLAIMED, claimer=who, auth=auth, auth_seq=record.seq
                )
                holder = _Holder(held, record.commit_ms)
            case JobYield() | JobExpire() | JobComplete() | JobCancel():
                holder = None
            case _:
                pass
    if holder is not None and (at := _lapse(control, holder, before)) is not None:
        found.append(at)
    return tuple(found[-MAX_LAPSES:])


class _Holder(NamedTuple):
    job: Job
    claimed_ms: int
    """Judged by the protocol of the claim: a later protocol does not end a tenure."""


def _lapse(control: ControlHistory, holder: _Holder, upto: int) -> int | None:
    """The record before `upto` that ended the holder's tenure; None if it has not ended."""

    def has_lapsed(seq: int) -> bool:
        state = control.at(seq, holder.claimed_ms)
        now = standing(state, holder.job, seq) if state is not None else None
        return now is not None and now.state is State.PENDING

    if not has_lapsed(upto):
        return None
    held, lapsed = holder.job.auth_seq, upto
    while lapsed - held > 1:
        middle = (held + lapsed) // 2
        held, lapsed = (held, middle) if has_lapsed(middle) else (middle, lapsed)
    return held
