"""What a backup consists of, signed by the owner of its mesh.

Every file is named with its size and digest, so one signature covers all of them. A backup is
what its manifest says: other files in its folder are not part of it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from antiphon.core.record import signing
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, Malformed
from antiphon.ports import Keyring
from antiphon.read_back import read_back

FORM: Final = 1
PAYLOAD_TYPE: Final = "application/vnd.antiphon.backup+json"
MANIFEST: Final = "manifest"


class FileEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a backup."""

    path: str
    size: int
    digest: str


class Segment(FileEntry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file with messages of a stream, rising by sequence."""

    first: int
    last: int
    count: int


class ArchiveCopy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the copy of the archive went. It proves itself, and may have grown since."""

    size: int
    root: str
    copied: FileEntry
    """The list of its files as they were when they were copied: what is the same stays."""


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole backup."""

    form: int
    mesh: str
    name: str
    engine: str
    """The address of its server when this was made."""
    made_ms: int
    by: str
    """Who signed this: the owner of the mesh."""
    upto: int
    """The newest record in it."""
    last_digest: str
    """The digest of that record: how the next run recognises the log."""
    last_ms: int
    """When that record was committed."""
    log: tuple[Segment, ...]
    messages: tuple[Segment, ...]
    blobs: FileEntry
    """The list of all stored values. Each is a file of its own, named by its digest."""
    host: FileEntry
    """What the machine that hosts the mesh has on disk beside the log, without its keys."""
    archive: ArchiveCopy | None = None
    """None if there was no archive."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file that is named here."""
        copied = () if self.archive is None else (self.archive.copied,)
        return (*self.log, *self.messages, self.blobs, self.host, *copied)

    @property
    def records(self) -> int:
        """How many records of the log it has."""
        return sum(one.count for one in self.log)


def write(manifest: Manifest, owner: Keyring) -> bytes:
    """The manifest as two lines: its text, and the owner's signature over it."""
    text = msgspec.json.encode(manifest)
    data = signing.frame(text, signing.Block(sig=owner.sign(PAYLOAD_TYPE, text)))
    read_back("the backup's manifest", manifest, read, data)
    return data


def read(data: bytes) -> Manifest:
    """A manifest whose signature is valid; `Corrupt` otherwise.

    Whether the signer owned the mesh is for whoever reads the log.
    """
    try:
        text, block = signing.unframe(data)
        manifest = msgspec.json.decode(text, type=Manifest)
    except (*UNREADABLE, Malformed) as problem:
        raise Corrupt(f"the backup's manifest is damaged: {problem}") from problem
    if manifest.form != FORM:
        raise Corrupt(
            f"this backup has form {manifest.form}, and this version reads form {FORM}",
            hint="use the version that made it",
        )
    try:
        is_signed = signing.is_signed(manifest.by, PAYLOAD_TYPE, text, block.sig)
    except Malformed:
        is_signed = False
    if not is_signed or signing.frame(text, signing.Block(sig=block.sig)) != data:
        raise Corrupt("the backup's manifest is not as it was signed")
    return manifest
