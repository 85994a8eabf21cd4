"""How far a job's last run was, as its worker wrote it to the log with its renewals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.record.verdict import Verdict
from antiphon.telemetry import printable

if TYPE_CHECKING:
    from antiphon.runtime.log.lane_reader import JobView


class Progress(Struct, frozen=True, kw_only=True):
    """How far a job's last run was when its worker last wrote it to the log."""

    done: float
    """From 0 to 1."""
    note: str
    at: datetime


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
