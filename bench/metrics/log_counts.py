"""What the log says about its jobs, counted record by record and not by what nodes count."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from antiphon import assembly
from antiphon.assembly.mesh_connection import MeshConnection
from antiphon.core.families.jobs import ops
from antiphon.core.manifest import job_id
from antiphon.core.record.verdict import Verdict

Key = tuple[str, ...]


class LogCounts(Struct):
    """By the labels that the metrics have."""

    jobs: Counter[Key] = field(default_factory=Counter)
    """By kind and state."""
    jobs_ended_total: Counter[Key] = field(default_factory=Counter)
    """By kind and outcome."""
    runs_total: Counter[Key] = field(default_factory=Counter)
    """The same for the ends of runs."""
    claims: Counter[Key] = field(default_factory=Counter)
    """By kind: what both histograms of claims count."""
    records: int = 0


async def count_log(connection: MeshConnection) -> LogCounts:
    """Read and verify the whole log anew."""
    found, states = LogCounts(), dict[str, Key]()
    async with assembly.owned_replica(":memory:", None, connection) as replica:
        async with assembly.replicating(connection, replica, caretaking=False):
            pass
        for seq in range(1, replica.cursor.seq + 1):
            stored = replica.record(seq)
            if stored is None:
                continue
            found.records += 1
            if stored.verdict is Verdict.OK:
                _note(found, states, connection.session.open(stored.record).op)
    found.jobs.update(states.values())
    return found


def _note(found: LogCounts, states: dict[str, Key], op: object) -> None:
    match op:
        case ops.JobSchedule():
            states[job_id(op.body.manifest)] = (op.body.kind, "pending")
        case ops.JobClaim(body=body) if body.fence is None:
            found.claims[(body.kind,)] += 1
            states[body.job] = (body.kind, "running")
        case ops.JobYield(body=body):
            found.runs_total[body.kind, "retries"] += 1
            states[body.job] = (body.kind, "pending")
        case ops.JobComplete(body=body):
            found.runs_total[body.kind, body.status] += 1
            found.jobs_ended_total[body.kind, body.status] += 1
            states[body.job] = (body.kind, body.status)
        case ops.JobCancel(body=body):
            found.jobs_ended_total[body.kind, "cancelled"] += 1
            states[body.job] = (body.kind, "aborted")
