"""Stores why a run needs somebody (`emit:NAME` in a score): artifacts of its job (spec §7.3, §11).

So an escalation is signed by the worker, fenced, and there for everybody who may read the job, also
after its end. A name is stored once for a job, whichever run has emitted it. A worker stores a
limited number of them in an hour; what is beyond that is logged only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import MAX_ARTIFACTS
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.policy.rate_limit import Allowance
from antiphon.errors import AntiphonError
from antiphon.runtime.worker.runs.artifact_writer import ArtifactWriter
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.worker.tenure import Tenure

SORT: Final = "escalation"
MAX_WHY: Final = 1_000
"""Characters of the reason."""
ALLOWED: Final = Allowance(per_s=60 / 3600, burst=60)
"""How many one worker stores, of all its jobs: so many at once, and in an hour."""
LAST_S: Final = 10.0
"""How long the end of a run waits for what is being stored."""

log = LazyLogger(__name__)


class EscalationWriter:
    """The escalations of one tenure; in the event loop."""

    def __init__(self, tenure: Tenure) -> None:
        """Nothing is stored."""
        self._tenure = tenure
        self._writer = ArtifactWriter(tenure, None, SORT)
        self._names: set[str] = set()
        self._turn = asyncio.Lock()
        self._storing: set[asyncio.Task[None]] = set()

    def put(self, name: str, why: str) -> None:
        """Store that somebody is needed, unless this job has said so before."""
        if name in self._names:
            return
        self._names.add(name)
        task = self._tenure.leases.spawn(self._store(name, why[:MAX_WHY]))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def stored(self) -> None:
        """Wait for what is being stored: the end of a tenure would come before it."""
        if self._storing:
            await asyncio.wait(self._storing, timeout=LAST_S)
        self._writer.is_closed = True

    async def _store(self, name: str, why: str) -> None:
        job = self._tenure.job
        try:
            async with self._turn:
                if any(one.name == name for one in await self._writer.stored()):
                    return
                if not self._is_allowed():
                    words = "there are too many of them"
                    log.warning(
                        "escalation_not_stored", kind=job.kind, job=job.id, name=name, problem=words
                    )
                    return
                await self._writer.put(name, why)
        except (AntiphonError, OSError) as problem:
            words = str(problem)
            log.warning(
                "escalation_not_stored", kind=job.kind, job=job.id, name=name, problem=words
            )

    def _is_allowed(self) -> bool:
        leases, now_ms = self._tenure.leases, self._tenure.session.wall.now_ms()
        left = leases.escalations.at(now_ms, ALLOWED)
        if left.left < 1 or count_of(self._tenure.job, SORT) >= MAX_ARTIFACTS[SORT]:
            return False
        leases.escalations = left.less(1)
        return True
