"""What a replica knows about plans and the jobs derived from them (spec §7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.families.plans.state import Plan, PlanLane

if TYPE_CHECKING:
    import sqlite3

MOST_PATTERNS: Final = 64
"""With more patterns of kinds than this, every job is looked at."""

_decode_plan = msgspec.msgpack.Decoder(PlanLane).decode
_decode_job = msgspec.msgpack.Decoder(JobLane).decode


class ReplicaPlans:
    """Queries for the coordinator, and for people who list plans."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def standing(self, *, limit: int) -> list[Plan]:
        """The plans that were put and not dropped, the oldest first."""
        rows = self._db.execute(
            "select body from lanes_plans where state = 'standing' order by first_seq limit ?",
            (limit,),
        )
        plans = (_decode_plan(row[0]).state for row in rows)
        return [plan for plan in plans if plan is not None]

    def newest_tick(self, plan: str) -> int | None:
        """The newest tick for which a job was derived from a plan, by its op id."""
        row = self._db.execute(
            "select max(tick_ms) from lanes_jobs where plan = ? and plan is not null", (plan,)
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def derived(self, plan: str, *, limit: int, skip: int = 0) -> list[Job]:
        """Jobs that were derived from a plan, the newest first."""
        rows = self._db.execute(
            "select body from lanes_jobs where plan = ? and plan is not null"
            " order by first_seq desc limit ? offset ?",
            (plan, limit, skip),
        )
        jobs = (_decode_job(row[0]).job for row in rows)
        return [job for job in jobs if job is not None]

    def ended_after(self, seq: int, kinds: Sequence[str], *, limit: int) -> list[Job]:
        """Jobs of some kinds that ended after a sequence, in that order."""
        clauses, args = list[str](), list[object]()
        if "*" not in kinds and len(kinds) <= MOST_PATTERNS:
            for kind in kinds:
                is_below = kind.endswith(".*")
                clauses.append("(kind > ? and kind < ?)" if is_below else "kind = ?")
                args += [kind[:-1], kind[:-2] + "/"] if is_below else [kind]
        which = f" and ({' or '.join(clauses)})" if clauses else ""
        rows = self._db.execute(
            f"select body from lanes_jobs where ended_seq > ?{which}"  # noqa: S608 - placeholders
            " and ended_seq is not null order by ended_seq limit ?",
            (seq, *args, limit),
        )
        jobs = (_decode_job(row[0]).job for row in rows)
        return [job for job in jobs if job is not None]
