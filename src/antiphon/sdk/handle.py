"""The handle of a job: wait for it, listen to it, inspect it, cancel it, retry it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from msgspec import Struct

from antiphon.core.families.jobs.state import Job
from antiphon.core.families.jobs.table import standing
from antiphon.core.history.story import Line, tell
from antiphon.core.proof.output import Output
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Misconfigured, Rejected, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import require_kept
from antiphon.runtime.caller.job_status import JobStatus, Progress, progress_of, status_of
from antiphon.runtime.caller.retry import RetryLinks, links_of
from antiphon.runtime.caller.retry import retry as submit_retry
from antiphon.runtime.caller.stream_parts import parts_of
from antiphon.runtime.caller.submission import Ended, failure
from antiphon.runtime.executors.handler_call import result_of
from antiphon.runtime.values.value_codec import PLAIN
from antiphon.runtime.worker.job_output import OutputMessage, listening
from antiphon.sdk.defaults import ROLL_CALL_S
from antiphon.sdk.durations import seconds
from antiphon.sdk.job_wait import wait_for_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from typing import Self

    from antiphon.core.families.jobs.state import JobLane
    from antiphon.core.presence.cards import Card
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.caller.model_calls import ModelCall as ModelCall  # noqa: PLC0414 - interfaces
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.explanation import Explanation

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class ResultReader(Struct, frozen=True):
    """Reads results of one task, or of any."""

    signature: CallSignature | None = None
    """The function's; None: plain JSON."""
    artifacts: Callable[[], Artifacts | None] = lambda: None
    """Asked only for a result that is stored as an artifact."""

    async def read(self, ended: Ended) -> Any:
        """The value; None for a command, which has no result."""
        job = (ended.job.kind, ended.job.id)
        text = await result_of(ended.outputs, self.artifacts, job=job)
        if text is None:
            return None
        return PLAIN.decode(text) if self.signature is None else self.signature.decode_result(text)


PLAIN_RESULT: Final = ResultReader()
MOVE_INTO_BLOCK: Final = (
    "move this line into the block of 'async with mesh:' (or 'with mesh:'), above its end"
)


