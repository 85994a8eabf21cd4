"""Shell completion of job ids and kinds, from the local replica, without connecting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Job

OFFERED: Final = 32
LOOKED_AT: Final = 200


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Job ids that begin with this, newest first, each with its kind and state."""
    jobs = [job for job in _recent(context) if job.id.startswith(incomplete)]
    return [(job.id[:12], f"{job.kind} {job.state.value}") for job in jobs[:OFFERED]]


def complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Kinds of recent jobs."""
    kinds = {job.kind for job in _recent(context)}
    return sorted(kind for kind in kinds if kind.startswith(incomplete))


def _recent(context: typer.Context) -> list[Job]:
    home = context.params.get("home")
    try:
        from antiphon.sdk.jobs.job_lookup import recent_jobs

        return recent_jobs(Path(home) if home else None, limit=LOOKED_AT)
    except Exception:  # noqa: BLE001 - completion must never print an error
        return []
