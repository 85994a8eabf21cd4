"""Who agreed with whom in the jobs that were run several times, from the local replica."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from antiphon.core.derivations.party_record import PartyRecord, add
from antiphon.core.families.jobs.replicas import party_of
from antiphon.runtime.coordinator.quorum_children import QuorumChildren
from antiphon.runtime.replica.replica_waits import ReplicaWaits

if TYPE_CHECKING:
    from antiphon.sdk.connection.connection import Connection

JOBS_AT_ONCE: Final = 256


async def quorum_record(connection: Connection) -> list[PartyRecord]:
    """A record for each party that ran replicas; those that disagreed most come first."""
    control = await connection.session.sync_control()
    party = partial(party_of, control)
    records: dict[str, PartyRecord] = {}
    async with connection.replica() as replica:
        view, since = QuorumChildren(replica, connection.session), 0
        while jobs := replica.ask(ReplicaWaits).replicated(since, limit=JOBS_AT_ONCE, ended=True):
            for job in jobs:
                parent = view.parent(job.kind, job.id)
                if parent is not None:
                    add(records, job, view.children(parent), party)
            since = jobs[-1].scheduled_seq
            await asyncio.sleep(0)
    return sorted(records.values(), key=lambda one: (-one.disagreed, -one.done, one.party))


__all__ = ["PartyRecord", "quorum_record"]
