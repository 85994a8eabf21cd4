"""Bugs in what runs store, and in how workers use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.families.jobs import run_artifacts, table
from antiphon.core.families.jobs.ops import ArtifactBody, JobArtifact
from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Unavailable
from antiphon.runtime.worker.runs.artifact_writer import ArtifactWriter
from antiphon.runtime.worker.runs.model_calls import Account, ModelCalls, _output
from antiphon.runtime.worker.runs.stored_steps import StoredSteps
from antiphon.runtime.worker.runs.stream_writer import StreamWriter
from antiphon.runtime.worker.tenure import Tenure
from simulator.patch import patched


@contextmanager
def _judged_as(judge: Any) -> Iterator[None]:
    row: Any = table.TRANSITIONS[JobArtifact]
    with ExitStack() as stack:
        for state in HELD:
            stack.enter_context(patched(row, state, judge))
        yield


@contextmanager
def calls_unstored() -> Iterator[None]:
    """A worker ends an audited job before the last of its model calls is stored."""
    really = ModelCalls._store_all  # noqa: SLF001 - the very step that is left out

    async def at_the_end(self: ModelCalls) -> None:
        if not self.recorder.is_closed:
            await really(self)

    async def account(self: ModelCalls) -> Account:
        self.recorder.close()
        stored = await self._written_by().stored()
        return Account(len(stored), tuple(map(_output, stored)))

    with patched(ModelCalls, "_store_all", at_the_end), patched(ModelCalls, "account", account):
        yield


@contextmanager
def anyone_stores() -> Iterator[None]:
    """Whoever knows the fence of a job may store its steps."""

    def judge(job: Job, op: Any, _: Any) -> Any:
        if op.body.fence != job.fence:
            return Verdict.FENCE
        return run_artifacts.with_artifact(job, op)

    with _judged_as(judge):
        yield


@contextmanager
def old_fences_store() -> Iterator[None]:
    """The holder may store steps under any fence."""

    def judge(job: Job, op: Any, _: Any) -> Any:
        if op.author != job.claimer:
            return Verdict.NOT_CLAIMER
        return run_artifacts.with_artifact(job, op)

    with _judged_as(judge):
        yield


@contextmanager
def numbers_unread() -> Iterator[None]:
    """A step counts as the next one, whatever its number is."""
    really = run_artifacts.with_artifact

    def numbered(job: Job, op: Any) -> Any:
        body = replace(op.body, n=run_artifacts.count_of(job, op.body.as_))
        return really(job, replace(op, body=body))

    with patched(run_artifacts, "with_artifact", numbered):
        yield


@contextmanager
def stored_steps_unread() -> Iterator[None]:
    """A worker does not look for what earlier runs have stored."""

    async def nothing(_: StoredSteps) -> dict[str, ArtifactBody]:
        return {}

    with patched(StoredSteps, "_read_all", nothing):
        yield


@contextmanager
def steps_return_unstored() -> Iterator[None]:
    """A handler goes on while its step is still being written."""
    really = ArtifactWriter.write

    async def write(self: ArtifactWriter, body: ArtifactBody) -> None:
        async def later() -> None:
            with suppress(Exception):  # nobody waits for it
                await really(self, body)

        self.tenure.leases.spawn(later())

    with patched(ArtifactWriter, "write", write):
        yield


@contextmanager
def unanswered_is_stored() -> Iterator[None]:
    """A step whose write got no answer counts as stored."""
    really = Tenure.store

    async def store(self: Tenure, body: ArtifactBody, *noting: Any) -> Verdict:
        try:
            return await really(self, body, *noting)
        except Unavailable:
            return Verdict.OK

    with patched(Tenure, "store", store):
        yield


@contextmanager
def streams_begin_anew() -> Iterator[None]:
    """A worker does not look for the parts that earlier runs have stored."""

    async def nothing(self: StreamWriter) -> tuple[int, str | None]:
        self._stored = 0
        return 0, None

    with patched(StreamWriter, "begin", nothing):
        yield


@contextmanager
def unanswered_parts_dropped() -> Iterator[None]:
    """Parts of a stream whose write got no answer count as stored."""
    really = Tenure.store

    async def store(self: Tenure, body: ArtifactBody, *noting: Any) -> Verdict:
        try:
            return await really(self, body, *noting)
        except Unavailable:
            if body.as_ != "part":
                raise
            return Verdict.OK

    with patched(Tenure, "store", store):
        yield


MUTANTS: Final = (
    calls_unstored,
    streams_begin_anew,
    unanswered_parts_dropped,
    anyone_stores,
    old_fences_store,
    numbers_unread,
    stored_steps_unread,
    steps_return_unstored,
    unanswered_is_stored,
)
