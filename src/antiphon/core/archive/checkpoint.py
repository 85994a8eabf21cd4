"""Checkpoints (C2SP tlog-checkpoint): the size and the root of a log's tree, as a signed note.

    antiphon/<mesh>
    <size>
    <base64 of the root>

A checkpoint says again what the coordinator's seal says; the seal is what verdicts depend on.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from msgspec import Struct

from antiphon.core.archive import signed_note
from antiphon.core.archive.signed_note import Note, NoteKey
from antiphon.core.proof.merkle import HASH_BYTES
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.errors import Malformed

ORIGIN: Final = "antiphon"
CHECKPOINT: Final = "checkpoint"
SEAL: Final = "seal"
VKEY: Final = "vkey"
"""Files beside tiles and records: the checkpoint, the seal that it repeats, and who signed it."""
_LINES: Final = 3


class Checkpoint(Struct, frozen=True):
    """A log, and its tree at one size."""

    mesh: str
    size: int
    root: bytes

    @property
    def origin(self) -> str:
        """The log's name, and that of its coordinator's key."""
        return origin_of(self.mesh)

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def origin_of(mesh: str) -> str:
    """What checkpoints call a mesh's log."""
    return f"{ORIGIN}/{mesh}"


def signed(checkpoint: Checkpoint, did: str, signature: bytes) -> bytes:
    """The checkpoint as a file, signed by this node."""
    return signed_note.written(checkpoint.text, (NoteKey(checkpoint.origin, did), signature))


def read(data: bytes) -> tuple[Checkpoint, Note]:
    """A checkpoint and the note that it is in, whose signatures are not checked yet."""
    note = signed_note.read(data)
    lines = note.text.split("\n")
    name, slash, mesh = lines[0].partition("/")
    if name != ORIGIN or not slash or not mesh or len(lines) != _LINES + 1:
        raise Malformed("this is not the checkpoint of a mesh", reason="checkpoint")
    try:
        size, root = int(lines[1]), base64.b64decode(lines[2], validate=True)
    except (ValueError, binascii.Error) as problem:
        raise Malformed("a checkpoint has a size and a root", reason="checkpoint") from problem
    found = Checkpoint(mesh, size, root)
    if found.text != note.text or not 0 <= size <= MAX_INTEGER or len(root) != HASH_BYTES:
        raise Malformed("this checkpoint is not in its one form", reason="checkpoint")
    return found, note
