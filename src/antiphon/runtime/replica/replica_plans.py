"""What a replica knows about plans and the jobs derived from them (spec §7.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.families.plans.state import Plan, PlanLane
from antiphon.runtime.replica.replica import Queries

if TYPE_CHECKING:
    from collections.abc import Iterable

_decode_plan = msgspec.msgpack.Decoder(PlanLane).decode
_decode_job = msgspec.msgpack.Decoder(JobLane).decode

HeldBy = Literal["whose", "author"]
"""By what plans are told apart: whose each is, or its author."""


class StandingPlan(Struct, frozen=True):
    """A plan that was put and not dropped, and where its lane begins."""

    plan: Plan
    first_seq: int


class ReplicaPlans(Queries):
    """Queries for the coordinator, and for people who list plans."""

    def oldest(self, *, limit: int) -> list[StandingPlan]:
        """The plans that stand, the oldest first."""
        # Rows are numbered in the order of the log.
        return self._standing("whose is not null order by id limit ?", limit)

    def standing_count(self) -> int:
        """How many plans stand."""
        row = self._db.execute(
            "select lanes from tallies where family = 'plans' and kind = '' and state = 'standing'"
        ).fetchone()
        return int(row[0]) if row else 0

    def named(self, name: str, *, limit: int) -> list[StandingPlan]:
        """The plans of this name that stand: one for each kind."""
        where = "name = ? and whose is not null order by id limit ?"
        return self._standing(where, name, limit)

    def kinds_named(self, name: str, *, limit: int) -> list[str]:
        """The kinds that have, or had, a plan of this name."""
        rows = self._db.execute(
            "select kind from lanes_plans where name = ? limit ?", (name, limit)
        )
        return [kind for (kind,) in rows]

    def at(self, row: int) -> StandingPlan | None:
        """The plan in this row, if it stands."""
        found = self._standing("id = ? and whose is not null", row)
        return found[0] if found else None

    def _standing(self, where: str, *args: object) -> list[StandingPlan]:
        rows = self._db.execute(f"select first_seq, body from lanes_plans where {where}", args)  # noqa: S608 - our own words
        plans = ((first_seq, _decode_plan(body).state) for first_seq, body in rows)
        return [StandingPlan(plan, first_seq) for first_seq, plan in plans if plan is not None]

    def oldest_of_each(self, column: HeldBy, *, each: int) -> list[tuple[int, int, int]]:
        """Of everybody who has plans, the oldest: where each begins, its row, and where it was put.

        However many plans there are, only these rows are read.
        """
        holders = self._db.execute(
            "with recursive holders(one) as ("  # noqa: S608 - one of two names of ours
            f" select min({column}) from lanes_plans where {column} is not null union all"
            f" select (select min({column}) from lanes_plans where {column} > one) from holders"
            " where one is not null) select one from holders where one is not null"
        ).fetchall()
        found: list[tuple[int, int, int]] = []
        for (holder,) in holders:
            found += self._db.execute(
                f"select first_seq, id, put_seq from lanes_plans where {column} = ?"  # noqa: S608
                " order by first_seq limit ?",
                (holder, each),
            ).fetchall()
        return found

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
        return _jobs(rows)

    def derived_since(self, at_ms: int, *, limit: int) -> list[Job]:
        """Jobs that were derived from any plan after a time: the newest, oldest first."""
        rows = self._db.execute(
            "select body from lanes_jobs where derived_ms > ? and plan is not null"
            " order by derived_ms desc limit ?",
            (at_ms, limit),
        )
        return _jobs(rows)[::-1]

    def ended_after(self, seq: int, kinds: str, *, limit: int) -> list[Job]:
        """Jobs of a kind, of all below one, or of all, that ended after a sequence, in order."""
        which, args = "", list[object]()
        if kinds.endswith(".*"):
            which, args = " and kind > ? and kind < ?", [kinds[:-1], kinds[:-2] + "/"]
        elif kinds != "*":
            which, args = " and kind = ?", [kinds]
        rows = self._db.execute(
            f"select body from lanes_jobs where ended_seq > ?{which}"  # noqa: S608 - placeholders
            " order by ended_seq limit ?",
            (seq, *args, limit),
        )
        return _jobs(rows)


def _jobs(rows: Iterable[tuple[bytes]]) -> list[Job]:
    found = (_decode_job(row[0]).job for row in rows)
    return [job for job in found if job is not None]
