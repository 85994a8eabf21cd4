"""Which job a record of the log is about, as tests name it."""

from antiphon.core.families.jobs import JOBS
from antiphon.core.protocol import PROTOCOL


def job_of(subject: str) -> tuple[str, str] | None:
    """Kind and id of the job whose lane a subject belongs to; None where it is no job's."""
    key = PROTOCOL.lane_of(subject)
    return (key.kind, key.name) if key is not None and key.family == JOBS.name else None
