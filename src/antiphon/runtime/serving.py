"""Serving one tenure: run what the job says under the lease, and bring its end to the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from antiphon.core import clock, endings, ops, proof
from antiphon.core.reasons import Reason
from antiphon.core.standoff import standoff_s
from antiphon.errors import LostRace, Unavailable
from antiphon.runtime import proving
from antiphon.runtime.executing import Assignment, Executor, Ran
from antiphon.runtime.handlers import failure_of
from antiphon.runtime.tenure import Tenure, TenureLost

if TYPE_CHECKING:
    from antiphon.core.jobs import Job
    from antiphon.ports import Delivery
    from antiphon.runtime.peer import Peer

log = structlog.get_logger(__name__)


class Server:
    """Serves the tenures of one worker."""

    def __init__(self, peer: Peer) -> None:
        """Nothing is held yet."""
        self.peer = peer
        self.done = 0
        """Jobs of which the accepted end was read."""

    async def serve(self, tenure: Tenure, body: ops.ScheduleBody, executor: Executor) -> None:
        """Run the job and write its end; settle its announcement, whatever happens."""
        job = tenure.job
        assignment = Assignment(
            kind=job.kind,
            job=job.job,
            fence=job.fence,
            attempt=job.attempts + 1,
            manifest=body.manifest,
            auth=job.auth,
        )
        work = asyncio.ensure_future(executor.run(assignment))
        limit_s = body.manifest.timeout
        tenure.keep(work, limit_s=limit_s + executor.grace_s if limit_s else 0)
        try:
            ran = await work
        except asyncio.CancelledError:
            work.cancel()
            if tenure.is_out_of_time:
                ran = self._unfinished(TimeoutError(f"took longer than {limit_s} s"))
            elif tenure.lost is None:
                await self._write(tenure, ops.JobYield, endings.giving_back(tenure.held))
                return
            else:
                log.warning("tenure_lost", job=job.job, verdict=tenure.lost.verdict.value)
                self.stay_away(tenure.delivery, tenure.job, Reason.HELD)
                return
        except Exception as error:
            log.debug("handler_failed", kind=job.kind, job=job.job, exc_info=error)
            ran = self._unfinished(error)
        finally:
            tenure.release()
        await self._end(tenure, body, ran)

    def _unfinished(self, error: Exception) -> Ran:
        return Ran(runner=proving.python_runner(), failure=failure_of(error))

    async def _end(self, tenure: Tenure, body: ops.ScheduleBody, ran: Ran) -> None:
        """Write how it ended, with the proof of it where that is the end of the job."""
        end = endings.after(
            tenure.held,
            body.retry,
            outputs=ran.outputs,
            failure=ran.failure,
            exit_code=ran.exit,
            chance=self._chance(),
        )
        if isinstance(end, ops.YieldBody):
            await self._write(tenure, ops.JobYield, end)
            return
        run = proving.Run(
            manifest=body.manifest,
            started=clock.unpack(tenure.fence),
            usage=proof.Usage(wall_ms=tenure.held_ms, cpu_ms=ran.cpu_ms, max_rss_kb=ran.max_rss_kb),
            runner=ran.runner,
            isolation=ran.isolation,
            environment=ran.environment,
        )
        await self._write(tenure, ops.JobComplete, proving.prove(self.peer, end, run))

    async def _write(self, tenure: Tenure, kind: type[ops.JobOp], end: endings.Ending) -> None:
        """Commit the end; acknowledge only if the log shows the job as ended."""
        try:
            verdict = await tenure.write(kind, end)
        except TenureLost as lost:
            log.warning("end_refused", job=tenure.job.job, op=kind.TYPE, verdict=lost.verdict.value)
            self.stay_away(tenure.delivery, tenure.job, Reason.HELD)
            return
        except LostRace as lost_race:
            raise Unavailable(lost_race.message) from lost_race
        if not verdict.is_accepted:
            log.warning("end_refused", job=tenure.job.job, op=kind.TYPE, verdict=verdict.value)
        if tenure.job.is_terminal:
            self.done += 1
            tenure.delivery.ack()
        else:
            self.stay_away(tenure.delivery, tenure.job, Reason.NOT_YET)

    def stay_away(self, delivery: Delivery, job: Job, verdict: Reason) -> None:
        """Settle an announcement that cannot be answered now: not before it could be."""
        if job.is_terminal:
            delivery.ack()
            return
        wait_s = standoff_s(
            job,
            verdict,
            by=self.peer.author.did,
            now_ms=self.peer.wall.now_ms(),
            chance=self._chance(),
        )
        delivery.nak(wait_s)

    def _chance(self) -> float:
        return self.peer.entropy.random()
