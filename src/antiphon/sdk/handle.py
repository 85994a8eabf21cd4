"""The handle of a job: wait for it, listen to it, inspect it, cancel it, retry it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from antiphon.core.families.jobs.state import Job
from antiphon.core.families.jobs.table import standing
from antiphon.core.proof.output import Output
from antiphon.core.story import Line, tell
from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.retry import RetryLinks, links_of
from antiphon.runtime.caller.retry import retry as submit_retry
from antiphon.runtime.caller.submission import Ended, failure
from antiphon.runtime.worker.job_output import OutputMessage, listening
from antiphon.sdk.defaults import ROLL_CALL_S
from antiphon.sdk.job_wait import wait_for_end
from antiphon.sdk.result_reader import PLAIN_RESULT, ResultReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.presence.roll_call import Card
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.explanation import Explanation

R = TypeVar("R")


class JobHandle(Generic[R]):
    """One job on the log. Handles are cheap and own no resource."""

    def __init__(
        self,
        session: Session,
        kind: str,
        job_id: str,
        *,
        is_new: bool,
        reader: ResultReader = PLAIN_RESULT,
    ) -> None:
        """Made by `Task.submit`, `Mesh.submit` and `Mesh.job`."""
        self._session = session
        self._reader = reader
        self.kind = kind
        self.id = job_id
        self.is_new = is_new
        """False if the same job was already on the log: then nothing is run again."""

    @classmethod
    def of(
        cls,
        session: Session,
        submitted: submission.Submitted,
        reader: ResultReader = PLAIN_RESULT,
    ) -> Self:
        """The job that a submission put on the log, or found there."""
        is_new = submitted.is_new
        return cls(session, submitted.kind, submitted.id, is_new=is_new, reader=reader)

    def __repr__(self) -> str:
        return f"<JobHandle {self.kind} {self.id[:8]}>"

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - it says for what
        """Wait for the accepted result: what the task's annotation says, or plain JSON.

        `JobFailed` if there is none, TimeoutError if it comes too late. `NobodyAnswers` is a
        warning, after a few seconds, that no worker which is online runs this kind.
        """
        ended = await wait_for_end(self._session, self.kind, self.id, timeout)
        return await self.result_of(ended)

    async def result_of(self, ended: Ended) -> R:
        """The result of an end that is known; `JobFailed` if it has none."""
        if ended.job.outcome != "succeeded":
            raise failure(ended)
        return cast("R", await self._reader.read(ended))

    async def end(self, timeout: Duration | None = None) -> Ended:  # noqa: ASYNC109 - the same
        """Wait for the job's end, whatever it is: its outputs, its error, a command's exit code.

        TimeoutError if it comes too late.
        """
        return await wait_for_end(self._session, self.kind, self.id, timeout)

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[OutputMessage]]:
        """The job's output and progress from now on, while it runs.

            async with handle.listen() as words:
                async for one in words: ...

        Nothing of it is stored: if you listen late, you miss the beginning, and `end` has the
        whole output. The job need not be on the log yet.
        """
        return listening(self._session, self.kind, self.id)

    async def explain(self, *, wait_s: float = ROLL_CALL_S) -> tuple[Explanation, list[Card]]:
        """Which worker got the job, which did not and why, and what it waits for.

        With it come the cards of the nodes that answered a roll call within `wait_s`.
        """
        from antiphon.sdk.explanation import explain_job

        return await explain_job(self._session, self.kind, self.id, wait_s=wait_s)

    async def lane(self) -> JobView:
        """Every record about the job, judged."""
        return await self._session.read_lane(self.kind, self.id)

    async def state(self) -> Job:
        """The job as it is on the log now."""
        found = (await self.lane()).lane
        # A tenure may have ended with its authority since the lane's last record.
        control = await self._session.sync_control()
        job = standing(control, found.job, self._session.confirmed + 1)
        if job is None:
            raise Rejected(f"there is no job {self.id[:8]} of kind {self.kind}", reason="no_job")
        return job

    async def story(self) -> list[Line]:
        """Everything on the job's lane, in words, with the verdicts, and what ended its leases."""
        from antiphon.sdk.explanation import history_of

        view = await self.lane()
        await self._session.sync_control()
        return tell(await history_of(self._session, view))

    async def outputs(self) -> tuple[Output, ...]:
        """What the job wrote, by content; nothing if no run of it was completed.

        `Rejected` while the job has not ended. `Mesh.fetch` gets the content.
        """
        ended = submission.ended_of(await self.lane())
        if ended is None:
            raise Rejected(
                f"job {self.id[:8]} has not ended, so it has no outputs yet",
                reason="not_ended",
                hint=f"antiphon show {self.id[:8]}",
            )
        return ended.outputs

    async def retry(self) -> JobHandle[R]:
        """Submit a job again that ended without a result: another job, linked to this one.

        A second retry finds the first: `is_new` is then false. A retry that failed is retried in
        turn.
        """
        submitted = await submit_retry(self._session, self.kind, self.id)
        return JobHandle.of(self._session, submitted, self._reader)

    async def links(self) -> RetryLinks:
        """Which job this one retries, and which one retries it."""
        return await links_of(self._session, await self.lane())

    async def cancel(self, reason: str = "") -> Job:
        """End the job if it has not ended; the job afterwards."""
        return await submission.cancel(self._session, self.kind, self.id, reason=reason)


__all__ = ["Ended", "JobHandle", "OutputMessage", "RetryLinks", "failure"]
