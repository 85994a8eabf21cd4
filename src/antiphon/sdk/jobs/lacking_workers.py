"""What a job lacks to be run, for those who submitted it and wait, or do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.runtime.presence.live_nodes import cards_of_live
from antiphon.sdk.job_wait import may_lack_workers, paused_words, stuck_words, unanswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.families.jobs.state import Job
    from antiphon.core.presence.cards import Card
    from antiphon.sdk.connection.namespace import Connected

SOON_S: Final = 0.5
"""How long a caller that does not wait for the job waits to hear whether anybody can run it."""


async def online_soon(mesh: Connected) -> list[Card]:
    """The nodes that are online, asked for no longer than half a second."""
    session = mesh.connection.session
    return await cards_of_live(session, wait_s=SOON_S / 2, answered_within_s=SOON_S / 2)


def lacking(
    mesh: Connected, job: Job, cards: Sequence[Card], *, is_command: bool = False
) -> list[str]:
    """Why the nodes with these cards cannot run a job, and what to do; nothing if they can."""
    if not may_lack_workers(job):
        return []
    return unanswered(mesh.connection.session, job, cards, is_command=is_command)


def stuck(mesh: Connected, job: Job) -> list[str]:
    """Why no worker whatever may claim a job, and what to do; nothing if one may."""
    session = mesh.connection.session
    return paused_words(session, job) or stuck_words(session, job.kind)
