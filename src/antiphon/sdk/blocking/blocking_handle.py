"""The handle of a job, without `await`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from antiphon.sdk.blocking.loop_thread import OpenContext, entered, iterate, run
from antiphon.sdk.defaults import ROLL_CALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.core.families.jobs.state import Job
    from antiphon.core.history.story import Line
    from antiphon.core.presence.cards import Card
    from antiphon.core.proof.output import Output
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.explanation import Explanation
    from antiphon.sdk.handle import (
        Ended,
        JobHandle,
        JobStatus,
        ModelCall,
        OutputMessage,
        Progress,
        RetryLinks,
    )

R_co = TypeVar("R_co", covariant=True)


class BlockingHandle(Generic[R_co]):
    """One job on the log: `JobHandle`, whose methods wait. Any thread may use it."""

    def __init__(self, opened: OpenContext[Any], handle: JobHandle[R_co]) -> None:
        """Made by `BlockingTask.submit`, `BlockingMesh.submit` and `BlockingMesh.job`."""
        self._opened = opened
        self._handle = handle
        self.is_new = handle.is_new
        """False if the same job was already on the log: then nothing is run again."""
        self.index = handle.index
        """Which of the items of `map` or `submit_many` it is, counted from 0."""

    @property
    def kind(self) -> str:
        """Its kind; empty while the job is not looked up."""
        return self._handle.kind

    @property
    def id(self) -> str:
        """Its whole id; while the job is not looked up, what was given of it."""
        return self._handle.id

    @property
    def is_tentative(self) -> bool:
        """Whether the job waits in this machine's outbox: docs/do/offline.md."""
        return self._handle.is_tentative

    def __repr__(self) -> str:
        return f"<BlockingHandle {self.kind} {self.id[:8]}>"

    def job_key(self) -> tuple[str, str]:
        """Its kind and its id: for `after=[handle]`."""
        return self._handle.job_key()

    def found(self, timeout: Duration | None = None) -> BlockingHandle[R_co]:
        """The handle, with the job's kind and whole id; `Rejected` if there is no such job."""
        run(self.unblocked.found(timeout))
        return self

    @property
    def unblocked(self) -> JobHandle[R_co]:
        """The async handle, for the loop thread only; `Forked` in a forked child."""
        hint = f"get it again in this process: mesh.job({self.kind!r}, {self.id!r})"
        self._opened.check(f"the handle of job {self.id[:8]}", hint)
        return self._handle

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the accepted result. `JobFailed` if there is none, TimeoutError if too late."""
        return run(self.unblocked.result(timeout))

    def end(self, timeout: Duration | None = None) -> Ended:
        """Wait for the job's end, whatever it is; TimeoutError if it comes too late."""
        return run(self.unblocked.end(timeout))

    @contextmanager
    def listen(self) -> Iterator[Iterator[OutputMessage]]:
        """The job's output and progress from now on, while it runs.

        with handle.listen() as words:
            for one in words: ...
        """
        with entered(self.unblocked.listen()) as words:
            yield iterate(words.value)

    def stream(self, from_: int = 0) -> Iterator[Any]:
        """The parts that its handler yields, from a number on: stored ones first, then live ones.

        for part in handle.stream(): ...
        """
        yield from iterate(self.unblocked.stream(from_))

    def explain(self, *, wait_s: float = ROLL_CALL_S) -> tuple[Explanation, list[Card]]:
        """Which worker got the job, which did not and why, and what it waits for."""
        return run(self.unblocked.explain(wait_s=wait_s))

    def lane(self) -> JobView:
        """Every record about the job, judged."""
        return run(self.unblocked.lane())

    def state(self) -> Job:
        """The job as it is on the log now."""
        return run(self.unblocked.state())

    def status(self) -> JobStatus:
        """The job in a few words, for an endpoint or a screen."""
        return run(self.unblocked.status())

    def progress(self) -> Progress | None:
        """The last progress that its handler reported, as far as it is on the log."""
        return run(self.unblocked.progress())

    def story(self) -> list[Line]:
        """Everything on the job's lane, in words, with the verdicts, and what ended its leases."""
        return run(self.unblocked.story())

    def model_calls(self) -> list[ModelCall]:
        """What its handler asked models and what they answered, where that is audited."""
        return run(self.unblocked.model_calls())

    def outputs(self) -> tuple[Output, ...]:
        """What the job wrote, by content; `Rejected` while it has not ended."""
        return run(self.unblocked.outputs())

    def retry(self) -> BlockingHandle[R_co]:
        """Submit a job again that ended without a result: another job, linked to this one."""
        return BlockingHandle(self._opened, run(self.unblocked.retry()))

    def links(self) -> RetryLinks:
        """Which job this one retries, and which one retries it."""
        return run(self.unblocked.links())

    def cancel(self, reason: str = "") -> Job:
        """End the job if it has not ended; the job afterwards."""
        return run(self.unblocked.cancel(reason))
