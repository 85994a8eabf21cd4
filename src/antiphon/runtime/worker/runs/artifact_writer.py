"""Writes what a run stores before its job ends, with the tenure's fence (`job.artifact`).

Small values are in the record itself. Larger ones are stored first, with the line that checkpoints
have, and the record names them. What is stored is stored: while the engine does not answer, the
write is tried again until the log shows it or the tenure ends. A run that goes on without the
engine has what it makes kept in the outbox instead, and goes on with it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from antiphon.core.families.jobs.ops import (
    MAX_ARTIFACT_TEXT,
    MAX_ARTIFACT_TEXTS,
    MAX_ARTIFACTS,
    ArtifactBody,
)
from antiphon.core.families.jobs.run_artifacts import NONE, count_of
from antiphon.core.record.verdict import Verdict
from antiphon.errors import (
    EngineDenied,
    GiveUp,
    Misconfigured,
    Rejected,
    StaleFence,
    Unavailable,
    is_away,
)
from antiphon.runtime.executors.handler_call import check_size
from antiphon.runtime.values.checkpoint_bytes import packed_checkpoint
from antiphon.runtime.worker.tenure import TenureLost
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from antiphon.core.families.jobs.ops import ArtifactSort
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.worker.tenure import Tenure

T = TypeVar("T")

LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries."""

log = LazyLogger(__name__)


class ArtifactWriter:
    """Writes artifacts of one sort for one tenure; whoever uses it does so one at a time."""

    def __init__(
        self,
        tenure: Tenure,
        artifacts: Artifacts | None,
        sort: ArtifactSort,
    ) -> None:
        """Nothing is written."""
        self.tenure = tenure
        self._artifacts = artifacts
        self._sort = sort
        self._before = self.number
        """How many earlier runs have stored."""
        self._made: list[ArtifactBody] = []
        self.is_closed = False

    @property
    def number(self) -> int:
        """Of the next one."""
        outbox, job = self.tenure.outbox, self.tenure.job
        return count_of(job, self._sort) if outbox is None else outbox.number(job, self._sort)

    @property
    def artifacts(self) -> Artifacts:
        """Where large values are stored."""
        if self._artifacts is None:
            raise Misconfigured(
                f"a large {self._sort} is stored as an artifact, and no artifact store is known"
                " here"
            )
        return self._artifacts

    async def stored(self) -> list[ArtifactBody]:
        """What earlier runs and this one have stored of this sort; the former has to be read."""
        if not self._before:
            return list(self._made)
        found = [one for one in await self.patiently(self.tenure.stored) if one.as_ == self._sort]
        return [*(one for one in found if one.n < self._before), *self._made]

    async def put(self, name: str, text: str, of: str | None = None) -> ArtifactBody:
        """Write the next one, and read it back."""
        content, job = await self._content(text), self.tenure.job
        number = self.number
        if number >= MAX_ARTIFACTS[self._sort]:
            raise GiveUp(f"a job stores at most {MAX_ARTIFACTS[self._sort]:,} {self._sort}s")
        body = ArtifactBody(
            kind=job.kind,
            job=job.id,
            fence=self.tenure.fence,
            as_=self._sort,
            name=name,
            n=number,
            of=of,
            **content,
        )
        await self.write(body)
        return body

    async def write(self, body: ArtifactBody) -> None:
        """Write one until the log has it, or the outbox."""
        outbox = self.tenure.outbox
        sent: list[Draft] = []

        async def write() -> Verdict:
            if outbox is not None:
                outbox.touch(body)  # there may be no room for what names its content
            if outbox is not None and outbox.must_wait(body):
                outbox.keep_artifact(self.tenure.job, body, sent)
                return Verdict.OK
            # Without an answer it may be there all the same.
            if sent and body in await self.tenure.stored():
                return Verdict.OK
            try:
                return await self.tenure.store(body, sent.append)
            except Unavailable as problem:
                if outbox is None or not is_away(problem):
                    raise
                outbox.keep_artifact(self.tenure.job, body, sent)
                return Verdict.OK

        verdict = await self.patiently(write)
        if verdict is not Verdict.OK:
            raise Rejected(
                f"the {self._sort} {body.name!r} could not be stored: {verdict.in_words}",
                reason=verdict.value,
            )
        self._made.append(body)

    async def _content(self, text: str) -> dict[str, Any]:
        """Where the value is: in the record, or stored under a digest."""
        raw, job, outbox = text.encode(), self.tenure.job, self.tenure.outbox
        used = (job.artifacts or NONE).text_bytes if outbox is None else outbox.text_bytes(job)
        if len(raw) <= MAX_ARTIFACT_TEXT and used + len(raw) <= MAX_ARTIFACT_TEXTS:
            return {"value": text}
        store = self.artifacts
        check_size(len(raw), f"the value of the {self._sort} has", store.value_bytes)
        packed = packed_checkpoint(job.kind, job.id, raw)
        kept = await self.patiently(lambda: store.keep_bytes(packed, self._sort))
        return {"digest": kept.hash, "size": kept.size}

    async def patiently(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Try until the engine answers, or the tenure is over."""
        attempt = 0
        while not self.is_closed:
            try:
                return await work()
            except TenureLost as lost:
                raise over() from lost
            except EngineDenied:
                raise
            except Unavailable as problem:
                if attempt == LONGEST_PAUSE // 2:
                    job, sort = self.tenure.job, self._sort
                    words = {"kind": job.kind, "job": job.id, "problem": problem.message}
                    log.warning("run_waits_for_engine", sort=sort, **words)
                await self.tenure.session.pause(attempt)
                attempt = min(attempt + 1, LONGEST_PAUSE)
        raise over()


def over() -> StaleFence:
    """The error of what comes after the end of its tenure."""
    return StaleFence("the job is no longer this worker's: what it makes now is not stored")
