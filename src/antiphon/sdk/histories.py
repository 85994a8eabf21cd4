"""What happened to a job, with what happened elsewhere on the log and ended a lease of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.lapses import lapses
from antiphon.core.reasons import Reason

if TYPE_CHECKING:
    from antiphon.core.records import Entry
    from antiphon.runtime.lane_reading import JobView
    from antiphon.runtime.peer import Peer


async def history_of(peer: Peer, view: JobView) -> list[tuple[Entry, Reason]]:
    """A lane's records and the control records that ended a tenure on it, oldest first.

    As of the last `sync_control`.
    """
    told = [(judged.entry, judged.verdict) for judged in view.history]
    job = view.lane.job
    if job is None:
        return told
    ended = lapses(peer.history, job, told, before=peer.confirmed + 1)
    told += [(await peer.fetch_entry(seq), Reason.OK) for seq in ended]
    return sorted(told, key=lambda one: one[0].seq)
