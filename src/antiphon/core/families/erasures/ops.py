"""The op that has a job's bytes removed.

Its subject is named after the job. Whoever may forget a kind may forget all jobs of that kind, also
those that others submitted: whose an archived job was, no reader of the log can tell.
"""

from __future__ import annotations

from typing import ClassVar, Final

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.families.jobs.ops import JobId
from antiphon.core.record.branches import Branch
from antiphon.core.record.op import Body, Kind, Op

MAY_FORGET: Final = "/job/forget"
FORGET: Final = Branch(stem="forget", read_by=READ_BY, written_by=(MAY_FORGET,))
"""Who reads a kind's jobs also reads which of them were forgotten."""


class ForgetBody(Body, frozen=True):
    """The job whose records and stored values are to go."""

    kind: Kind
    job: JobId


class JobForget(Op, frozen=True, tag="job.forget"):
    """Has the bytes of a job removed, once it has ended: of its records, and of what it stored."""

    body: ForgetBody
    COMMAND: ClassVar[str] = MAY_FORGET
    BRANCH: ClassVar[Branch] = FORGET

    def subject(self, mesh: str) -> str:
        """One for each job."""
        return FORGET.subject(mesh, self.body.kind, self.body.job)

    def words(self) -> str:
        """In a sentence."""
        return f"had the job {self.body.job[:8]} forgotten: its bytes are removed"
