"""Stores the parts of a stream in groups, under the fence of the run that made them.

A group is written when it is large enough, when its first part has waited for long enough, or when
the stream ends. Both bounds grow with the number of groups, of which a job can have so many: a
stream of an hour has groups of a tenth of a second at first, and of a minute at its end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import MAX_ARTIFACT_TEXT, MAX_ARTIFACT_TEXTS
from antiphon.core.families.jobs.run_artifacts import NONE
from antiphon.errors import AntiphonError
from antiphon.runtime.values.checkpoint_bytes import read_checkpoint, stored_size
from antiphon.runtime.values.part_groups import count_in, group_name, group_text, parts_in
from antiphon.runtime.worker.runs.artifact_writer import ArtifactWriter

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import ArtifactBody
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.worker.tenure import Tenure

PAUSES_S: Final = (0.1, 1.0, 10.0, 60.0)
"""How long a part waits for others, in each quarter of the groups that a job can have."""
GROUPS_EACH: Final = 1_024
AWAY: Final = 2
"""The quarter whose pause holds at least while what the run makes waits in the outbox."""
MAX_PARTS: Final = 1_000
"""In one group."""
SMALL_BYTES: Final = MAX_ARTIFACT_TEXT
LARGE_BYTES: Final = 1024 * 1024
"""Of a group in its record, and of one that is stored outside the log."""


class StreamWriter:
    """The stream of one run; in the event loop."""

    def __init__(self, tenure: Tenure, artifacts: Artifacts | None) -> None:
        """Nothing was sent."""
        self._tenure = tenure
        self._writer = ArtifactWriter(tenure, artifacts, "part")
        self._waiting: list[str] = []
        self._bytes = 0
        self._stored: int | None = None
        """How many parts are stored; None: that was not read yet."""
        self._turn = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._problem: AntiphonError | OSError | None = None
        """Why a group could not be written that nobody waited for."""

    async def begin(self) -> tuple[int, str | None]:
        """How many parts earlier runs have stored, and the text of the last one."""
        groups = await self._writer.stored()
        counts = [count_in(one.name) or 0 for one in groups]
        self._stored = sum(counts)
        if not groups:
            return 0, None
        parts = parts_in(await self._text(groups[-1]))
        return self._stored, bytes(parts[-1]).decode() if parts else None

    async def _text(self, group: ArtifactBody) -> str:
        if group.value is not None:
            return group.value
        store, job = self._writer.artifacts, (group.kind, group.job)
        most = stored_size(*job, store.value_bytes)
        digest = group.digest or ""
        data = await self._writer.patiently(lambda: store.read(digest, job=job, max_bytes=most))
        return read_checkpoint(*job, data).decode()

    async def send(self, text: str) -> None:
        """Store a part, soon and together with others."""
        if self._problem is not None:
            raise self._problem
        size = len(text.encode()) + 1
        if self._waiting and self._bytes + size > self._most_bytes:
            await self._flush()
        self._waiting.append(text)
        self._bytes += size
        if self._bytes >= self._most_bytes or len(self._waiting) >= MAX_PARTS:
            await self._flush()
        elif self._timer is None:
            self._timer = self._tenure.loop.call_later(self._pause_s, self._due)

    async def end(self) -> int:
        """Store what is left; how many parts the job has now."""
        await self._flush()
        if self._problem is not None:
            raise self._problem
        return self._stored or 0

    def close(self) -> None:
        """The run is over."""
        self._writer.is_closed = True
        self._stop_timer()

    # --- groups -----------------------------------------------------------------------------------

    @property
    def _pause_s(self) -> float:
        quarter, outbox = self._writer.number // GROUPS_EACH, self._tenure.outbox
        if outbox is not None and outbox.is_waiting:
            quarter = max(quarter, AWAY)  # nobody reads it soon, and the outbox has few items
        return PAUSES_S[min(quarter, len(PAUSES_S) - 1)]

    @property
    def _most_bytes(self) -> int:
        job, outbox = self._tenure.job, self._tenure.outbox
        used = (job.artifacts or NONE).text_bytes if outbox is None else outbox.text_bytes(job)
        return SMALL_BYTES if used + SMALL_BYTES <= MAX_ARTIFACT_TEXTS else LARGE_BYTES

    def _due(self) -> None:
        self._timer = None
        flushing = self._flush_alone()
        try:
            self._tenure.leases.spawn(flushing)
        except RuntimeError:  # the worker has failed
            flushing.close()

    async def _flush_alone(self) -> None:
        """An error must not end the task, whose group is the whole worker: the handler gets it."""
        try:
            await self._flush()
        except (AntiphonError, OSError) as problem:
            self._problem = problem

    async def _flush(self) -> None:
        async with self._turn:
            self._stop_timer()
            if self._stored is None:
                await self.begin()
            parts, first = self._waiting, self._stored or 0
            if not parts:
                return
            self._waiting, self._bytes = [], 0
            await self._writer.put(group_name(first, len(parts)), group_text(parts))
            self._stored = first + len(parts)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
