"""What is asked of a log over HTTP, and answered: one question in the body of `POST /v1/log`.

The port's reads, each in parts of bounded size. An answer says how far it came (`upto`), whether
there is more, and what the asker may read now.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record.op import Count
from antiphon.ports import LANES_AT_ONCE, SUBJECTS_AT_ONCE, Record

LOG_PATH: Final = "/v1/log"
RECORDS_PATH: Final = "/v1/records"
MOST_RECORDS: Final = 512
SEQUENCES_AT_ONCE: Final = 512
WAIT_S: Final = 20.0
"""How long a read waits at most."""

_Subject = Annotated[str, Meta(min_length=1, max_length=400)]
_Subjects = Annotated[tuple[_Subject, ...], Meta(max_length=SUBJECTS_AT_ONCE)]


class _Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="ask"):
    """What all questions share: no unknown fields."""


class Read(_Question, frozen=True, tag="read"):
    """Records above a sequence, oldest first; with `wait_s`, as soon as there is one."""

    after: Count = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_RECORDS)] = MOST_RECORDS
    subject: _Subject = ">"
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S)] = 0.0


class Lane(_Question, frozen=True, tag="lane"):
    """Records on some subjects above a sequence."""

    subjects: _Subjects
    after: Count = 0


class Lanes(_Question, frozen=True, tag="lanes"):
    """Several short lanes."""

    lanes: Annotated[tuple[_Subjects, ...], Meta(max_length=LANES_AT_ONCE)]


class Newest(_Question, frozen=True, tag="newest"):
    """The newest record on each subject."""

    subjects: _Subjects


class Fetch(_Question, frozen=True, tag="fetch"):
    """Records by their sequences."""

    seqs: Annotated[tuple[Count, ...], Meta(max_length=SEQUENCES_AT_ONCE)]
    is_certain: bool = True
    """Whether they are known to be there: then a copy that lags does not answer."""


class Confirm(_Question, frozen=True, tag="confirm"):
    """Records up to a sequence, from a copy that has it."""

    subject: _Subject
    after: Count
    upto: Count


class End(_Question, frozen=True, tag="end"):
    """The newest record."""


class Reaches(_Question, frozen=True, tag="reaches"):
    """Whether the log holds that sequence, or a later one."""

    seq: Count


Question = Read | Lane | Lanes | Newest | Fetch | Confirm | End | Reaches


class Found(Struct, frozen=True, kw_only=True):
    """Records, and what is known besides."""

    records: list[Record] = []
    lanes: list[list[Record] | None] = []
    """For several lanes: each, or None for one that is too long."""
    upto: int = 0
    """How far it was read: the place to go on from, if there is more."""
    more: bool = False
    is_reached: bool = True
    """Whether the log is as long as the question assumes."""
    reads: tuple[str, ...] = ()
    """What the asker may read."""


questions: Final = msgspec.json.Decoder(Question)
answers: Final = msgspec.json.Decoder(Found)
