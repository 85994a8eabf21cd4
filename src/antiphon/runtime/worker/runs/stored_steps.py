"""The steps of one run: reads what earlier runs have stored, and stores what this one makes.

A step whose stored result cannot be read is an error, and is not computed a second time: what it
did may not be harmless to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.errors import AntiphonError, Rejected, Unavailable
from antiphon.runtime.executors.run_services import StoredStep
from antiphon.runtime.values.checkpoint_bytes import read_checkpoint, stored_size
from antiphon.runtime.worker.runs.artifact_writer import ArtifactWriter, over

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import ArtifactBody
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.worker.tenure import Tenure

T = TypeVar("T")


class StoredSteps:
    """The steps of one tenure."""

    def __init__(self, tenure: Tenure, artifacts: Artifacts | None) -> None:
        """Made with the first one, in any thread."""
        self._tenure = tenure
        self._writer = ArtifactWriter(tenure, artifacts, "step")
        self._known: dict[str, ArtifactBody] | None = None
        """By name, once they were read."""
        self._turn = asyncio.Lock()

    def find(self, name: str) -> Future[StoredStep | None]:
        """The stored result of a step; from any thread."""
        return self._asked(lambda: self._find(name))

    def store(self, name: str, step: StoredStep) -> Future[None]:
        """Store the result of a step; from any thread."""
        return self._asked(lambda: self._store(name, step))

    def close(self) -> None:
        """The run is over. What is being written is written to its end, and not tried again."""
        self._writer.is_closed = True

    # --- from any thread to the event loop --------------------------------------------------------

    def _asked(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        future = Future[T]()

        def begin() -> None:
            answering = _answer(future, work)
            try:
                self._tenure.leases.spawn(answering)
            except RuntimeError:  # the worker has failed
                answering.close()
                _settle(future, over())

        try:
            self._tenure.loop.call_soon_threadsafe(begin)
        except RuntimeError:  # a thread that outlived the worker's loop
            _settle(future, over())
        return future

    # --- in the event loop ------------------------------------------------------------------------

    async def _find(self, name: str) -> StoredStep | None:
        async with self._turn:
            if self._known is None:
                self._known = await self._read_all()
        found = self._known.get(name)
        return None if found is None else StoredStep(found.of or "", await self._text(found))

    async def _read_all(self) -> dict[str, ArtifactBody]:
        """What earlier runs have stored; of two with one name, the first counts."""
        known: dict[str, ArtifactBody] = {}
        for body in await self._writer.stored():
            known.setdefault(body.name, body)
        return known

    async def _text(self, found: ArtifactBody) -> str:
        if found.value is not None:
            return found.value
        store, job = self._writer.artifacts, (found.kind, found.job)
        most = stored_size(*job, store.value_bytes)
        stored = found.digest or ""

        async def read() -> bytes:
            return await store.read(stored, job=job, max_bytes=most)

        try:
            return read_checkpoint(*job, await self._writer.patiently(read)).decode()
        except (Rejected, UnicodeError) as problem:
            raise Unavailable(
                f"the stored result of the step {found.name!r} cannot be read: {problem}",
                hint="the step is not computed again by itself: submit the job once more",
            ) from problem

    async def _store(self, name: str, step: StoredStep) -> None:
        async with self._turn:
            body = await self._writer.put(name, step.text, step.of)
            if self._known is not None:
                self._known.setdefault(name, body)


async def _answer(future: Future[T], work: Callable[[], Coroutine[Any, Any, T]]) -> None:
    """Tell what became of it. An error must not end the task, whose group is the whole worker."""
    try:
        result = await work()
    except (AntiphonError, OSError) as problem:
        _settle(future, problem)
    except BaseException:
        _settle(future, over())
        raise
    else:
        with suppress(InvalidStateError):  # nobody waits for it any more
            future.set_result(result)


def _settle(future: Future[Any], problem: BaseException) -> None:
    with suppress(InvalidStateError):
        future.set_exception(problem)
