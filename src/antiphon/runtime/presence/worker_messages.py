"""What workers say to each other on the bus: one signed word at a time (spec §8, §10).

A word speaks of its author and of the kind on whose subject it is published.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.families.jobs.ops import JobId
from antiphon.core.policy.selection import Labels, Weight
from antiphon.core.record.op import Count

MAX_MENTIONED: Final = 256
"""Jobs of each sort in one word; what is beyond waits for the next one."""
MAX_BYTES: Final = 256 * 1024
AGE_MS: Final = 10_000
"""How far a word's time may be from the listener's clock."""

Mention = tuple[JobId, Count]
"""A job, and the sequence of the call that is meant."""
_Many = Annotated[tuple[Mention, ...], Meta(max_length=MAX_MENTIONED)]


class Returned(Struct, frozen=True, array_like=True):
    """A job given back, and how long nobody should look at it."""

    job_id: JobId
    call: Count
    after_ms: Count


class Word(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says about itself and its jobs."""

    labels: Labels = ()
    weight: Weight = 1
    free: Count = 0
    is_new: bool = False
    """Asks the others to answer soon."""
    is_away: bool = False
    """Not to be counted on, or no longer."""
    took: _Many = ()
    ended: _Many = ()
    returned: Annotated[tuple[Returned, ...], Meta(max_length=MAX_MENTIONED)] = ()
    calls: _Many = ()
    """Calls that somebody should look at: who has the right labels, or simply anybody."""


WORDS: Final = MessageType("word", Word, max_bytes=MAX_BYTES, max_age_ms=AGE_MS)
"""Every word of a node is later than the one before."""
