"""The steps of one run: reads what earlier runs have stored, and stores what this one makes.

A result is written with the tenure's fence (`job.artifact`). Small ones are in the record itself.
Larger ones are stored first, with the line that checkpoints have, and the record names them.

A step that is stored is stored: while the engine does not answer, the write is tried again until
the log shows it or the tenure ends. A step whose stored result cannot be read is an error, and is
not computed a second time: what it did may not be harmless to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
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
    AntiphonError,
    EngineDenied,
    GiveUp,
    Misconfigured,
    Rejected,
    StaleFence,
    Unavailable,
)
from antiphon.runtime.executors.handler_call import check_size
from antiphon.runtime.executors.run_services import StoredStep
from antiphon.runtime.values.checkpoint_bytes import (
    packed_checkpoint,
    read_checkpoint,
    stored_size,
)
from antiphon.runtime.worker.tenure import TenureLost

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.worker.tenure import Tenure

T = TypeVar("T")

LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries."""


class StoredSteps:
    """The steps of one tenure."""

    def __init__(self, tenure: Tenure, artifacts: Artifacts | None) -> None:
        """Made with the first one, in any thread."""
        self._tenure = tenure
        self._artifacts = artifacts
        self._known: dict[str, ArtifactBody] | None = None
        """By name, once they were read."""
        self._turn = asyncio.Lock()
        self._is_closed = False

    def find(self, name: str) -> Future[StoredStep | None]:
        """The stored result of a step; from any thread."""
        return self._asked(lambda: self._find(name))

    def store(self, name: str, step: StoredStep) -> Future[None]:
        """Store the result of a step; from any thread."""
        return self._asked(lambda: self._store(name, step))

    def close(self) -> None:
        """The run is over. What is being written is written to its end, and not tried again."""
        self._is_closed = True

    # --- from any thread to the event loop --------------------------------------------------------

    def _asked(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        future = Future[T]()

        def begin() -> None:
            answering = _answer(future, work)
            try:
                self._tenure.leases.spawn(answering)
            except RuntimeError:  # the worker has failed
                answering.close()
                _settle(future, _over())

        try:
            self._tenure.loop.call_soon_threadsafe(begin)
        except RuntimeError:  # a thread that outlived the worker's loop
            _settle(future, _over())
        return future

    # --- read -------------------------------------------------------------------------------------

    async def _find(self, name: str) -> StoredStep | None:
        async with self._turn:
            if self._known is None:
                self._known = await self._read_all()
        found = self._known.get(name)
        return None if found is None else StoredStep(found.of or "", await self._text(found))

    async def _read_all(self) -> dict[str, ArtifactBody]:
        """What earlier runs have stored; of two with one name, the first counts."""
        known: dict[str, ArtifactBody] = {}
        if count_of(self._tenure.job, "step"):
            for body in await self._patiently(self._tenure.stored):
                if body.as_ == "step":
                    known.setdefault(body.name, body)
        return known

    async def _text(self, found: ArtifactBody) -> str:
        if found.value is not None:
            return found.value
        store, job = self._store_of_artifacts(), (found.kind, found.job)
        most = stored_size(*job, store.value_bytes)
        stored = found.digest or ""

        async def read() -> bytes:
            return await store.read(stored, job=job, max_bytes=most)

        try:
            return read_checkpoint(*job, await self._patiently(read)).decode()
        except (Rejected, UnicodeError) as problem:
            raise Unavailable(
                f"the stored result of the step {found.name!r} cannot be read: {problem}",
                hint="the step is not computed again by itself: submit the job once more",
            ) from problem

    # --- write ------------------------------------------------------------------------------------

    async def _store(self, name: str, step: StoredStep) -> None:
        content = await self._content(step.text)
        async with self._turn:
            number = count_of(self._tenure.job, "step")
            if number >= MAX_ARTIFACTS["step"]:
                raise GiveUp(f"a job stores at most {MAX_ARTIFACTS['step']:,} steps")
            job = self._tenure.job
            body = ArtifactBody(
                kind=job.kind,
                job=job.id,
                fence=self._tenure.fence,
                as_="step",
                name=name,
                n=number,
                of=step.of,
                **content,
            )
            await self._write(body)
            if self._known is not None:
                self._known.setdefault(name, body)

    async def _write(self, body: ArtifactBody) -> None:
        is_known = True

        async def write() -> Verdict:
            nonlocal is_known
            # Without an answer it may be there all the same.
            if not is_known and body in await self._tenure.stored():
                return Verdict.OK
            is_known = False
            return await self._tenure.store(body)

        verdict = await self._patiently(write)
        if verdict is not Verdict.OK:
            raise Rejected(
                f"the step {body.name!r} could not be stored: {verdict.in_words}",
                reason=verdict.value,
            )

    async def _content(self, text: str) -> dict[str, Any]:
        """Where the result is: in the record, or stored under a digest."""
        raw, job = text.encode(), self._tenure.job
        used = (job.artifacts or NONE).text_bytes
        if len(raw) <= MAX_ARTIFACT_TEXT and used + len(raw) <= MAX_ARTIFACT_TEXTS:
            return {"value": text}
        store = self._store_of_artifacts()
        check_size(len(raw), "the result of the step has", store.value_bytes)
        packed = packed_checkpoint(job.kind, job.id, raw)
        kept = await self._patiently(lambda: store.keep_bytes(packed, "step"))
        return {"digest": kept.hash, "size": kept.size}

    def _store_of_artifacts(self) -> Artifacts:
        if self._artifacts is None:
            raise Misconfigured("large results of steps are stored as artifacts, and no artifact"
                                " store is known here")  # fmt: skip
        return self._artifacts

    # --- patience ---------------------------------------------------------------------------------

    async def _patiently(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Try until the engine answers, or the tenure is over."""
        attempt = 0
        while not self._is_closed:
            try:
                return await work()
            except TenureLost as lost:
                raise _over() from lost
            except EngineDenied:
                raise
            except Unavailable:
                await self._tenure.session.pause(attempt)
                attempt = min(attempt + 1, LONGEST_PAUSE)
        raise _over()


def _over() -> StaleFence:
    return StaleFence("the job is no longer this worker's: what it makes now is not stored")


async def _answer(future: Future[T], work: Callable[[], Coroutine[Any, Any, T]]) -> None:
    """Tell what became of it. An error must not end the task, whose group is the whole worker."""
    try:
        result = await work()
    except (AntiphonError, OSError) as problem:
        _settle(future, problem)
    except BaseException:
        _settle(future, _over())
        raise
    else:
        with suppress(InvalidStateError):  # nobody waits for it any more
            future.set_result(result)


def _settle(future: Future[Any], problem: BaseException) -> None:
    with suppress(InvalidStateError):
        future.set_exception(problem)
