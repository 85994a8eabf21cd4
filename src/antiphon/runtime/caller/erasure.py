"""Has a job forgotten, and finds out whether one was (spec §7.5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from antiphon.core.families.erasures.ops import ForgetBody, JobForget
from antiphon.core.families.erasures.state import erasure_key, is_about
from antiphon.errors import Rejected
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.log.writer import BEHIND, Intent, write_one

if TYPE_CHECKING:
    from antiphon.core.families.erasures.state import Erasure, ErasureLane
    from antiphon.runtime.log.session import Session


async def forget(session: Session, kind: str, job_id: str) -> Erasure:
    """Write the order to forget a job; the order. Whether the job has ended is not looked at.

    One that is in force stays: by a newer one, jobs that were submitted in between would be given
    what was to be forgotten.
    """
    with guarded(session):
        await session.sync_control()
        present = await order_of(session, kind, job_id)
        if present is not None:
            job = (await session.read_lane(kind, job_id)).lane.job
            if job is not None and is_about(present, job):
                return present
        view = await session.read(erasure_key(kind, job_id))
        intent = Intent(JobForget, ForgetBody(kind=kind, job=job_id), view.lane)
        await write_one(session, intent, BEHIND)
        found = await order_of(session, kind, job_id)
    if found is None:
        raise TypeError("an order that was accepted is not on its lane")
    return found


async def require_kept(session: Session, kind: str, job_id: str) -> None:
    """`Rejected` if a job was forgotten: it says by whom and when."""
    order = await order_of(session, kind, job_id)
    if order is not None:
        job = (await session.read_lane(kind, job_id)).lane.job
        if job is None or is_about(order, job):
            raise forgotten(order, job_id)


def forgotten(order: Erasure, job_id: str) -> Rejected:
    """What is said instead of what a forgotten job was given, did and returned."""
    when = datetime.fromtimestamp(order.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Rejected(
        f"job {job_id[:8]} was forgotten by the order of {order.by} on {when}: what it was given"
        " and what it returned is removed",
        reason="erased",
    )


async def order_of(session: Session, kind: str, job_id: str) -> Erasure | None:
    """The newest order to forget a job that is still on the log; None if there is none."""
    lane = (await session.read(erasure_key(kind, job_id))).lane
    return cast("ErasureLane", session.behind(lane)).state
