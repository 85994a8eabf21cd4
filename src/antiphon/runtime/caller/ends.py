"""Waits for the ends of many jobs, without a task or a follower for each.

The log's hints say which jobs to look at. A hint proves nothing, so the lane of such a job is read
and judged, many lanes at a time. Hints can be lost, so the newest records of jobs that nothing was
heard of are looked at now and then, a window of jobs at a time.

Subscriptions are bounded: up to `SINGLE` jobs have one each, which brings nothing about the jobs of
others; beyond that there is one per kind. A kind that this key may read and not hear is only looked
at now and then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self, cast

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.state import EMPTY, JobLane, job_key
from antiphon.errors import EngineDenied, Unavailable
from antiphon.ports import LANES_AT_ONCE, SUBJECTS_AT_ONCE
from antiphon.runtime.caller.submission import Ended, ended_of, may_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from antiphon.core.record.branches import LaneKey
    from antiphon.ports import Hints
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

SINGLE: Final = 1_000
"""Jobs with a subscription of their own."""
LOOK_S: Final = 5.0
"""How long a lost hint can go unnoticed, up to `WINDOW` jobs."""
WINDOW: Final = 1_000
"""Jobs that are looked at each time; all of those that cannot be heard."""
READ_AT_ONCE: Final = 4 * LANES_AT_ONCE
"""Lanes that are read before their ends are handed out."""
SILENT_S: Final = 30.0
"""How long a connected engine may fail every read before waiting ends with its error."""


class Ends:
    """The ends of the jobs that were added, as they come. For one waiter at a time."""

    def __init__(self, session: Session) -> None:
        """Enter it before jobs are added."""
        self._session = session
        self._listening: AbstractContextManager[Hints] = session.log.hints(self._on_hint)
        self._hints: Hints
        self._pending: dict[str, LaneKey] = {}
        """By the job's own subject; those looked at last come last."""
        self._lanes: dict[LaneKey, JobLane] = {}
        """How far they are known."""
        self._kinds: dict[str, int] = {}
        """How many are pending of each kind."""
        self._single: set[str] = set()
        self._wide: set[str] = set()
        """Kinds with one subscription for all of their jobs."""
        self._deaf: set[str] = set()
        """Kinds that cannot be heard."""
        self._touched: dict[str, None] = {}
        """Something was heard of these."""
        self._unseen: dict[str, None] = {}
        """Their newest records have to be looked at."""
        self._news = asyncio.Event()
        self._next_look_s = 0.0
        self._failing_since_s: float | None = None

    def __enter__(self) -> Self:
        self._hints = self._listening.__enter__()
        self._next_look_s = self._now_s() + LOOK_S
        return self

    def __exit__(self, *given: object) -> None:
        self._listening.__exit__(None, None, None)

    def __len__(self) -> int:
        """How many jobs are waited for."""
        return len(self._pending)

    # --- jobs ---------------------------------------------------------------------------------

    def add(
        self, kind: str, job_id: str, *, is_new: bool = False, lane: JobLane | None = None
    ) -> None:
        """Wait for this job, too; `lane` is how far it was read before, without its end.

        `is_new` says that it was not on the log when it was first added, so that nothing can have
        been missed. Add it again if that was wrong, or if more is known.
        """
        subject = job_subjects.job(self._session.mesh, kind, job_id)
        if subject not in self._pending:
            self._pending[subject] = job_key(kind, job_id)
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
            self._listen(kind, subject)
            self._lanes[self._pending[subject]] = EMPTY
        if lane is not None and (lane.job is None or not lane.job.is_terminal):
            self._lanes[self._pending[subject]] = lane
        if not is_new:
            self._unseen[subject] = None
            self._news.set()

    def _listen(self, kind: str, subject: str) -> None:
        if kind in self._wide:
            return
        if len(self._single) < SINGLE:
            if not self._hints.add(subject):
                self._deaf.add(kind)
            self._single.add(subject)
            return
        self._wide.add(kind)
        if not self._hints.add(self._all_of(kind)):
            self._deaf.add(kind)
        for one in [one for one in self._single if self._pending[one].kind == kind]:
            self._single.discard(one)
            self._hints.remove(one)

    def remove(self, kind: str, job_id: str) -> None:
        """No longer wait for a job."""
        subject = job_subjects.job(self._session.mesh, kind, job_id)
        key = self._pending.pop(subject, None)
        if key is None:
            return
        del self._lanes[key]
        self._touched.pop(subject, None)
        self._unseen.pop(subject, None)
        if subject in self._single:
            self._single.discard(subject)
            self._hints.remove(subject)
        self._kinds[kind] -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]
            self._deaf.discard(kind)
            if kind in self._wide:
                self._wide.discard(kind)
                self._hints.remove(self._all_of(kind))

    def _all_of(self, kind: str) -> str:
        return job_subjects.job(self._session.mesh, kind, "*")

    # --- ends ---------------------------------------------------------------------------------

    async def next(self) -> list[Ended]:
        """Wait until some have ended; each end once. At once if nothing is waited for."""
        while self._pending:
            self._hints.check()
            self._look_around()
            try:
                if self._touched:
                    ended = await self._read()
                    if ended:
                        return ended
                elif self._unseen:
                    await self._look()
                else:
                    await self._wait(self._next_look_s - self._now_s())
                self._failing_since_s = None
            except EngineDenied:
                raise
            except Unavailable as problem:
                await self._bear(problem)
        return []

    async def now(self) -> AsyncIterator[list[Ended]]:
        """Those that have ended by now, without waiting; each end once."""
        self._unseen.update(dict.fromkeys(self._pending))
        while self._unseen:
            await self._look()
        while self._touched:
            yield await self._read()

    async def _read(self) -> list[Ended]:
        """The lanes of those that something was heard of."""
        subjects = list(self._touched)[:READ_AT_ONCE]
        for subject in subjects:
            del self._touched[subject]  # what is heard from here on is a reason to read again
        keys = [self._pending[subject] for subject in subjects]
        try:
            views = await self._session.read_on({key: self._lanes[key] for key in keys})
        except BaseException:
            self._touched.update(dict.fromkeys(subjects))
            raise
        ended: list[Ended] = []
        for key, view in views.items():
            end = ended_of(cast("JobView", view))
            if key in self._lanes:
                self._lanes[key] = cast("JobView", view).lane
            if end is not None:
                self.remove(key.kind, key.name)
                ended.append(end)
        return ended

    async def _look(self) -> None:
        """The newest records of those that may have changed unheard."""
        subjects = list(self._unseen)[:SUBJECTS_AT_ONCE]
        for record in await self._session.log.newest(subjects):
            self._on_hint(record.subject, record.payload)
        for subject in subjects:
            self._unseen.pop(subject, None)

    def _look_around(self) -> None:
        """Now and then, a window of jobs whether or not something was heard of them."""
        now_s = self._now_s()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + LOOK_S * (0.8 + 0.4 * self._session.entropy.random())
        for subject in list(self._pending)[:WINDOW]:
            self._pending[subject] = self._pending.pop(subject)
            self._unseen[subject] = None
        if self._deaf:
            for subject, key in self._pending.items():
                if key.kind in self._deaf:
                    self._unseen[subject] = None

    def _on_hint(self, subject: str, payload: bytes) -> None:
        if not subject:
            self._unseen.update(dict.fromkeys(self._pending))
            self._news.set()
        elif subject in self._pending and may_end(payload):
            self._touched[subject] = None
            self._news.set()

    async def _wait(self, bound_s: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(max(bound_s, 0.0)):
                await self._news.wait()
        except TimeoutError:
            return

    async def _bear(self, problem: Unavailable) -> None:
        """Wait out an engine that cannot be reached; not one that is there and cannot be read."""
        now_s = self._now_s()
        if not self._session.engine.connected or self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > SILENT_S:
            raise Unavailable(
                f"the engine answers, but the log cannot be read: {problem.message}"
            ) from problem
        await self._session.pause(2)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
