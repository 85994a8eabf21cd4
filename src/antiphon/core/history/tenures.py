"""Who held a job when, by its records, and which workers were lost with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.clock.hlc import pack
from antiphon.core.families.grants.ops import UcanRevoke
from antiphon.core.families.jobs.ops import (
    JobCancel,
    JobClaim,
    JobComplete,
    JobExpire,
    JobSchedule,
    JobYield,
)
from antiphon.core.families.mesh.ops import MeshEvidence
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.time_text import time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.op import Op

WORKER_LOST: Final = "WorkerLost"
"""The error of a tenure whose worker is gone, and of a job that is not run again for that."""
EXPIRED: Final = "expired"
RESTARTED: Final = "restarted"
MOST_NAMED: Final = 5
_DAY: Final = slice(0, 10)
_MINUTE: Final = slice(11, 16)


class Tenure(Struct, frozen=True, kw_only=True):
    """One tenure: a worker held the job."""

    node: str
    fence: str
    since_ms: int
    until_ms: int | None = None
    how: str = ""
    """How it ended, in one word; empty while it lasts."""
    ended_late: bool = False
    """Whether its worker ended it after it had expired: it was slow, or cut off for a while."""

    @property
    def is_lost(self) -> bool:
        """Whether its worker stopped answering: it crashed, was killed, stood still or was cut off.

        The log cannot tell these apart.
        """
        return self.how in (EXPIRED, RESTARTED) and not self.ended_late


def tenures_of(history: Iterable[tuple[OpenedRecord, Verdict]]) -> tuple[Tenure, ...]:
    """Who held the job when, by the records in log order."""
    found: list[Tenure] = []
    for record, verdict in history:
        op = record.op
        if verdict is not Verdict.OK or op is None:
            found = _with_late_end(found, op)
            continue
        is_held = bool(found) and not found[-1].how
        if isinstance(op, JobClaim):
            if not is_held or op.author != found[-1].node:
                since_ms = record.commit_ms
                found.append(Tenure(node=op.author, fence=pack(op.hlc), since_ms=since_ms))
        elif is_held and (how := _ending(record)):
            found[-1] = replace(found[-1], until_ms=record.commit_ms, how=how)
    return tuple(found)


def _with_late_end(found: list[Tenure], op: Op | None) -> list[Tenure]:
    """The tenures, if a refused op is the end of one that had expired."""
    if not isinstance(op, JobComplete | JobYield):
        return found
    return [
        replace(one, ended_late=True)
        if (one.fence, one.node, one.how) == (op.body.fence, op.author, EXPIRED)
        else one
        for one in found
    ]


def _ending(record: OpenedRecord) -> str:
    """How an op ends a tenure, in a word or two; empty if it does not."""
    match record.op:
        case JobExpire():
            return EXPIRED
        case JobYield(body=body):
            is_lost = body.error is not None and body.error.name == WORKER_LOST
            return RESTARTED if is_lost else f"gave back ({body.reason})"
        case JobComplete(body=done):
            return done.status
        case JobCancel():
            return "cancelled"
        case UcanRevoke():
            return "revoked"
        case MeshEvidence():
            return "quarantined"
        case _:
            return "lost its permissions" if record.is_control else ""


def lost_tenures(
    history: Iterable[tuple[OpenedRecord, Verdict]], *, living: tuple[str, str] | None = None
) -> tuple[Tenure, ...]:
    """Those whose worker was lost, oldest first; people who leave a question are no workers.

    `living` is the process that asks: its key, and a fence before all of its own. It is not lost.
    """
    told = list(history)
    ops = (record.op for record, verdict in told if verdict is Verdict.OK)
    if any(isinstance(op, JobSchedule) and op.body.question is not None for op in ops):
        return ()
    node, began = living or ("", "")
    return tuple(
        one
        for one in tenures_of(told)
        if one.is_lost and not (one.node == node and one.fence >= began)
    )


def lost_words(lost: Sequence[Tenure], name: Callable[[str], str]) -> str:
    """Which workers were lost with a job, and when; empty if none was."""
    if not lost:
        return ""
    times = [time_text(one.until_ms or one.since_ms) for one in lost[-MOST_NAMED:]]
    is_one_day = len({time[_DAY] for time in times}) == 1
    named = [
        f"{name(one.node)} ({'' if is_one_day else time[_DAY] + ' '}{time[_MINUTE]} UTC)"
        for one, time in zip(lost[-MOST_NAMED:], times, strict=True)
    ]
    before = f"{len(lost) - len(named)} before, " if len(lost) > len(named) else ""
    many = "a worker was" if len(lost) == 1 else f"{len(lost)} workers were"
    return f"{many} lost while running it: {before}{', '.join(named)}"
