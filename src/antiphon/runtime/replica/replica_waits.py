"""What a replica knows about jobs that wait for the coordinator, and about labels (spec §7.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from antiphon.core.families.jobs.state import Job, JobLane, State
from antiphon.runtime.replica.replica import Queries

_decode: Final = msgspec.msgpack.Decoder(JobLane).decode


class ReplicaWaits(Queries):
    """Queries for the coordinator, for those who audit it, and for people who look at limits."""

    def waiting(self, since: int, *, limit: int) -> list[Job]:
        """Jobs that wait for the coordinator since after this record, in that order."""
        rows = self._db.execute(
            "select body from lanes_jobs where waiting_seq is not null and waiting_seq > ?"
            " order by waiting_seq limit ?",
            (since, limit),
        )
        return _jobs(rows)

    def glance(self, kind: str, job: str) -> tuple[State, int] | None:
        """The state of a job and where its lane begins, without the rest; None if it is unknown.

        Of what is not in the file yet it knows nothing.
        """
        row = self._db.execute(
            "select state, first_seq from lanes_jobs"
            " where name = ? and kind = ? and state is not null",
            (job, kind),
        ).fetchone()
        return None if row is None else (State(row[0]), row[1])

    def replicated(self, since: int, *, limit: int, ended: bool = False) -> list[Job]:
        """Jobs with replicas that were submitted after this record and wait for them, in order.

        With `ended`, those that have ended.
        """
        rows = self._db.execute(
            "select body from lanes_jobs where replicas_seq is not null and replicas_seq > ?"
            " and (state != 'waiting') = ? order by replicas_seq limit ?",
            (since, ended, limit),
        )
        return _jobs(rows)

    def replicas_since(self, at_ms: int, *, limit: int) -> list[Job]:
        """Replicas that were submitted after a time: the newest, oldest first."""
        rows = self._db.execute(
            "select body from lanes_jobs where derived_ms > ? and plan is null"
            " order by derived_ms desc limit ?",
            (at_ms, limit),
        )
        return _jobs(rows)[::-1]

    def labelled(self, label: str, *, limit: int) -> list[Job]:
        """Jobs with this label that were offered and have not ended."""
        rows = self._db.execute(
            "select body from lanes_jobs where label = ?"
            " and state in ('pending', 'claimed', 'running') limit ?",
            (label, limit),
        )
        return _jobs(rows)

    def label_counts(self) -> dict[str, dict[State, int]]:
        """How many unfinished jobs with each label there are, by state."""
        rows = self._db.execute(
            "select label, state, count(*) from lanes_jobs where label is not null"
            " and state in ('waiting', 'pending', 'claimed', 'running') group by label, state"
        )
        found: dict[str, dict[State, int]] = {}
        for label, state, count in rows:
            found.setdefault(label, {})[State(state)] = count
        return found

    def waiting_under(self, label: str, *, limit: int) -> list[Job]:
        """Waiting jobs with this label, in the order in which they began to wait."""
        rows = self._db.execute(
            "select body from lanes_jobs where label = ? and state = 'waiting'"
            " order by waiting_seq limit ?",
            (label, limit),
        )
        return _jobs(rows)

    def offered_since(self, label: str, at_ms: int, *, limit: int) -> list[int]:
        """When jobs with this label were first offered, the newest, oldest first."""
        rows = self._db.execute(
            "select offered_ms from lanes_jobs where offered_ms > ? and label = ?"
            " order by offered_ms desc limit ?",
            (at_ms, label, limit),
        )
        return [int(row[0]) for row in rows][::-1]


def _jobs(rows: Iterable[tuple[bytes]]) -> list[Job]:
    found = (_decode(row[0]).job for row in rows)
    return [job for job in found if job is not None]
