"""A handle on a job: wait for it, ask about it, cancel it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from antiphon.core import codec, lanes
from antiphon.core.jobs import Job
from antiphon.core.story import Line, tell
from antiphon.errors import Rejected
from antiphon.runtime import client
from antiphon.runtime.handlers import RESULT

if TYPE_CHECKING:
    from antiphon.runtime.peer import LaneView, Peer

R = TypeVar("R")


class JobHandle(Generic[R]):
    """One job on the log. Handles are cheap and hold no resource."""

    def __init__(self, peer: Peer, kind: str, job: str, *, is_new: bool) -> None:
        """Made by `Task.submit`, `Mesh.submit` and `Mesh.job`."""
        self._peer = peer
        self.kind = kind
        self.id = job
        self.is_new = is_new
        """False if the same job was already on the log: then nothing is run again."""

    def __repr__(self) -> str:
        return f"<JobHandle {self.kind} {self.id[:8]}>"

    async def result(self, *, timeout_s: float | None = None) -> R:
        """Wait for the accepted result. `JobFailed` if there is none, TimeoutError if too late."""
        async with asyncio.timeout(timeout_s):
            ended = await client.wait_for_end(self._peer, self.kind, self.id)
        if ended.job.outcome != "succeeded":
            raise client.failure(ended)
        for output in ended.outputs:
            if output.name == RESULT and output.text is not None:
                return cast("R", codec.parse_json(output.text))
        return cast("R", None)

    async def lane(self) -> LaneView:
        """Every record about the job, judged."""
        return await self._peer.read_lane(self.kind, self.id)

    async def state(self) -> Job:
        """The job as the log has it now."""
        found = (await self.lane()).lane
        # A tenure may have ended with its authority since the lane's last record.
        control = await self._peer.sync_control()
        job = lanes.effective(control, found.job, self._peer.confirmed + 1)
        if job is None:
            raise Rejected(f"there is no job {self.id[:8]} of kind {self.kind}", reason="no_job")
        return job

    async def story(self) -> list[Line]:
        """Everything on the job's lane, in words, with the verdicts."""
        view = await self.lane()
        return tell((judged.entry, judged.verdict) for judged in view.history)

    async def cancel(self, reason: str = "") -> Job:
        """End the job if it has not ended; the job afterwards."""
        return await client.cancel(self._peer, self.kind, self.id, reason=reason)
