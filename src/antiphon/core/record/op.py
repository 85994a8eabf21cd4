"""The envelope that all ops share, and the words their bodies are made of (spec §4.1).

An op class says everything about itself once: its type (the tag), the command that its author has
to hold, the branch of the log that it lies on, and since which protocol there is such an op. What
its family does with it is in `antiphon.core.families`.

Every envelope field is always written; in bodies a field at its default is not. With the strict
reading of `codec.decode` each op therefore has exactly one spelling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct

from antiphon.core.clock.hlc import MAX_LOGICAL, MAX_WALL
from antiphon.core.record import subjects
from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.ids import mesh_id

VERSION: Final = 1
MAX_AUTH: Final = 16
MAX_DEPS: Final = 64

LoginIssuer = Annotated[int, Meta(ge=0, le=MAX_WALL)]
Logical = Annotated[int, Meta(ge=0, le=MAX_LOGICAL)]
Seq = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Digest = Annotated[str, Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]
Did = Annotated[str, Meta(pattern=r"^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}\Z")]
"""The shape of an Ed25519 did:key; whether it is a usable one shows where it signs."""
Kind = Annotated[
    str,
    Meta(
        pattern=r"^(?=[a-z])[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
        r"(?:\.[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?){0,7}\Z",
        max_length=subjects.MAX_KIND_LENGTH,
    ),
]
Text = Annotated[str, Meta(max_length=4096)]
Label = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.=/-]{0,127}\Z")]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all bodies share: closed, and a default is never written."""


class Op(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", gc=False):
    """The envelope; its bytes' BLAKE3 is the op's id."""

    v: Literal[1]
    mesh: Annotated[str, Meta(pattern=r"^([a-z2-7]{16})?\Z")]
    author: Annotated[str, Meta(min_length=1, max_length=64)]
    hlc: tuple[LoginIssuer, Logical]
    prev: Seq
    """The last sequence that the author saw on this op's subject; 0 = nothing."""
    deps: Annotated[tuple[tuple[Seq, Digest], ...], Meta(max_length=MAX_DEPS)]
    auth: Annotated[tuple[Annotated[str, Meta(max_length=128)], ...], Meta(max_length=MAX_AUTH)]

    COMMAND: ClassVar[str] = ""
    """The command that its author must hold; empty where the family alone says who may."""
    BRANCH: ClassVar[Branch]
    """Where such ops lie, who reads and who writes there."""
    SINCE: ClassVar[int] = 1
    """The first protocol that has it."""
    FOUNDS: ClassVar[bool] = False
    """Whether it can begin a mesh: then it names none, since its digest is the mesh's name."""

    if TYPE_CHECKING:
        body: Any
        """What it says: each op class has its own."""

    @classmethod
    def type_name(cls) -> str:
        """How it is named in its bytes, such as `job.claim`."""
        return str(cls.__struct_config__.tag)

    def subject(self, mesh: str) -> str:
        """The only subject on which it counts."""
        raise NotImplementedError


def subject_of(op: Op, op_bytes: bytes = b"") -> str:
    """Where this op belongs. Only genesis needs its own bytes, since they are the mesh's name."""
    return op.subject(op.mesh or mesh_id(op_bytes))
