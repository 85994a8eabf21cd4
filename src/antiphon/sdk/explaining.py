"""Why a job went where it went: its lane, and whoever answers a roll call right now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.explaining import Explanation, Lot, Tenure, Wait, Waits, explain
from antiphon.core.families.jobs.table import standing
from antiphon.core.selection import Candidate
from antiphon.errors import Rejected
from antiphon.runtime.presence import Card, roll_call
from antiphon.sdk.histories import history_of

if TYPE_CHECKING:
    from antiphon.runtime.peer import Peer


async def explain_job(
    peer: Peer, kind: str, job_id: str, *, wait_s: float = 0.4
) -> tuple[Explanation, list[Card]]:
    """The explanation, and the cards of those who answered within `wait_s`."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(roll_call(peer, wait_s=wait_s))
        view = await peer.read_lane(kind, job_id)
        control = await peer.sync_control()
    cards = asking.result()
    job = standing(control, view.lane.job, peer.confirmed + 1)
    if job is None or view.first is None:
        raise Rejected(f"there is no job {job_id} of kind {kind}", reason="no_job")
    known = [candidate_of(card) for card in cards if card.role == "worker"]
    history = await history_of(peer, view)
    now_ms = peer.wall.now_ms()
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


__all__ = ["Explanation", "Lot", "Tenure", "Wait", "Waits", "explain_job"]
