"""Members' read requests to the gate: the body of a read, and which bodies are refused."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record.op import MAX_DEPS
from antiphon.core.record.subjects import MAX_KIND_LENGTH, MAX_KIND_TOKENS
from antiphon.core.visible_subjects import is_filter, is_literal
from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError

MAX_QUESTION_BYTES = 256 * 1024
MAX_FILTERS = 512
"""Of one request: dozens of lanes at once, five subjects each; or all that a login can name."""
MAX_SEQS = MAX_DEPS
"""Records by their sequences of one request: as many as one op may name."""
MAX_FILTER_LENGTH = MAX_KIND_LENGTH + 64
MAX_FILTER_TOKENS = MAX_KIND_TOKENS + 4
"""Of what is shown: a branch, a kind and a name."""
MANY_FILTERS = 64
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ReadRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a read, as far as the gate knows it."""

    seq: _Count = 0
    seqs: tuple[_Count, ...] = ()
    """Not the server's: several records by their sequences."""
    next_by_subj: str = ""
    last_by_subj: str = ""
    multi_last: tuple[str, ...] = ()
    batch: _Count = 0
    max_bytes: _Count = 0
    reads: tuple[str, ...] = ()
    """The filters, relative to the mesh, that the asker takes for all that it may read: it would
    take the absence of their records for proof that there are none."""

    @property
    def is_large(self) -> bool:
        """Whether it may be many records, or the server has to walk many subjects for it."""
        many = self.batch > 1 or bool(self.multi_last or self.seqs)
        many |= len(self.reads) > MANY_FILTERS
        return many or not is_literal(self.last_by_subj)


class BadReadRequest(AntiphonError):
    """The body of a read is malformed, or asks for what the gate does not support."""


_decode = msgspec.json.Decoder(ReadRequest).decode


def parse(body: bytes) -> ReadRequest:
    """The read in a request's body, or `BadReadRequest`."""
    if not body or len(body) > MAX_QUESTION_BYTES:
        raise BadReadRequest("Empty Request" if not body else "Request Too Large")
    try:
        asked = _decode(body)
    except UNREADABLE as error:
        raise BadReadRequest("Malformed Request") from error
    most = max(len(asked.multi_last), len(asked.reads))
    if most > MAX_FILTERS or len(asked.seqs) > MAX_SEQS:
        raise BadReadRequest("Bad Request")  # before each of them is looked at
    is_run = bool(asked.seq or asked.next_by_subj)
    ways = is_run + bool(asked.last_by_subj) + bool(asked.multi_last) + bool(asked.seqs)
    if not ways:
        raise BadReadRequest("Empty Request")
    named = (asked.next_by_subj, asked.last_by_subj, *asked.multi_last)
    if (
        ways > 1
        or (asked.batch and not is_run)
        or not all(is_filter(one) for one in named if one)
        or "" in asked.multi_last
        or any(_is_too_long(one) for one in asked.reads)
    ):
        raise BadReadRequest("Bad Request")
    return asked


def _is_too_long(shown: str) -> bool:
    return len(shown) > MAX_FILTER_LENGTH or shown.count(".") >= MAX_FILTER_TOKENS
