"""Stores the checkpoints of one tenure: bytes first, then a renewal that names them (spec §7.2).

At most one is written in a beat. What is given meanwhile waits for the next beat, and the newest
replaces those before. A job keeps its last checkpoint; its next tenure begins with it, wherever it
runs. The log refuses another one while 64 that were replaced are not evicted yet: then the job
goes on, and a warning is logged.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import Checkpoint
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, Misconfigured
from antiphon.runtime.executors.handler_call import check_size
from antiphon.runtime.executors.handler_exits import InHandler
from antiphon.runtime.executors.run_services import Saved
from antiphon.runtime.values.checkpoint_bytes import packed_checkpoint
from antiphon.runtime.worker.tenure import TenureLost
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.worker.tenure import Tenure

CHECKPOINT: Final = "checkpoint"
LAST_S: Final = 10.0
"""How long the last checkpoint of a tenure may take to be stored."""

log = LazyLogger(__name__)


class CheckpointSaver:
    """The checkpoints of one tenure."""

    def __init__(
        self,
        tenure: Tenure,
        clock: BeatClock,
        artifacts: Artifacts | None,
    ) -> None:
        """Made with the first one, in any thread."""
        self.artifacts = artifacts
        """Where they are stored."""
        self.saver: Callable[[], bytes] | None = None
        """The handler's own function that makes one."""
        self._tenure = tenure
        self._clock = clock
        self._loop = tenure.loop
        self._newest: bytes | None = None
        self._given: list[Future[bool]] = []
        self._saving: asyncio.Task[None] | None = None
        self._is_writing = False
        self._is_closed = False
        self._beat_ms = -1
        """When the beat began in which the last one was written."""

    def give(self, data: bytes) -> Saved:
        """Store this, unless something newer comes first; from any thread."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a checkpoint is bytes, not {type(data).__name__}")
        store = self._store()
        content = bytes(data)
        check_size(len(content), "the checkpoint has", store.value_bytes, "")
        future = Future[bool]()
        try:
            self._loop.call_soon_threadsafe(self._take, content, future)
        except RuntimeError:  # a thread that outlived the worker's loop
            future.set_result(False)
        return Saved(future)

    def _store(self) -> Artifacts:
        if self.artifacts is None:
            raise Misconfigured(
                "checkpoints are stored as artifacts, and no artifact store is known here"
            )
        return self.artifacts

    def _take(self, data: bytes, future: Future[bool]) -> None:
        if self._is_closed:
            future.set_result(False)
            return
        self._newest = data
        self._given.append(future)
        if self._saving is None:
            self._saving = self._tenure.leases.spawn(self._save_all())

    async def _save_all(self) -> None:
        try:
            while self._newest is not None:
                await asyncio.sleep(self._pause_s())
                data, given = self._newest, self._given
                self._newest, self._given = None, []
                self._is_writing = True
                is_saved = await self._save(data)
                self._is_writing = False
                _tell(given, is_saved=is_saved)
        finally:
            self._is_writing, self._saving = False, None
            _tell(self._given, is_saved=False)
            self._given = []

    def _pause_s(self) -> float:
        """Until the next beat, if one was written in this."""
        now_ms, meter = self._clock.now_ms(), self._clock.meter()
        beat = meter.beat_at(now_ms)
        if beat.epoch_ms == self._beat_ms:
            return (beat.epoch_ms + meter.beat_ms - now_ms) / 1000
        return 0.0

    async def _save(self, data: bytes) -> bool:
        tenure, meter = self._tenure, self._clock.meter()
        job = tenure.job
        self._beat_ms = meter.beat_at(self._clock.now_ms()).epoch_ms
        try:
            checkpoint = await self._put(data, self._store().at_once)
            if checkpoint == job.checkpoint:
                return True
            verdict = await tenure.renew(checkpoint)
        except TenureLost:
            return False  # the tenure knows it, too, and ends the run
        except (AntiphonError, OSError) as problem:
            log.warning("checkpoint_not_stored", kind=job.kind, job=job.id, problem=str(problem))
            return False
        if verdict is not Verdict.OK:
            log.warning(
                "checkpoint_refused",
                kind=job.kind,
                job=job.id,
                verdict=verdict.value,
                why=verdict.in_words,
            )
        return verdict is Verdict.OK

    async def _put(self, data: bytes, store: Artifacts) -> Checkpoint:
        job = self._tenure.job
        packed = packed_checkpoint(job.kind, job.id, data)
        kept = await store.keep_bytes(packed, CHECKPOINT)
        return Checkpoint(hash=kept.hash, size=kept.size)

    # --- the end ----------------------------------------------------------------------------------

    def ask(self) -> None:
        """Have the handler's own function make one, for the end of the tenure."""
        if self.saver is None or self._is_closed:
            return
        try:
            with InHandler():
                self._newest = bytes(self.saver())
        except Exception:
            job = self._tenure.job
            log.exception("checkpoint_function_failed", kind=job.kind, job=job.id)

    def forget(self) -> None:
        """Do not store what is not stored yet."""
        self._newest = None

    def close(self) -> None:
        """Take no more. What is being written is written to its end."""
        self._is_closed = True
        if self._saving is not None and not self._is_writing:
            self._saving.cancel()

    async def last(self) -> Checkpoint | None:
        """What was given last and is not stored yet: stored now, for the yield to name."""
        self.close()
        data, self._newest = self._newest, None
        if data is None or self.artifacts is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                try:
                    check_size(len(data), "the checkpoint has", self.artifacts.value_bytes, "")
                    return await self._put(data, self.artifacts)
                except (AntiphonError, OSError) as problem:
                    job = self._tenure.job
                    log.warning(
                        "checkpoint_not_stored", kind=job.kind, job=job.id, problem=str(problem)
                    )
        return None


def _tell(given: list[Future[bool]], *, is_saved: bool) -> None:
    for future in given:
        if not future.done():
            future.set_result(is_saved)
