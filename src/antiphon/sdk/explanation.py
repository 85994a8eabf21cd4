"""What happened to a job, and why this worker got it and others did not.

The first comes from the log. For the second, the workers that answer a roll call now count, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.authority_lapse import lapses
from antiphon.core.families.jobs.table import standing
from antiphon.core.policy.explanation import Explanation, Tenure, Wait, Waits, WorkerDraw, explain
from antiphon.core.policy.selection import Candidate
from antiphon.core.presence.cards import Card
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller.submission import no_job
from antiphon.runtime.presence.live_nodes import cards_of_live

if TYPE_CHECKING:
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session


async def history_of(session: Session, view: JobView) -> list[tuple[OpenedRecord, Verdict]]:
    """A lane's records and the control records that ended a tenure on it, oldest first.

    As of the last `sync_control`.
    """
    told = [(judged.opened, judged.verdict) for judged in view.history]
    job = view.lane.job
    if job is None:
        return told
    ended = lapses(session.history, job, told, before=session.confirmed + 1)
    told += [(await session.fetch_opened(seq), Verdict.OK) for seq in ended]
    return sorted(told, key=lambda one: one[0].seq)


async def explain_job(
    session: Session, kind: str, job_id: str, *, wait_s: float
) -> tuple[Explanation, list[Card]]:
    """The explanation, and the cards of the nodes that answered within `wait_s`."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(cards_of_live(session, wait_s=wait_s))
        view = await session.read_lane(kind, job_id)
        control = await session.sync_control()
    cards = asking.result()
    job = standing(control, view.lane.job, session.confirmed + 1)
    if job is None or view.first is None:
        raise no_job(kind, job_id)
    known = [candidate_of(card) for card in cards if card.role == "worker"]
    history = await history_of(session, view)
    now_ms = session.wall.now_ms()
    return explain(control, job, view.first.payload, history, known, now_ms=now_ms), cards


def candidate_of(card: Card) -> Candidate:
    """A worker as its answer to a roll call describes it."""
    return Candidate(
        did=card.node,
        kinds=card.kinds,
        labels=card.labels,
        weight=card.weight,
        free=max(card.slots - card.busy, 0),
    )


__all__ = ["Explanation", "Tenure", "Wait", "Waits", "WorkerDraw", "explain_job", "history_of"]
