"""Reading a stream: the parts that are stored, then those that come, until the job has ended."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ArtifactBody, JobArtifact
from antiphon.core.families.jobs.state import JobLane, job_key
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Misconfigured
from antiphon.runtime.caller import submission
from antiphon.runtime.values.checkpoint_bytes import read_checkpoint, stored_size
from antiphon.runtime.values.part_groups import count_in, parts_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from msgspec import Raw

    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.log.lane_reader import LaneView
    from antiphon.runtime.log.session import Session


async def parts_of(
    session: Session,
    kind: str,
    job_id: str,
    artifacts: Callable[[], Artifacts | None],
    *,
    from_: int = 0,
) -> AsyncGenerator[Raw]:
    """The texts of a stream's parts from a number on, live; `JobFailed` if the job failed."""
    if from_ < 0:
        raise ValueError(f"a stream begins with part 0, not with {from_}")
    at = 0
    async with aclosing(_groups(session, kind, job_id)) as groups:
        async for group in groups:
            said = count_in(group.name)
            if said is not None and at + said <= from_:
                at += said
                continue
            for part in parts_in(await _text(group, artifacts)):
                if at >= from_:
                    yield part
                at += 1


async def _groups(session: Session, kind: str, job_id: str) -> AsyncGenerator[ArtifactBody]:
    """The groups that are stored, and those that come; ends with the job."""
    view: LaneView = await session.read_lane(kind, job_id)
    lane, key = _lane_of(view), job_key(kind, job_id)
    if lane.job is None:
        raise submission.no_job(kind, job_id)
    for one in _in_view(view):
        yield one
    if not lane.job.is_terminal:
        subject = job_subjects.job(session.mesh, kind, job_id)
        async with session.log.follow(lane.job_tail, subject=subject) as batches:
            async for _ in batches:
                view = (await session.read_on({key: lane}))[key]
                lane = _lane_of(view)
                for one in _in_view(view):
                    yield one
                if lane.job is None or lane.job.is_terminal:
                    break
    ended = submission.ended_of(await session.read_lane(kind, job_id))
    if ended is not None and ended.job.outcome != "succeeded":
        raise submission.failure(ended, session)


def _lane_of(view: LaneView) -> JobLane:
    if not isinstance(view.lane, JobLane):
        raise TypeError("a stream is on the lane of a job")
    return view.lane


def _in_view(view: LaneView) -> list[ArtifactBody]:
    ops = (one.opened.op for one in view.history if one.verdict is Verdict.OK)
    found = [op.body for op in ops if isinstance(op, JobArtifact)]
    return [body for body in found if body.as_ == "part"]


async def _text(group: ArtifactBody, artifacts: Callable[[], Artifacts | None]) -> str | bytes:
    if group.value is not None:
        return group.value
    store, job = artifacts(), (group.kind, group.job)
    if store is None:
        raise Misconfigured("a part of this stream is an artifact, and no store is known here")
    most = stored_size(*job, store.value_bytes)
    return read_checkpoint(*job, await store.read(group.digest or "", job=job, max_bytes=most))
