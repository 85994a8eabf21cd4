"""The subjects of jobs (spec §8).

    jobs.wait.<kind…>.<job>      schedules that wait for an offer
    jobs.<0|1|2>.<kind…>.<job>   announcements, the highest priority first: schedules and offers
    jobs.job.<kind…>.<job>       everything that happens to a job afterwards

A job is the pair (kind, job id); its *lane* is every record on these subjects. They share a stem,
so that one filter is the lane, and one request purges it.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.families.jobs.priority import PRIORITIES, Priority, place_of

_CALLS: Final = [["jobs", place_of(one)] for one in PRIORITIES]


def wait(mesh: str, kind: str, job_id: str) -> str:
    """The subject of a schedule that waits."""
    return f"ap.{mesh}.jobs.wait.{kind}.{job_id}"


def call(mesh: str, priority: Priority, kind: str, job_id: str) -> str:
    """The subject of an announcement: a schedule or an offer."""
    return f"ap.{mesh}.jobs.{place_of(priority)}.{kind}.{job_id}"


def job(mesh: str, kind: str, job_id: str) -> str:
    """The subject of what happens to a job."""
    return f"ap.{mesh}.jobs.job.{kind}.{job_id}"


def lane(mesh: str, kind: str, job_id: str) -> tuple[str, ...]:
    """The literal subjects of one job's lane."""
    return (
        wait(mesh, kind, job_id),
        *(call(mesh, priority, kind, job_id) for priority in PRIORITIES),
        job(mesh, kind, job_id),
    )


def calls_of(mesh: str, priority: Priority, kind: str, *, below: bool) -> str:
    """Filter: announcements of exactly one kind, or of every kind below a prefix."""
    return f"ap.{mesh}.jobs.{place_of(priority)}.{kind}.{'>' if below else '*'}"


def is_call(subject: str) -> bool:
    """Whether a subject is one of announcements."""
    return subject.split(".", 4)[2:4] in _CALLS


def queue_name(kind: str, priority: Priority) -> str:
    """The shared queue of one kind and priority: the same for every worker.

    Engines allow no dot in a queue's name; `=` cannot occur in a kind, so names stay unique.
    """
    return f"{kind.replace('.', '=')}={priority}"
