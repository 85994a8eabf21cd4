"""The subjects of jobs (spec §8).

    wait.<kind…>.<job>              schedules that wait for an offer
    call.<priority>.<kind…>.<job>   announcements: schedules and offers
    job.<kind…>.<job>               everything that happens to a job afterwards

A job is the pair (kind, job id); its *lane* is every record on its wait, call and job subjects.
"""

from __future__ import annotations

from antiphon.core.families.jobs.priority import PRIORITIES, Priority


def wait(mesh: str, kind: str, job_id: str) -> str:
    """The subject of a schedule that waits."""
    return f"ap.{mesh}.wait.{kind}.{job_id}"


def call(mesh: str, priority: Priority, kind: str, job_id: str) -> str:
    """The subject of an announcement: a schedule or an offer."""
    return f"ap.{mesh}.call.{priority}.{kind}.{job_id}"


def job(mesh: str, kind: str, job_id: str) -> str:
    """The subject of what happens to a job."""
    return f"ap.{mesh}.job.{kind}.{job_id}"


def lane(mesh: str, kind: str, job_id: str) -> tuple[str, ...]:
    """The literal subjects of one job's lane."""
    return (
        wait(mesh, kind, job_id),
        *(call(mesh, priority, kind, job_id) for priority in PRIORITIES),
        job(mesh, kind, job_id),
    )


def calls_of(mesh: str, priority: Priority, kind: str, *, below: bool) -> str:
    """Filter: announcements of exactly one kind, or of every kind below a prefix."""
    return f"ap.{mesh}.call.{priority}.{kind}.{'>' if below else '*'}"


def queue_name(kind: str, priority: Priority) -> str:
    """The shared queue of one kind and priority: the same for every worker.

    Engines allow no dot in a queue's name; `=` cannot occur in a kind, so names stay unique.
    """
    return f"{kind.replace('.', '=')}={priority}"
