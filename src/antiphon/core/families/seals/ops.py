"""The coordinator's seal as an op (spec §7.5). Everybody reads seals; no member writes one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.op import Body, Digest, Op

SEAL: Final = Branch(stem="seal", shape="single")


class SealBody(Body, frozen=True):
    """Vouches for every record up to `upto`, rejected ones included, with their verdicts."""

    upto: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """The last sequence that it covers."""
    size: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """How many records that are."""
    root: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    state: Digest | None = None
    """Kept for the digest of a snapshot; refused until there are any."""


class MeshSeal(Op, frozen=True, tag="mesh.seal"):
    """Vouches for the log so far."""

    body: SealBody
    BRANCH: ClassVar[Branch] = SEAL

    def subject(self, mesh: str) -> str:
        """The only one there is."""
        return f"ap.{mesh}.{SEAL.stem}"
