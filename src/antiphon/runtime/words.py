"""What workers say to each other on the bus: one signed word at a time (spec §8, §10).

A word is signed by the node it speaks of, for one kind, over the bytes as sent. It is no op, and
nothing on the log follows from it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.core import signing
from antiphon.core.families.jobs.ops import JobId
from antiphon.core.op import Count, Did
from antiphon.core.selection import Labels, Weight
from antiphon.core.subjects import MAX_KIND_LENGTH
from antiphon.errors import AntiphonError
from antiphon.runtime.author import Author

WORD_TYPE: Final = "application/vnd.antiphon.word+json"
MAX_MENTIONED: Final = 256
"""Jobs of each sort in one word; what is beyond waits for the next one."""
CARE: Final = "care"
"""Where the full nodes talk that look after a mesh."""

Mention = tuple[JobId, Count]
"""A job, and the sequence of the call that is meant."""
_Many = Annotated[tuple[Mention, ...], Meta(max_length=MAX_MENTIONED)]


def subject_of(kind: str) -> str:
    """Where the workers of a kind talk, relative to the mesh."""
    return f"work.{kind}" if kind else CARE


class Returned(Struct, frozen=True, array_like=True):
    """A job given back, and how long nobody should look at it."""

    job: JobId
    call: Count
    after_ms: Count


class Word(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says about itself and its jobs. Signed over the bytes as sent; not an op."""

    mesh: str
    kind: Annotated[str, Meta(max_length=MAX_KIND_LENGTH)]
    """Empty in the words of those who look after all kinds."""
    node: Did
    at_ms: Count
    """Every word of a node is later than the one before."""
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


class _Signed(Struct, frozen=True):
    word: str
    sig: str


_decode_signed = msgspec.json.Decoder(_Signed).decode
_decode_word = msgspec.json.Decoder(Word).decode


def signed(word: Word, author: Author) -> bytes:
    """A word as it goes out."""
    text = msgspec.json.encode(word)
    sig = author.vouch(WORD_TYPE, text).hex()
    return msgspec.json.encode(_Signed(text.decode(), sig))


def opened(payload: bytes, *, mesh: str, kind: str) -> Word | None:
    """A word about this kind that its node signed; None for anything else."""
    try:
        message = _decode_signed(payload)
        text = message.word.encode()
        word = _decode_word(text)
        if word.mesh != mesh or word.kind != kind:
            return None
        is_true = signing.is_signed(word.node, WORD_TYPE, text, bytes.fromhex(message.sig))
    except (msgspec.MsgspecError, ValueError, AntiphonError):
        return None
    return word if is_true else None
