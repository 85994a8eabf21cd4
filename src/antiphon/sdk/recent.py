"""What a machine remembers of its mesh without asking anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.jobs.state import Job
from antiphon.runtime.replica import Replica
from antiphon.sdk.environment import read_environment

if TYPE_CHECKING:
    from pathlib import Path


def recent_jobs(home: Path | None, *, limit: int) -> list[Job]:
    """The newest jobs as far as this machine's replica knows them; nothing connects."""
    chosen = read_environment()
    found = chosen.home(home)
    chosen.require_scope(found)
    replica = Replica(found.replica, mesh=found.mesh().mesh, read_only=True)
    try:
        return replica.jobs(limit=limit)
    finally:
        replica.close()