class JobHandle(Generic[R_co]):
    """One job on the log. Handles are cheap and own no resource."""

    def __init__(  # noqa: PLR0913 - what is known about a job
        self,
        session: Session,
        kind: str,
        job_id: str,
        *,
        is_new: bool,
        reader: ResultReader = PLAIN_RESULT,
        is_known: bool = True,
        look_up: Callable[[], Awaitable[Job]] | None = None,
        archived: Callable[[str, str], Awaitable[Ended | None]] | None = None,
    ) -> None:
        """Made by `Task.submit`, `Mesh.submit` and `Mesh.job`.

        `look_up` finds the job, where only the beginning of its id was given. `archived` looks for
        the end of one that is not on the log.
        """
        self._session_of_mesh = session
        self._reader = reader
        self.kind = kind
        """Empty while the job is not looked up."""
        self.id = job_id
        """The whole id; while the job is not looked up, what was given of it."""
        self.is_known = is_known
        """Whether this process has seen the job on the log."""
        self._look_up = look_up
        self._archived = archived
        self.is_new = is_new
        """False if the same job was already on the log: then nothing is run again."""
        self.index = 0
        """Which of the items of `map` or `submit_many` it is, counted from 0."""
        self.known_end: Ended | None = None
        """Its end, once this process has read it. It never changes."""
        self._committed: Callable[[], Awaitable[Session]] | None = None
        self.known_lane: JobLane | None = None
        """Its lane as it was when it was submitted, where that was read."""

    @classmethod
    def of(
        cls,
        session: Session,
        submitted: submission.Submitted,
        reader: ResultReader = PLAIN_RESULT,
    ) -> Self:
        """The job that a submission put on the log, or found there."""
        is_new = submitted.is_new
        handle = cls(session, submitted.kind, submitted.id, is_new=is_new, reader=reader)
        handle.known_lane = submitted.lane
        return handle

    @classmethod
    def tentative(
        cls,
        session: Session,
        key: tuple[str, str],
        reader: ResultReader,
        committed: Callable[[], Awaitable[Session]],
    ) -> Self:
        """A job, by kind and id, that waits in the outbox; `committed` waits until it is sent."""
        handle = cls(session, *key, is_new=True, reader=reader, is_known=False)
        handle._committed = committed
        return handle

    @property
    def is_tentative(self) -> bool:
        """Whether the job waits in this machine's outbox, as far as this handle knows.

        Nobody else knows of it then: docs/do/offline.md. Whatever asks about the job waits until it
        is on the log.
        """
        return self._committed is not None

    def __repr__(self) -> str:
        return f"<JobHandle {self.kind} {self.id[:8]}>"

    def job_key(self) -> tuple[str, str]:
        """Its kind and its id: for `after=[handle]`."""
        if self._look_up is not None:
            raise Misconfigured(
                f"job {self.id} is not looked up yet, so its whole id is not known",
                hint="use the handle first: await handle.state()",
            )
        return self.kind, self.id

    async def found(self, timeout: Duration | None = None) -> Self:  # noqa: ASYNC109 - as below
        """The handle, with the job's kind and whole id; `Rejected` if there is no such job.

        TimeoutError if it still waits in this machine's outbox then.
        """
        if self._committed is not None:
            try:
                async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                    self._session_of_mesh = await self._committed()
            except TimeoutError:
                words = "waits in this machine's outbox (antiphon outbox)"
                raise TimeoutError(f"job {self.id[:8]} ({self.kind}) {words}") from None
            self._committed = None
        if self._look_up is not None:
            job = await self._look_up()
            self.kind, self.id = job.kind, job.id
            self._look_up, self.is_known = None, True
        return self

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - it says for what
        """Wait for the accepted result: what the task's annotation says, or plain JSON.

        A job that is not on the log is looked for in this machine's archive (docs/do/archive.md).
        `JobFailed` if there is none, TimeoutError if it comes too late; with `timeout=0`, if the
        job has not ended by now. `NobodyAnswers` is a warning, after a few seconds, that no worker
        which is online runs this kind.
        """
        ended = await self._ended(timeout)
        if ended.job.outcome != "succeeded":
            raise failure(ended, self._session)
        return cast("R_co", await self._reader.read(ended))

    async def end(self, timeout: Duration | None = None) -> Ended:  # noqa: ASYNC109 - the same
        """Wait for the job's end, whatever it is: its outputs, its error, a command's exit code.

        TimeoutError if it comes too late, `Rejected` if there is no such job.
        """
        return await self._ended(timeout)

    async def _ended(self, limit: Duration | None) -> Ended:
        if self.known_end is None:
            try:
                await self.found(limit)
                await self._require_kept()
                self.known_end = await wait_for_end(
                    self._session, self.kind, self.id, limit, is_known=self.is_known
                )
            except Rejected as refused:
                self.known_end = await self._archived_end(refused)
            except Unavailable:
                _ = self._session  # closed meanwhile: that is the reason, and says more
                raise
        return self.known_end

    async def _require_kept(self) -> None:
        """`Rejected` if it was forgotten. Whoever submitted it just now need not ask."""
        if self._archived is not None or not self.is_new:
            await require_kept(self._session, self.kind, self.id)

    async def _archived_end(self, refused: Rejected) -> Ended:
        """The end in the archive; raises `refused` if it is not there either."""
        if refused.reason != Verdict.NO_JOB.value or self._archived is None:
            raise refused
        ended = await self._archived(self.kind, self.id)
        if ended is None:
            raise refused
        self.kind, self.id, self._look_up = ended.job.kind, ended.job.id, None
        return ended

    @property
    def session(self) -> Session:
        """The session that it reads and writes through; `Misconfigured` once it is closed."""
        return self._session

    @property
    def _session(self) -> Session:
        if self._session_of_mesh.is_over:
            raise Misconfigured(
                f"the mesh of this handle (job {self.id[:8]}) is closed: its block has ended",
                hint=MOVE_INTO_BLOCK,
            )
        return self._session_of_mesh

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[OutputMessage]]:
        """The job's output and progress from now on, while it runs.

            async with handle.listen() as words:
                async for one in words: ...

        Nothing of it is stored: if you listen late, you miss the beginning, and `end` has the
        whole output. The job need not be on the log yet.
        """
        await self.found()
        async with listening(self._session, self.kind, self.id) as words:
            yield words

    async def stream(self, from_: int = 0) -> AsyncGenerator[Any]:
        """The parts that its handler yields, from a number on: stored ones first, then live ones.

            async for part in handle.stream():
                ...

        Ends when the job has succeeded; `JobFailed` after the last part if it has not. Parts are
        what the task's annotation says, or plain JSON: docs/do/streams.md.
        """
        await self.found()
        await self._require_kept()
        signature, artifacts = self._reader.signature, self._reader.artifacts
        decode = PLAIN.decode if signature is None else signature.decode_part
        found = parts_of(self._session, self.kind, self.id, artifacts, from_=from_)
        async with aclosing(found) as parts:
            async for part in parts:
                yield decode(part)

    async def explain(self, *, wait_s: float = ROLL_CALL_S) -> tuple[Explanation, list[Card]]:
        """Which worker got the job, which did not and why, and what it waits for.

        With it come the cards of the nodes that answered a roll call within `wait_s`.
        """
        from antiphon.sdk.explanation import explain_job

        await self.found()
        return await explain_job(self._session, self.kind, self.id, wait_s=wait_s)

    async def lane(self) -> JobView:
        """Every record about the job, judged."""
        await self.found()
        await self._require_kept()
        return await self._session.read_lane(self.kind, self.id)

    async def state(self) -> Job:
        """The job as it is on the log now."""
        await self.found()
        return await self._standing(await self._session.read_lane(self.kind, self.id))

    async def _standing(self, view: JobView) -> Job:
        """A tenure may have ended with its authority since the lane's last record."""
        control = await self._session.sync_control()
        job = standing(control, view.lane.job, self._session.confirmed + 1)
        if job is None:
            raise submission.no_job(self.kind, self.id)
        return job

    async def status(self) -> JobStatus:
        """The job in a few words, for an endpoint or a screen.

        Names instead of keys, its error in one line, and its progress as the log has it.
        """
        view = await self.lane()
        return status_of(self._session, await self._standing(view), view)

    async def progress(self) -> Progress | None:
        """The last progress that its handler reported, as far as it is on the log.

        It is written a second after the run began, and then every ten seconds at most: `listen`
        has every report. It stays when the worker dies, and after the end.
        """
        return progress_of(await self.lane())

    async def story(self) -> list[Line]:
        """Everything on the job's lane, in words, with the verdicts, and what ended its leases."""
        from antiphon.sdk.explanation import history_of

        view = await self.lane()
        await self._session.sync_control()
        return tell(await history_of(self._session, view))

    async def model_calls(self) -> list[ModelCall]:
        """What its handler asked models and what they answered, where that is audited.

        Oldest first, of all runs so far: docs/do/models.md.
        """
        from antiphon.runtime.caller.model_calls import calls_on

        return await calls_on(await self.lane(), self._reader.artifacts())

    async def outputs(self) -> tuple[Output, ...]:
        """What the job wrote, by content; nothing if no run of it was completed.

        `Rejected` while the job has not ended. `mesh.artifacts.fetch` gets the content.
        """
        view = await self.lane()
        ended = submission.ended_of(view)
        if view.lane.job is None:
            raise submission.no_job(self.kind, self.id)
        if ended is None:
            raise Rejected(
                f"job {self.id[:8]} has not ended, so it has no outputs yet",
                reason="not_ended",
                hint=f"antiphon show {self.id[:8]}",
            )
        return ended.outputs

    async def retry(self) -> JobHandle[R_co]:
        """Submit a job again that ended without a result: another job, linked to this one.

        A second retry finds the first: `is_new` is then false. A retry that failed is retried in
        turn.
        """
        await self.found()
        submitted = await submit_retry(self._session, self.kind, self.id)
        return JobHandle.of(self._session, submitted, self._reader)

    async def links(self) -> RetryLinks:
        """Which job this one retries, and which one retries it."""
        return await links_of(self._session, await self.lane())

    async def cancel(self, reason: str = "") -> Job:
        """End the job if it has not ended; the job afterwards."""
        await self.found()
        return await submission.cancel(self._session, self.kind, self.id, reason=reason)


class StreamHandle(JobHandle[int], Generic[T_co]):
    """The handle of a job whose handler is an async generator; its result is how many parts."""

    if TYPE_CHECKING:

        def stream(self, from_: int = 0) -> AsyncGenerator[T_co]:
            """The parts that its handler yields, of the type that its annotation says."""
            ...


__all__ = [
    "Ended",
    "JobHandle",
    "JobStatus",
    "OutputMessage",
    "Progress",
    "ResultReader",
    "RetryLinks",
    "StreamHandle",
    "progress_of",
]
