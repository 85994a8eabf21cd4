"""The coordinator's seal as an op (spec §7.5). Every member may read seals; none may write them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.op import Body, Digest, Op

SEAL: Final = Branch(stem="seal", shape="single")


class SealBody(Body, frozen=True):
    """Commits to every record up to `upto`, rejected ones included, with their verdicts."""

    upto: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """The last sequence that it covers."""
    size: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """The number of these records."""
    root: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    state: Digest | None = None
    """The digest of the newest snapshot (`core/archive/snapshot.py`); no verdict depends on it."""


class MeshSeal(Op, frozen=True, tag="mesh.seal"):
    """Seals the log so far."""

    body: SealBody
    BRANCH: ClassVar[Branch] = SEAL

    def subject(self, mesh: str) -> str:
        """The only subject of its branch."""
        return f"ap.{mesh}.{SEAL.stem}"

    def words(self) -> str:
        """In a sentence."""
        return f"sealed the log up to record {self.body.upto}"
