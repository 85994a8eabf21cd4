"""What is known of a job that was forgotten: by whose order, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.family import Lane, Over
from antiphon.core.record.branches import LaneKey

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.state import Job

FAMILY: Final = "erasures"


class Erasure(Struct, frozen=True, kw_only=True):
    """The newest order to forget one job."""

    seq: int
    """Its place: a job of the same id that begins behind it was not forgotten."""
    at_ms: int
    """When that was, by the log's clock."""
    hlc: tuple[int, int]
    hlc_author: str

    @property
    def by(self) -> str:
        """Who had it forgotten."""
        return self.hlc_author


class ErasureLane(Lane, frozen=True):
    """The last sequence on the subject, and the erasure."""

    tails: tuple[int, ...] = (0,)
    state: Erasure | None = None

    def over(self, _control: Control) -> Over | None:
        """At once; it stays on the log for as long as the longest that jobs stay there."""
        return None if self.state is None else Over(self.time_ms, is_asked_again=True)


def erasure_key(kind: str, job_id: str) -> LaneKey:
    """The key of the lane about a job's erasure."""
    return LaneKey(FAMILY, kind, job_id)


def is_about(order: Erasure, job: Job) -> bool:
    """Whether an order is about this job, and not about one of the same id before it."""
    return job.scheduled_seq < order.seq
