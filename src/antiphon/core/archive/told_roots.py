"""Roots that full nodes tell each other, so that two histories can be compared (spec §7.5).

A question names a node and some sizes of the tree; the node answers with its root at each, signed
for the inbox of whoever asked. With the first size comes the proof that the node's newest tree
begins with it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.proof.merkle import MAX_PROOF
from antiphon.core.record.op import Count

MAX_QUESTION_BYTES: Final = 256
SIZES_AT_ONCE: Final = 8
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class AskedRoots(Struct, frozen=True, forbid_unknown_fields=True):
    """A question."""

    node: Annotated[str, Meta(max_length=64)]
    sizes: Annotated[tuple[Count, ...], Meta(max_length=SIZES_AT_ONCE)] = ()


class ToldRoots(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer. Sizes that the node has not reached have no root."""

    size: Count
    root: _Hash
    roots: Annotated[tuple[tuple[Count, _Hash], ...], Meta(max_length=SIZES_AT_ONCE)] = ()
    path: Annotated[tuple[_Hash, ...], Meta(max_length=2 * MAX_PROOF)] = ()
    """What shows that the newest tree begins with that of the first size."""


TOLD_ROOTS: Final = MessageType("roots", ToldRoots, max_bytes=16 * 1024)
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(AskedRoots).decode
