"""A job in a few words, for an endpoint or a screen: `await handle.status()`.

Dataclasses, because web frameworks turn these into JSON by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import JobClaim, JobComplete, JobYield
from antiphon.core.history.tenures import lost_tenures, lost_words, tenures_of
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.caller.submission import ended_of, failure
from antiphon.telemetry import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.jobs.ops import Failure
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

ERROR_LETTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job's last run was when its worker last wrote it to the log."""

    done: float
    """From 0 to 1."""
    note: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job as people speak of it; `handle.state()` has everything."""

    id: str
    kind: str
    state: str
    """`waiting`, `pending`, `claimed`, `running`, `succeeded`, `failed` or `aborted`."""
    submitted_ms: int
    """Unix time in milliseconds."""
    submitter: str
    """By name, or the end of its id if it has none."""
    worker: str | None
    """Which has it, or had it last; None: none so far."""
    attempts: int
    """Begun so far, the present one included."""
    limit: int
    """How many attempts it has."""
    error: str | None
    """Why it has no result, or what its last attempt failed with, in one line."""
    progress: Progress | None
    """As the log has it, from a second after the run began: `handle.listen()` has every report."""


def progress_of(view: JobView) -> Progress | None:
    """The last progress on a job's lane; None if its handler reported none, or just began."""
    for judged in reversed(view.history):
        op = judged.opened.op
        if judged.verdict is Verdict.OK and isinstance(op, JobClaim) and op.body.progress:
            told, at_s = op.body.progress, judged.opened.commit_ms / 1000
            return Progress(
                done=told.permille / 1000,
                note=printable(told.note),
                at=datetime.fromtimestamp(at_s, UTC),
            )
    return None


def last_failure(view: JobView) -> Failure | None:
    """What its last run failed with; None if it did not fail, or none has ended."""
    for judged in reversed(view.history):
        op = judged.opened.op
        if judged.verdict is Verdict.OK and isinstance(op, JobComplete | JobYield):
            return op.body.error
    return None


def status_of(session: Session, job: Job, view: JobView) -> JobStatus:
    """The job in a few words, from its lane."""
    name = holdings_of(session).name
    tenures = tenures_of(_history(view))
    return JobStatus(
        id=job.id,
        kind=job.kind,
        state=job.state.value,
        submitted_ms=job.scheduled_ms,
        submitter=name(job.scheduler),
        worker=name(tenures[-1].node) if tenures else None,
        attempts=job.tries,
        limit=job.attempts_max,
        error=_error(session, view, name),
        progress=progress_of(view),
    )


def _history(view: JobView) -> list[tuple[OpenedRecord, Verdict]]:
    return [(one.opened, one.verdict) for one in view.history]


def _error(session: Session, view: JobView, name: Callable[[str], str]) -> str | None:
    ended = ended_of(view)
    if ended is not None and ended.job.outcome == "succeeded":
        return None
    failed = last_failure(view) if ended is None else ended.error
    if failed is not None:
        words = f"{failed.name}: {failed.message}"
    elif ended is not None:
        words = failure(ended, session).message.partition("): ")[2]
    else:
        words = lost_words(lost_tenures(_history(view)), name)
    first = printable(words.partition("\n")[0])
    cut = f"{first[: ERROR_LETTERS - 1]}…" if len(first) > ERROR_LETTERS else first
    return cut or None
