"""The signed messages between workers on the bus (spec §8, §10).

A message is about its author, and about the kind on whose subject it is published.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.families.jobs.ops import JobId
from antiphon.core.policy.selection import Labels, Weight
from antiphon.core.record.op import Count

MAX_MENTIONED: Final = 256
"""Jobs of each sort in one message; the rest wait for the next one."""
MAX_BYTES: Final = 256 * 1024
AGE_MS: Final = 10_000
"""How far a message's time may be from the listener's clock."""

Mention = tuple[JobId, Count]
"""A job, and the sequence of its announcement."""
_Many = Annotated[tuple[Mention, ...], Meta(max_length=MAX_MENTIONED)]


class ReturnedJob(Struct, frozen=True, array_like=True):
    """A job given back, and how long other workers should leave it alone."""

    job_id: JobId
    call: Count
    after_ms: Count


class WorkerMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's message about itself and its jobs."""

    labels: Labels = ()
    weight: Weight = 1
    free: Count = 0
    is_new: bool = False
    """Asks the others to answer soon."""
    is_away: bool = False
    """Not, or no longer, a candidate."""
    took: _Many = ()
    ended: _Many = ()
    returned: Annotated[tuple[ReturnedJob, ...], Meta(max_length=MAX_MENTIONED)] = ()
    calls: _Many = ()
    """Announcements to look at: for workers with the right labels, or for any worker."""


WORKER_MESSAGES: Final = MessageType("word", WorkerMessage, max_bytes=MAX_BYTES, max_age_ms=AGE_MS)
"""The timestamps of a node's messages increase."""
