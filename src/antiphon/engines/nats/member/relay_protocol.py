"""Records that members write through the gate, which appends them to the log.

The branches of the log define which those are (`core.record.branches`). Every node reads all of
control, so no member may flood it. And the subjects of revocations and evidence are known
beforehand: a compare-and-set decides there who is first, and a member that could publish there
could block all others: the owner who revokes it, or a node that proves that it signed twice. What
is sent is the signed record, which nobody can alter.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, LostRace, OutcomeUnknown, Rejected, Unavailable

VERB = "post"


class Answer(Struct, frozen=True, omit_defaults=True):
    """The result of a write: its place on the log, or a code that says why not."""

    seq: int = 0
    outrun: str = ""
    refused: str = ""
    reason: str = ""
    unknown: str = ""
    again: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Answer).decode


def told(error: AntiphonError) -> bytes:
    """An error as its sender gets it."""
    match error:
        case LostRace():
            return _encode(Answer(outrun=error.message))
        case Rejected():
            return _encode(Answer(refused=error.message, reason=error.reason))
        case OutcomeUnknown():
            return _encode(Answer(unknown=error.message))
        case Unavailable():
            return _encode(Answer(again=error.message))
        case _:
            return _encode(Answer(again=error.message))


def stored(seq: int) -> bytes:
    """Where a record was stored."""
    return _encode(Answer(seq=seq))


def place_in(payload: bytes) -> int:
    """The place on the log that an answer names; its error if it names none."""
    try:
        answer = _decode(payload)
    except UNREADABLE as problem:
        raise OutcomeUnknown("the gate's answer cannot be read") from problem
    if answer.outrun:
        raise LostRace(answer.outrun)
    if answer.refused:
        raise Rejected(answer.refused, reason=answer.reason)
    if answer.unknown:
        raise OutcomeUnknown(answer.unknown)
    if not answer.seq:
        raise Unavailable(answer.again or "the gate stored nothing and gave no reason")
    return answer.seq
