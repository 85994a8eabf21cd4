"""Records that members hand to the gate, which puts them on the log.

Which those are, the branches of the log say (`core.record.branches`). Every node reads all of
control, so nobody may fill it. And where revocations and evidence belong is known beforehand: a
compare-and-set decides there who comes first, and a member that could publish there could keep
everybody else from it: the owner who revokes it, or whoever shows that it signed twice. The letter
is the signed record, which nobody can alter.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from antiphon.errors import LostRace, OutcomeUnknown, Rejected, Unavailable

VERB = "post"


class Answer(Struct, frozen=True, omit_defaults=True):
    """What became of a letter: its place on the log, or one of the words that say why not."""

    seq: int = 0
    outrun: str = ""
    refused: str = ""
    reason: str = ""
    unknown: str = ""
    again: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Answer).decode


def told(error: Exception) -> bytes:
    """An error as its sender shall hear it."""
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
            return _encode(Answer(again="the gate failed; its log says how"))


def stored(seq: int) -> bytes:
    """Where a letter was put."""
    return _encode(Answer(seq=seq))


def place_in(payload: bytes) -> int:
    """The place on the log that an answer names; its error if it names none."""
    try:
        answer = _decode(payload)
    except msgspec.MsgspecError as problem:
        raise OutcomeUnknown("the gate's answer cannot be read") from problem
    if answer.outrun:
        raise LostRace(answer.outrun)
    if answer.refused:
        raise Rejected(answer.refused, reason=answer.reason)
    if answer.unknown:
        raise OutcomeUnknown(answer.unknown)
    if not answer.seq:
        raise Unavailable(answer.again or "the gate did not say why it stored nothing")
    return answer.seq
