"""Outputs of a run, by content."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from antiphon.core.record.ids import digest
from antiphon.core.record.op import Body, Count, Digest


class Stored(Body, frozen=True):
    """Content that is kept outside the log."""

    hash: Digest
    size: Count
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None


class Output(Body, frozen=True):
    """One output: a small one as its text, any other by the digests of what is stored.

    The digests of a text are not written, since they follow from it.
    """

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    type: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    text: Annotated[str, Meta(max_length=128 * 1024)] | None = None
    stored: Stored | None = None

    def __post_init__(self) -> None:
        """An output has one content."""
        if (self.text is None) == (self.stored is None):
            raise ValueError("an output is either a text or stored")

    @property
    def content(self) -> Stored:
        """The digests and the size of its content; those of a text are computed."""
        if self.stored is not None:
            return self.stored
        raw = (self.text or "").encode()
        return Stored(hash=digest(raw), size=len(raw), sha256=sha256(raw).hexdigest())

    @property
    def hash(self) -> str:
        """The BLAKE3 digest of its content."""
        return self.content.hash

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.content.size

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of its content; None where nobody computed it."""
        return self.content.sha256
