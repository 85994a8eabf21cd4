"""Limits for the whole mesh: what they are, what is running under them, and what waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from antiphon.core.authority.rules import Limit, Rules
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.policy.rate_limit import Rate, parse_rate
from antiphon.errors import Rejected
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_waits import ReplicaWaits

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica

WAITING_SHOWN: Final = 20

Cause = Literal["jobs", "time", "room", "coordinator"]


class WaitingJob(Struct, frozen=True):
    """A job that waits, and for what."""

    job: Job
    cause: Cause
    """Unfinished jobs, its time, room under the limit, or the coordinator's offer."""
    unfinished: int = 0
    """How many other jobs it waits for."""


class LimitStatus(Struct, frozen=True, kw_only=True):
    """A label, its limit, and the jobs that name it."""

    label: str
    limit: Limit | None
    """None: jobs name the label, and no rule limits it."""
    open: int
    """Jobs that are offered and have not ended."""
    waiting: int
    next: tuple[WaitingJob, ...]
    """The first of those that wait, in the order in which they began to."""


def limits(session: Session, replica: Replica, *, shown: int) -> list[LimitStatus]:
    """Every limit and every label that is in use, by label."""
    by_label = {limit.label: limit for limit in session.control.rules.limits}
    counts = replica.ask(ReplicaWaits).label_counts()
    found = []
    for label in sorted({*by_label, *counts}):
        states = counts.get(label, {})
        limit, waiting = by_label.get(label), states.get(State.WAITING, 0)
        opened = sum(count for state, count in states.items() if state is not State.WAITING)
        is_full = limit is None or limit.at_once is None or opened >= limit.at_once
        jobs = replica.ask(ReplicaWaits).waiting_under(label, limit=shown) if waiting else []
        found.append(
            LimitStatus(
                label=label,
                limit=limit,
                open=opened,
                waiting=waiting,
                next=tuple(_waiting(session, replica, job, is_full=is_full) for job in jobs),
            )
        )
    return found


def _waiting(session: Session, replica: Replica, job: Job, *, is_full: bool) -> WaitingJob:
    before = (replica.ask(ReplicaJobs).job(*key) for key in job.awaited)
    unfinished = sum(one is not None and not one.is_terminal for one in before)
    if unfinished:
        return WaitingJob(job, "jobs", unfinished)
    if job.not_before_ms > session.wall.now_ms():
        return WaitingJob(job, "time")
    return WaitingJob(job, "room" if is_full else "coordinator")


def with_limit(
    rules: Rules, label: str, *, at_once: int | None, rate: Rate | None, kinds: Sequence[str]
) -> list[object]:
    """The limits of the rules with another one, or with another value of it."""
    new: dict[str, object] = {"label": label, "kinds": [kind.removesuffix(".*") for kind in kinds]}
    if at_once is not None:
        new["at_once"] = at_once
    if rate is not None:
        new |= {"rate": rate.count, "per_ms": round(rate.per_s * 1000)}
    return [*(limit for limit in rules.limits if limit.label != label), new]


def without_limit(rules: Rules, label: str) -> list[Limit]:
    """The limits of the rules but one; `Rejected` if there is none with this label."""
    left = [limit for limit in rules.limits if limit.label != label]
    if len(left) == len(rules.limits):
        raise Rejected(
            f"there is no limit with the label {label!r}",
            reason="limit",
            hint="antiphon limits lists them",
        )
    return left


__all__ = [
    "Limit",
    "LimitStatus",
    "Rate",
    "WaitingJob",
    "limits",
    "parse_rate",
    "with_limit",
    "without_limit",
]
